"""The consumer of the intermediate topics, as a member of the group.

It returns messages, and records which partitions were assigned and revoked
(`deduplicator.partitions`). The group's callbacks run inside `poll`, and no transaction is ever
open across a poll (`deduplicator.loop`). So to give partitions up it is enough to forget them, and
losing them cannot leave anything half done.

A position that is gone from its topic (deleted records, a topic that was created again, a leader
that lost its newest records) is no error: the client goes on at the earliest record
(`auto.offset.reset`), and the rule drops what it has seen.

No records are fetched for a partition that was just assigned: its offset is not known before its
frontier is loaded. But librdkafka needs an assign call in the callback; confluent-kafka would make
it itself, with the committed offset. So the callback assigns no partition at all, and
`start_fetching` assigns them, at their offsets, when the loop has loaded their frontiers. (To
assign and pause in the callback would also work, if a pause right after an assign did not lose its
offset: librdkafka #2190.) The group's ownership of a partition does not depend on that assign call:
the client acknowledges the group's assignment to the coordinator. (What keeps a worker from
committing for partitions that it has lost: `deduplicator.group_metadata`.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as ClientTopicPartition

from common import clock, failpoints
from common.errors import (
    AccessRefused,
    Fenced,
    ForeignRecord,
    SettingsInvalid,
    StageFailed,
    TopicMissing,
)
from common.kafka.client_errors import translate
from common.metrics import REBALANCES
from common.records import Consumed
from common.routes import TopicPartition
from deduplicator.group_metadata import MemberMetadata, commit_offsets, parse_group_metadata
from deduplicator.partitions import Partitions

log = logging.getLogger(__name__)
ENVELOPES_MAX = 8
"""How many are consumed at once: a full one has a thousand records or more, so a transaction is not
much larger than it should be.
"""
LEAVE_S = 2.0
"""Measured: 0.02 s, unless the group rebalances."""
LEAVE_POLL_S = 0.01


class Intermediate:
    """The consumer; `partitions` records what its group assigns and revokes."""

    def __init__(
        self,
        consumer: Consumer,
        partitions: Partitions,
        note_error: Callable[[KafkaError], None] = lambda _: None,
    ) -> None:
        self.consumer = consumer
        self.note_error = note_error
        self.partitions = partitions
        self.topics: list[str] = []
        self.assignments = 0
        """How often the group has assigned partitions to this worker."""
        self.member_metadata = MemberMetadata(consumer)
        self._is_assigned = False
        """Whether the last callback was an assignment, also one without partitions."""

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to these topics; they have to exist."""
        self.topics = list(topics)
        self.join_group()

    def join_group(self) -> None:
        """Join the group, or again: when the group's leader does that, it rebalances."""
        self.consumer.subscribe(
            self.topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def consume(self, wait_s: float, envelopes_max: int = ENVELOPES_MAX) -> list[Consumed]:
        """The messages that are there, at most `envelopes_max`; waits up to `wait_s` for the first.
        Runs the group's callbacks.

        That a topic is not known is noted: its group reports a topic that stays away.
        """
        first = self.consumer.poll(wait_s)
        messages = [first] if first is not None else []
        if first is not None and envelopes_max > 1:
            messages += self.consumer.consume(envelopes_max - 1, 0)
        records: list[Consumed] = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)  # type: ignore[arg-type]  # see Consumed
            elif isinstance(translate(error, ""), TopicMissing):
                self.note_error(error)
            elif error.code() == KafkaError._BAD_MSG:
                raise ForeignRecord(
                    f"{message.topic()}-{message.partition()} is damaged at the broker:"
                    f" {error.str()}",
                    "Delete this partition's records (kafka-delete-records.sh, offset -1), then"
                    " start again: stage one writes again what is not copied",
                    topic=str(message.topic()),
                )
            else:
                raise _translate_error(error)
        return records

    def commit(self, offsets: Sequence[ClientTopicPartition]) -> None:
        """Commit for the group outside a transaction, as this member; TransactionFailed when it is
        not certain.

        A group that is rebalancing accepts no commits. That is ignored: the next owner of these
        partitions commits the offsets again.
        """
        commit_offsets(self.consumer, offsets)

    @property
    def is_member(self) -> bool:
        """Whether this worker is a member of the group, with or without partitions."""
        return parse_group_metadata(self.consumer.consumer_group_metadata())[0] >= 0

    def has_assignment(self) -> bool:
        """Whether this worker is a member that knows its partitions, if it has any: it is a member
        since the answer to JoinGroup, before it gets them.
        """
        return self.is_member and self._is_assigned

    def start_fetching(self) -> None:
        """Fetch the assigned partitions from their next offset on, also those that are fetched
        already.

        All are assigned again: a seek would do for most of them, but librdkafka refuses it for a
        partition that it does not fetch (librdkafka #2961).
        """
        self.consumer.assign(
            [
                ClientTopicPartition(*tp, partition.next_offset)
                for tp, partition in self.partitions.assigned.items()
            ]
        )

    def find_lag(self, tp: TopicPartition, next_offset: int, known_end: int) -> int | None:
        """The number of offsets up to `known_end` (negative when it is not known), or up to the end
        in the last fetch response, which can be later; None when none is known. Before the
        beginning of the partition is nothing to read any more.
        """
        begin, end = self.consumer.get_watermark_offsets(ClientTopicPartition(*tp), cached=True)
        end = max(end, known_end)
        return max(0, end - max(begin, next_offset)) if end >= 0 else None

    def close(self, is_planned: bool) -> None:
        """Leave the group. This is a static member: `close` would send nothing (KIP-345), and run a
        callback that waits while the client's part for the group ends, where a call fails or never
        returns (librdkafka 2.16, #4884). `unsubscribe` sends LeaveGroup, so at a planned end its
        partitions are free at once; while the group rebalances that is put off. Otherwise it stays
        a member, and the end of the process ends its client.
        """
        if not is_planned or not self._has_member_id():
            return
        self.consumer.unsubscribe()
        deadline = clock.monotonic() + LEAVE_S
        while self._has_member_id():
            if clock.monotonic() > deadline:
                return
            self.consumer.poll(LEAVE_POLL_S)
        self.consumer.close()

    def _has_member_id(self) -> bool:
        return bool(parse_group_metadata(self.consumer.consumer_group_metadata())[1])

    def _on_assign(self, consumer: Consumer, partitions: list[ClientTopicPartition]) -> None:
        """A static member that comes back gets its old assignment (KIP-345), also of topics that
        its settings no longer name: these are ignored.
        """
        topic_partitions = [
            TopicPartition(partition.topic, partition.partition)
            for partition in partitions
            if partition.topic in self.topics
        ]
        log.info("%s are assigned", topic_partitions)
        self.assignments += 1
        self._is_assigned = True
        self.member_metadata.on_assigned()
        REBALANCES.labels("assigned").inc()
        consumer.assign([])
        # these are all partitions
        self.partitions.on_revoked(self.partitions.list_all())
        self.partitions.on_assigned(topic_partitions, self.member_metadata.get_generation())

    def _on_revoke(self, consumer: Consumer, partitions: list[ClientTopicPartition]) -> None:
        self._remove_partitions("revoked", consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[ClientTopicPartition]) -> None:
        self._remove_partitions("lost", consumer, partitions)

    def _remove_partitions(
        self, event: str, consumer: Consumer, partitions: list[ClientTopicPartition]
    ) -> None:
        topic_partitions = [
            TopicPartition(partition.topic, partition.partition)
            for partition in partitions
            if partition.topic in self.topics
        ]
        log.info("%s are %s", topic_partitions, event)
        self._is_assigned = False
        REBALANCES.labels(event).inc()
        self.partitions.on_revoked(topic_partitions)
        failpoints.hit("two: partitions gone")
        consumer.unassign()


def _translate_error(error: KafkaError) -> Exception:
    """The error to raise for one that consuming an intermediate topic has returned."""
    translated = translate(error, "consuming an intermediate topic")
    return (
        translated
        if isinstance(translated, Fenced | AccessRefused | SettingsInvalid)
        else StageFailed(str(translated))
    )
