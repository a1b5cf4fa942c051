"""What `reo offsets` does with clusters that change or are not the ones that were copied; on real
brokers: `tests/broker/test_offsets.py`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import source_pool
from common.errors import (
    HangingTransaction,
    MoveRefused,
    OffsetUntranslatable,
    SourceRecreated,
)
from common.frontier import Frontier, LastRecord
from common.kafka import partition_offsets, permissions, source_topics, topics, visible_records
from common.kafka.consumer_group import Commit, Group
from common.kafka.topics import Topic
from common.records import compute_message_checksum
from common.routes import TopicPartition
from common.settings import load
from reo.migration import group_translator, offsets_sync, partition_translator
from reo.migration.group_translator import GroupTranslator
from tests.unit.reo.test_alignment import Message

SOURCE, COPY = TopicPartition("orders", 0), TopicPartition("copy", 0)
ADDED, ADDED_COPY = TopicPartition("orders", 1), TopicPartition("copy", 1)
GROUP = "billing"


class FakeGroup:
    """A group's commits on one cluster."""

    def __init__(self, committed: dict[TopicPartition, int]) -> None:
        self.committed = committed
        self.metadata: dict[TopicPartition, str] = {}

    def fetch_offsets(self, asked: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Of the asked partitions."""
        return {tp: self.committed[tp] for tp in asked if tp in self.committed}

    def list_commits(self, asked: Iterable[TopicPartition]) -> dict[TopicPartition, Commit]:
        """Of the asked partitions."""
        return {
            tp: Commit(offset, self.metadata.get(tp, ""))
            for tp, offset in self.fetch_offsets(asked).items()
        }

    def has_members(self) -> bool:
        """Nobody."""
        return False

    def commit_forward(self, commits: Mapping[TopicPartition, Commit]) -> None:
        """Without a check."""
        self.committed |= {tp: commit.offset for tp, commit in commits.items()}
        self.metadata |= {tp: commit.metadata for tp, commit in commits.items()}


class FakeClusters:
    """A source `orders` with three records at offsets 0, 3 and 6, all copied to offsets 0, 1 and 2
    of `copy`; a marker follows on each side.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, mode: str = "single") -> None:
        self.settings = load(
            {
                "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
                "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
                "REO_SOURCE_TOPIC": SOURCE.topic,
                "REO_DESTINATION_TOPIC": COPY.topic,
                "REO_SOURCE_MODE": mode,
            }
        )
        self.records = {
            SOURCE: [Message(letter, 3 * place) for place, letter in enumerate("abc")],
            COPY: [Message(letter, place) for place, letter in enumerate("abc")],
        }
        self.ends = {SOURCE: 8, COPY: 4, ADDED: 5}
        self.stable_ends: dict[TopicPartition, int] = {}
        self.begins: dict[TopicPartition, int] = {}
        self.own_ends: dict[TopicPartition, int] = {}
        """The ends that the broker that is read from has, where they are lower."""
        self.is_pending = False
        """Whether a transaction is about to replace the frontier."""
        self.source = Topic(SOURCE.topic, "source-id", 1, "source-cluster")
        self.destination = Topic(COPY.topic, "copy-id", 1, "copy-cluster")
        self.at_source, self.at_destination = FakeGroup({SOURCE: 3}), FakeGroup({})
        last = LastRecord(6, compute_message_checksum(cast(Any, self.records[SOURCE][-1])))
        self.frontier = Frontier(6, 1, self.source.identity, 1, "copy-id", 2, 0, last_record=last)
        (route,) = self.settings.build_routes([])
        for holder, name, answer in (
            (source_topics, "describe_sources", lambda *_: {route: self.source}),
            (topics, "look_up", lambda *_: {COPY.topic: self.destination}),
            (visible_records, "read_visible", self._read),
            (
                partition_offsets,
                "list_beginning_offsets",
                lambda _, tps, *__: {tp: self.begins.get(tp, 0) for tp in tps},
            ),
            (partition_offsets, "list_end_offsets", self._list_ends),
            (Group, "read_commits", self._read_commits),
            (GroupTranslator, "open_source_group", lambda *_: self.at_source),
            (GroupTranslator, "open_destination_group", lambda *_: self.at_destination),
            (group_translator, "create_admin_clients", lambda *_: (None, None)),
            (partition_translator, "create_readers", lambda *_: (None, None)),
            (offsets_sync, "list_groups", lambda *_: [GROUP]),
            (group_translator, "list_groups", lambda *_: [GROUP]),
        ):
            monkeypatch.setattr(holder, name, answer)
        self.intermediate = route.get_intermediate(0)

    def _read(
        self,
        _: object,
        begins: Mapping[TopicPartition, int],
        *more: object,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> Generator[Message]:
        """A broker whose own end is lower answers up to there, or up to the end that is known."""
        ((tp, begin),) = begins.items()
        end = max(self.own_ends.get(tp, 100), (ends or {}).get(tp, 0))
        yield from (record for record in self.records[tp] if begin <= record.offset() < end)

    def _list_ends(
        self, _: object, tps: Iterable[TopicPartition], committed_only: bool = False, *__: float
    ) -> dict[TopicPartition, int]:
        return self.ends | self.stable_ends if committed_only else {tp: self.ends[tp] for tp in tps}

    def _read_commits(
        self, _: object, require_stable: bool = False
    ) -> dict[TopicPartition, SimpleNamespace]:
        if self.is_pending and require_stable:
            raise HangingTransaction("undecided")
        return {self.intermediate: SimpleNamespace(frontier=self.frontier)}

    def translate(self) -> tuple[int | None, str]:
        """The destination offset of partition 0, and why it is refused."""
        row = GroupTranslator(self.settings).translate(GROUP)[0]
        return row.destination_offset, str(row.refusal or "")


def test_a_partition_that_the_destination_lacks_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The source grew, and the group has read there; where it has not, there is nothing to say."""
    clusters = FakeClusters(monkeypatch)
    clusters.source = Topic(SOURCE.topic, "source-id", 2, "source-cluster")
    translator = GroupTranslator(clusters.settings)
    assert [(row.destination, row.refusal) for row in translator.translate(GROUP)] == [
        (COPY, None),
        (ADDED_COPY, None),
    ]
    clusters.at_source.committed[ADDED] = 2
    known, added = translator.translate(GROUP)
    assert (known.destination_offset, known.refusal) == (1, None)
    assert isinstance(added.refusal, OffsetUntranslatable)
    assert "does not have copy-1 yet" in str(added.refusal)


@pytest.mark.parametrize(("read", "place"), [(0, 0), (3, 1), (6, 2), (7, 3)])
def test_with_failover_the_records_say_whether_the_candidate_is_right(
    monkeypatch: pytest.MonkeyPatch, read: int, place: int
) -> None:
    """Another cluster than the one that was copied answers; in single mode that is a stop."""
    clusters = FakeClusters(monkeypatch, "failover")
    clusters.source = Topic(SOURCE.topic, "other-id", 1, "other-cluster")
    clusters.at_source.committed[SOURCE] = read
    assert clusters.translate() == (place, "")
    clusters = FakeClusters(monkeypatch)
    clusters.source = Topic(SOURCE.topic, "other-id", 1, "other-cluster")
    with pytest.raises(SourceRecreated):
        clusters.translate()


def test_a_candidate_without_what_was_copied_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is behind, has another record in place of the last one, or none there: a group that has
    read all that it has must not go on at the end of the copy. What retention has deleted says
    nothing.
    """
    clusters = FakeClusters(monkeypatch, "failover")
    clusters.ends[SOURCE] = clusters.at_source.committed[SOURCE] = 4
    del clusters.records[SOURCE][2]
    offset, why = clusters.translate()
    assert offset is None
    assert "the source ends at offset 4, the copy is at 7" in why
    clusters.ends[SOURCE], clusters.at_source.committed[SOURCE] = 8, 7
    for last in ([Message("x", 6)], []):
        clusters.records[SOURCE][2:] = last
        offset, why = clusters.translate()
        assert offset is None
        assert "that was copied last, at offset 6" in why
    monkeypatch.setattr(
        partition_offsets, "list_beginning_offsets", lambda _, tps, *__: dict.fromkeys(tps, 7)
    )
    clusters.records[COPY] = []
    assert clusters.translate() == (7, "")


@pytest.mark.parametrize("short", [SOURCE, COPY])
def test_no_lower_end_of_a_broker_is_believed(
    monkeypatch: pytest.MonkeyPatch, short: TopicPartition
) -> None:
    """A leader that was replaced, or whose high watermark lags, ends sooner: unread records of the
    group would be skipped, or read again.
    """
    clusters = FakeClusters(monkeypatch)
    clusters.frontier = replace(clusters.frontier, destination_known=0, sent=2)
    clusters.own_ends[short] = 3 if short == SOURCE else 1
    assert clusters.translate() == (1, "")
    clusters.at_source.committed[SOURCE] = 7
    assert clusters.translate() == (3, "")


@pytest.mark.parametrize("why", ["open at the destination", "undecided in the group", "deleted"])
def test_records_that_are_not_all_there_are_not_counted(
    monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """One of the three records that the frontier counts is missing: when no transaction is under
    way, retention took it; otherwise it may come, or another transaction's be counted for it.
    """
    clusters = FakeClusters(monkeypatch)
    clusters.frontier = replace(clusters.frontier, destination_known=-1, sent=3)
    clusters.at_source.committed[SOURCE] = 7
    clusters.records[COPY] = clusters.records[COPY][1:]
    clusters.begins[COPY] = 1
    clusters.stable_ends = {COPY: 2} if why == "open at the destination" else {}
    clusters.is_pending = why == "undecided in the group"
    place, refusal = clusters.translate()
    assert (place, bool(refusal)) == ((3, False) if why == "deleted" else (None, True))


def test_a_frontier_that_does_not_count_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The route has become one to one, and was not started since."""
    clusters = FakeClusters(monkeypatch)
    clusters.frontier = replace(clusters.frontier, destination_known=-1, sent=-1)
    assert "Start the service" in clusters.translate()[1]


@pytest.mark.parametrize(
    ("begin", "read", "why"),
    [
        (0, 9, "an open transaction of the source begins at 8"),
        (0, 13, "the source has 0 to 12: the record that it would read next is not there"),
        (5, 3, "the source has 5 to 12: the record that it would read next is not there"),
    ],
)
def test_a_group_within_an_open_transaction_is_told_to_wait(
    monkeypatch: pytest.MonkeyPatch, begin: int, read: int, why: str
) -> None:
    """It reads read_uncommitted, above the last stable offset; only below the beginning and above
    the end are there no records, and the group is to be reset.
    """
    clusters = FakeClusters(monkeypatch)
    clusters.begins[SOURCE], clusters.ends[SOURCE] = begin, 12
    clusters.stable_ends[SOURCE] = 8
    clusters.at_source.committed[SOURCE] = read
    offset, refusal = clusters.translate()
    assert offset is None
    assert why in refusal
    assert ("--reset-offsets" in refusal) == (read != 9)


def test_a_mistyped_group_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """No partition has an offset of it: the error has the name that may be meant."""
    clusters = FakeClusters(monkeypatch)
    clusters.at_source.committed = {}
    monkeypatch.setattr(permissions, "check_permissions", lambda *_, **__: None)
    monkeypatch.setattr(source_pool, "select_answering", lambda settings: settings)
    with pytest.raises(MoveRefused, match=r"matches 'biling' .* \(did you mean billing\?\)"):
        group_translator.run_command(clusters.settings, "biling", apply=True, as_json=False)
