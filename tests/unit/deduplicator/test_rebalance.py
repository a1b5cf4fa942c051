"""What a rebalance does to stage two's loop: the callback only notes; the loop reads and commits
frontiers when the poll is over, and then reads from there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka import TopicPartition as ClientTopicPartition

from common.frontier import Frontier
from common.liveness import Liveness
from common.routes import Route, TopicPartition
from common.settings import load
from deduplicator.destination import Output
from deduplicator.frontiers.committed_frontiers import TransactionUndecided
from deduplicator.intermediate_consumer import Intermediate
from deduplicator.loop import Loop
from deduplicator.partition import Partition
from deduplicator.partitions import Partitions
from deduplicator.transactions.transaction_failures import TransactionFailed

FRONTIER = Frontier(6, 1, "0123456789abcdef", 1, "id", -1, 0)
FIRST, SECOND = TopicPartition("t-proxy", 0), TopicPartition("t-proxy", 1)


class Client:
    """A consumer whose polls do what is put into `events`, one each."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[tuple[int, int]]]] = []
        self.events: list[Callable[[], None]] = []
        self.polls = 0
        self.callbacks: dict[str, Callable[[Any, list[ClientTopicPartition]], None]] = {}
        self.generation = 4

    def subscribe(
        self, _: Sequence[str], **callbacks: Callable[[Any, list[ClientTopicPartition]], None]
    ) -> None:
        """With the three callbacks."""
        self.callbacks = callbacks

    def poll(self, _: float) -> None:
        """No record; perhaps a rebalance."""
        self.polls += 1
        if self.events:
            self.events.pop(0)()

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(given: Sequence[ClientTopicPartition] | ClientTopicPartition = ()) -> None:
            self.calls.append(
                (
                    name,
                    [
                        (tp.partition, tp.offset)
                        for tp in ([given] if isinstance(given, ClientTopicPartition) else given)
                    ],
                )
            )

        return call

    def consumer_group_metadata(self) -> bytes:
        """Of a member, unless the generation is -1."""
        generation = self.generation.to_bytes(4, sys.byteorder, signed=True)
        return b"CGMDv2:" + generation + b"group\0member\0\0"


class Stand:
    """A loop with that client; frontier store and destination are this object, which writes down
    what is asked of it.
    """

    def __init__(self) -> None:
        self.client = Client()
        self.partitions = Partitions()
        self.asked: list[object] = []
        self.fails = 0
        self.undecided = 0
        """How often the frontiers cannot be read yet."""
        self.is_coordinator_agreed = True
        self.reason_at_start: str | None = None
        self.known: dict[TopicPartition, Frontier] = {}
        self.replaced: Frontier | None = None
        """The frontier of a destination topic that is gone."""
        intermediate = Intermediate(cast(Any, self.client), self.partitions)
        intermediate.subscribe(["t-proxy"])
        loaded = load(
            {
                "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
                "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
                "REO_SOURCE_TOPIC": "t",
            }
        )
        self.route = Route("t", "t", "t-proxy")
        self.loop = Loop(
            loaded,
            {"t-proxy": self.route},
            self.partitions,
            intermediate,
            cast(Any, self),
            cast(Any, self),
            Liveness("deduplicator"),
        )

    def happens(self, callback: str, *topic_partitions: TopicPartition) -> None:
        """In the next poll; nothing may be asked inside of it."""

        def event() -> None:
            before = list(self.asked)
            self.client.callbacks[callback](
                self.client, [ClientTopicPartition(*tp) for tp in topic_partitions]
            )
            assert self.asked == before, "a callback asked for something"

        self.client.events.append(event)

    def start_partitions(
        self, topic_partitions: Collection[TopicPartition], known: Mapping[TopicPartition, Frontier]
    ) -> list[Partition]:
        """Every frontier is a first one."""
        self.known = dict(known)
        self.reason_at_start = self.loop.liveness.reason
        if self.undecided:
            self.undecided -= 1
            self.asked.append("undecided")
            raise TransactionUndecided("no marker yet")
        self.asked.append(sorted(topic_partitions))
        return [
            Partition(
                tp,
                self.route,
                7,
                FRONTIER,
                Output(-1, 0),
                is_uncommitted=True,
                replaced=self.replaced,
            )
            for tp in sorted(topic_partitions)
        ]

    def on_revoked(self) -> None:
        """What a start waits for is forgotten."""

    @property
    def consumer_group(self) -> Stand:
        """As `PartitionStarter.consumer_group`."""
        return self

    def is_assigned(self, topic_partitions: Collection[TopicPartition], member_id: str) -> bool:
        """What the coordinator says."""
        assert member_id == "member"
        return self.is_coordinator_agreed

    def begin(self) -> None:
        """A transaction."""
        self.asked.append(f"begin after {self.client.polls}")

    def send_offsets(
        self, offsets: Sequence[ClientTopicPartition], _: object
    ) -> dict[TopicPartition, int]:
        """Of the first frontiers."""
        self.asked.append([tp.partition for tp in offsets])
        if self.fails:
            self.fails -= 1
            raise TransactionFailed("no")
        return {}

    def start_commit(self) -> None:
        """It is done at once."""

    def finish_commit(self) -> None:
        """It is done."""

    def abort(self) -> None:
        """Nothing is open."""

    def resolve_in_doubt(self) -> None:
        """After a failure."""
        self.asked.append("resolve_in_doubt")


