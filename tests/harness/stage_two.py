"""A loop of stage two without brokers: the envelopes that it consumes are given, and what it does
to the producer and to the group is written down.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import TopicPartition as ClientTopicPartition

from common.frontier import Frontier, decode
from common.liveness import Liveness
from common.metrics import DROPPED, RECORDS_IN, RECORDS_OUT
from common.records import Consumed, Headers
from common.routes import Route, TopicPartition
from common.settings import Settings, load
from deduplicator import compiled_path, kafka_destination
from deduplicator.destination import UNCOUNTED, Output
from deduplicator.frontiers.frontier_check import Surplus
from deduplicator.intermediate_consumer import ENVELOPES_MAX
from deduplicator.loop import Loop
from deduplicator.partition import Partition
from deduplicator.partitioner import Partitioner
from deduplicator.partitions import Partitions
from deduplicator.record_filter import RecordFilter
from deduplicator.transactions.transaction_failures import TransactionFailed
from deduplicator.unwrap import Record
from tests.harness.intermediate_records import EPOCH, HERE, IDENTITY, THERE
from tools.simulator import compiled_path_twin

ROUTE = Route(THERE.topic, THERE.topic, HERE.topic)
FIRST_FRONTIER = Frontier(-1, EPOCH, IDENTITY, 1, "id", -1, 0)


class EnvelopeReader:
    """As `Intermediate`, over these messages; some are returned with each call."""

    def __init__(self, messages: Iterable[Consumed], partitions: Partitions) -> None:
        self.messages = list(messages)
        self.partitions = partitions
        self.next = 0
        self.consumed: list[int] = []
        """How many each call has returned."""
        self.fetched_again = 0
        self.member_metadata = self

    def consume(self, _: float, envelopes_max: int = ENVELOPES_MAX) -> list[Consumed]:
        """As `Intermediate.consume`."""
        messages = self.messages[self.next : self.next + envelopes_max]
        self.next += len(messages)
        self.consumed.append(len(messages))
        return messages

    def get(self) -> None:
        """As `MemberMetadata.get`."""

    def get_member_id(self) -> str:
        """As `MemberMetadata.get_member_id`."""
        return "member"

    def start_fetching(self) -> None:
        """As `Intermediate.start_fetching`."""
        self.fetched_again += 1
        for partition in self.partitions.assigned.values():
            position = partition.next_offset
            self.next = sum(message.offset() < position for message in self.messages)


class Producers:
    """As `ProducerPair`, its current producer, and the client of that: what a transaction has
    written is in `committed` when it is committed, with the offsets that were sent.
    """

    def __init__(self) -> None:
        self.client = self.current = self
        self.state = "ready"
        self.queue_size = 1_000_000
        """How many records fit before a poll."""
        self.queued = 0
        self.written: list[tuple[TopicPartition, Record]] = []
        self.envelopes: list[bytes] = []
        self.offsets: Sequence[ClientTopicPartition] = ()
        self.started: (
            tuple[list[tuple[TopicPartition, Record]], Sequence[ClientTopicPartition]] | None
        ) = None
        """What the commit that was started has."""
        self.committed: list[list[tuple[TopicPartition, Record]]] = []
        self.commits: list[dict[TopicPartition, tuple[int, Frontier]]] = []
        self.aborted = 0
        self.failures: deque[Exception] = deque()
        """Raised, one after the other, when commits are finished."""
        self.reported: list[Record] = []
        """Records for which a delivery report was requested."""

    def begin(self) -> Producers:
        """As `ProducerPair.begin`."""
        self.state, self.written = "open", []
        return self

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        on_delivery: object = None,
        _: None = None,
        timestamp: int = 0,
        headers: Headers | None = None,
    ) -> None:
        """As `Producer.produce`."""
        if self.queued == self.queue_size:
            raise BufferError
        self.queued += 1
        record = key, value, headers, timestamp
        self.written.append((TopicPartition(topic, partition), record))
        if on_delivery is not None:
            self.reported.append(record)

    def poll(self, _: float) -> int:
        """As `Producer.poll`."""
        self.queued = 0
        return 0

    def check_deadline(self, _: str) -> None:
        """As `TransactionalProducer.check_deadline`."""

    def send_offsets(self, offsets: Sequence[ClientTopicPartition], _: object) -> None:
        """As `TransactionalProducer.send_offsets`."""
        self.offsets = offsets

    def flush(self) -> None:
        """As `TransactionalProducer.flush`."""

    def start_commit(self) -> None:
        """As `ProducerPair.start_commit`."""
        assert self.started is None
        self.state, self.started = "committing", (self.written, self.offsets)

    def finish_commit(self) -> None:
        """As `ProducerPair.finish_commit`."""
        started, self.started = self.started, None
        if started is None:
            return
        if self.state == "committing":
            self.state = "ready"
        if self.failures:
            raise self.failures.popleft()
        written, offsets = started
        self.committed.append(written)
        self.commits.append(
            {
                TopicPartition(tp.topic, tp.partition): (tp.offset, decode(tp.metadata))
                for tp in offsets
            }
        )

    def abort(self) -> bool:
        """As `TransactionalProducer.abort`."""
        self.aborted += self.state == "open"
        self.state = "ready"
        return True

    def close(self) -> None:
        """As `ProducerPair.close`."""
        self.abort()

    def initialise(self) -> None:
        """As `ProducerPair.initialise`."""

    def list_records(self) -> list[Record]:
        """All that was committed, in order."""
        return [record for transaction in self.committed for _, record in transaction]


def describe_config(_: str) -> dict[str, Any]:
    """As of a destination topic with the defaults."""
    defaults = {"max.message.bytes": "1048588", "message.timestamp.type": "CreateTime"}
    return {name: SimpleNamespace(value=value) for name, value in defaults.items()}


def use_compiled_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Envelopes are forwarded, as by `compiled_path.c`, to a client whose records can be looked
    at.
    """
    monkeypatch.setattr(compiled_path, "forward", compiled_path_twin.forward)
    monkeypatch.setattr(kafka_destination, "Producer", Producers)


class Starter:
    """As `PartitionStarter`: a partition is started where it was committed last."""

    def __init__(
        self, producers: Producers, frontier: Frontier, partitioner: Partitioner | None
    ) -> None:
        self.producers = producers
        self.frontier = frontier
        self.partitioner = partitioner
        self.known: list[dict[TopicPartition, Frontier]] = []
        self.consumer_group = self

    def is_assigned(self, *_: object) -> bool:
        """As `WorkerGroup.is_assigned`."""
        return True

    def start_partitions(
        self, topic_partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, Frontier]
    ) -> list[Partition]:
        """As `PartitionStarter.start_partitions`."""
        self.known.append(dict(known))
        commits = self.producers.commits
        state = commits[-1][HERE] if commits else (0, self.frontier)
        sent = len(self.producers.list_records())
        output = UNCOUNTED if self.partitioner else Output(-1, sent)
        return [
            Partition(tp, ROUTE, *state, output, partitioner=self.partitioner)
            for tp in topic_partitions
        ]

    def on_revoked(self) -> None:
        """Nothing was waited for."""


class Copy:
    """A loop with one partition, HERE, and everything that it works with."""

    def __init__(
        self,
        messages: Iterable[Consumed],
        frontier: Frontier = FIRST_FRONTIER,
        settings: Mapping[str, str] | None = None,
        record_filter: RecordFilter | None = None,
        partitioner: Partitioner | None = None,
        surplus: Surplus | None = None,
    ) -> None:
        self.counted_before = _count_records()
        self.partitions = Partitions()
        self.reader = EnvelopeReader(messages, self.partitions)
        self.producers = Producers()
        output = UNCOUNTED if partitioner else Output(-1, 0)
        self.partitions.start([Partition(HERE, ROUTE, 0, frontier, output, surplus, partitioner)])
        self.starter = Starter(self.producers, frontier, partitioner)
        self.destination = kafka_destination.KafkaDestination(
            cast(Any, self.producers), cast(Any, None), describe_config, is_compiled=True
        )
        self.loop = Loop(
            load_settings(settings),
            {HERE.topic: ROUTE},
            self.partitions,
            cast(Any, self.reader),
            cast(Any, self.starter),
            self.destination,
            Liveness("deduplicator"),
            record_filter,
        )

    def run_rounds(self, count: int = 1) -> None:
        """Rounds, and the answers to their commits."""
        for _ in range(count):
            self.loop.run_round(finish=True)

    def fail_round(self) -> None:
        """A round whose commit fails: the partition is started again."""
        self.producers.failures.append(TransactionFailed("no answer"))
        self.run_rounds()

    def count_records(self) -> dict[str, float]:
        """How many went in, went out, and were dropped, by reason; without zeros."""
        counted = _count_records()
        counted.subtract(self.counted_before)
        return {name: count for name, count in counted.items() if count}

    @property
    def frontier(self) -> Frontier:
        """As it was committed last."""
        return self.producers.commits[-1][HERE][1]

    @property
    def position(self) -> int:
        """In the intermediate partition, as it was committed last."""
        return self.producers.commits[-1][HERE][0]


def _count_records() -> Counter[str]:
    """By all loops of this process."""
    counted = Counter[str]()
    for name, metric in (("in", RECORDS_IN), ("out", RECORDS_OUT), ("", DROPPED)):
        for sample in (sample for family in metric.collect() for sample in family.samples):
            if sample.name.endswith("_total"):
                counted[name or sample.labels["reason"]] += int(sample.value)
    return counted


def load_settings(changes: Mapping[str, str] | None = None) -> Settings:
    """Of a copy of one topic."""
    return load(
        {
            "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
            "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
            "REO_SOURCE_TOPIC": "t",
            **(changes or {}),
        }
    )