def test_the_callback_only_notes() -> None:
    """It is answered without a partition; after the poll the first frontier is committed, and then
    the partition is read from its offset.
    """
    stand = Stand()
    stand.happens("on_assign", FIRST)
    stand.loop.run_round()
    assert stand.asked == [[FIRST], "begin after 1", [0]]
    assert stand.client.calls == [("assign", []), ("assign", [(0, 7)])]
    assert stand.partitions.assigned.keys() == {FIRST}
    stand.happens("on_revoke", FIRST)
    stand.loop.run_round()
    assert stand.client.calls[2:] == [("unassign", [])]
    assert not stand.partitions.assigned


def test_a_copy_that_begins_again_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Once, when it is certain: the destination topic is gone, and where the copy begins now."""
    stand = Stand()
    stand.replaced = replace(FRONTIER, source_offset=3399, destination_topic_id="the old id")
    stand.fails = 1
    stand.happens("on_assign", FIRST)
    stand.loop.run_round()
    assert "begins again" not in caplog.text
    stand.loop.run_round()
    warned = [record.getMessage() for record in caplog.records if "gone" in record.getMessage()]
    assert warned == [
        (
            "t-0: its frontier, up to source offset 3399, is of a destination topic that is gone"
            " (deleted, or recreated since; its id was the old id). The copy begins again at source"
            f" offset {FRONTIER.source_offset + 1}"
        )
    ]


def test_a_first_frontier_is_not_tried_again_for_what_is_gone() -> None:
    """Its commit is refused, because the group is rebalancing, say. The next poll says that it is
    gone; what was never fetched is not given back.
    """
    stand = Stand()
    stand.fails = 1
    stand.happens("on_assign", FIRST)
    stand.happens("on_revoke", FIRST)
    stand.loop.run_round()
    assert stand.partitions.waiting.keys() == {FIRST}
    stand.loop.run_round()
    assert stand.asked == [[FIRST], "begin after 1", [0], "resolve_in_doubt"]
    assert stand.client.calls[1:] == [("unassign", [])]
    assert not stand.partitions.waiting
    stand.happens("on_assign", FIRST)
    stand.loop.run_round()
    assert stand.asked[4] == [FIRST], "it is read again when it comes back"


def test_a_first_frontier_is_committed_again_after_a_poll() -> None:
    """With what was read before: nobody else moves it."""
    stand = Stand()
    stand.fails = 1
    stand.happens("on_assign", FIRST)
    stand.loop.run_round()
    stand.loop.run_round()
    assert stand.asked == [
        [FIRST],
        "begin after 1",
        [0],
        "resolve_in_doubt",
        "begin after 2",
        [0],
    ]
    assert stand.partitions.assigned.keys() == {FIRST}


def test_frontiers_that_cannot_be_read_yet_are_waited_for() -> None:
    """A predecessor's transaction is open: nothing is fetched before it is over, with a poll in
    between, which may say that the partition is another worker's.
    """
    stand = Stand()
    stand.undecided = 2
    stand.happens("on_assign", FIRST)
    stand.loop.run_round()
    stand.loop.run_round()
    assert stand.asked == ["undecided", "undecided"]
    assert stand.partitions.waiting.keys() == {FIRST}
    assert len(stand.client.calls) == 1, "only the callback's own, without a partition"
    stand.loop.run_round()
    assert stand.asked[2:] == [[FIRST], "begin after 3", [0]]
    assert stand.partitions.assigned.keys() == {FIRST}


def test_what_is_waited_for_is_forgotten_with_its_partition() -> None:
    """It is another worker's by then: nothing is read any more."""
    stand = Stand()
    stand.undecided = 1
    stand.happens("on_assign", FIRST)
    stand.happens("on_revoke", FIRST)
    stand.loop.run_round()
    stand.loop.run_round()
    assert stand.asked == ["undecided"]
    assert not stand.partitions.assigned
    assert not stand.partitions.waiting


def test_an_eager_assignment_is_everything() -> None:
    """What it does not name is gone, also when that was not said before."""
    stand = Stand()
    stand.happens("on_assign", FIRST)
    stand.happens("on_assign", SECOND)
    stand.loop.run_round()
    stand.loop.run_round()
    assert stand.partitions.assigned.keys() == {SECOND}
    assert stand.client.calls[-1] == ("assign", [(1, 7)])
