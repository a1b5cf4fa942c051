"""The sink of stage one alone, on a real Spark: runs of a plan that a test makes, and what they
have written to the intermediate topic, as Python reads it (`common.envelope`).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyspark import SparkContext
from pyspark.sql import SparkSession

from common import envelope, routes
from common.envelope import EnvelopeRecord, Head
from common.kafka.topics import Topic
from common.routes import Route
from common.settings import load
from replicator import query
from replicator.runs.run import Plan, Query
from replicator.spark import session
from tests.harness.copy_judge import Record
from tests.harness.kafka import COPY_S, Clusters, make_record, until
from tests.harness.service import build_environment
from tools import envelope_encoder

IDENTITY = "0123456789abcdef"
LIMIT = 1_048_588
"""max.message.bytes of a broker that nobody has told otherwise."""
SLOTS = 8
SILENCE_S = 60
EPOCHS = itertools.count(1)
"""In a JVM a run has a higher epoch than those before it."""


@contextlib.contextmanager
def start_spark(clusters: Clusters, **settings: str) -> Iterator[SparkSession]:
    """Stage one's own session, in this process; its JVM is ended at the end."""
    spark = session.start_session(load(build_environment(clusters, "any", settings)), SLOTS // 2)
    try:
        yield spark
    finally:
        gateway = SparkContext._gateway
        assert gateway is not None
        process = gateway.proc
        process.kill()
        process.wait()
        with contextlib.suppress(Exception):
            gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None


@dataclass
class SinkRuns:
    """Runs of one topic, each with an epoch of its own."""

    spark: SparkSession
    clusters: Clusters
    topic: str
    settings: Mapping[str, str] = field(default_factory=dict)
    limit: int = LIMIT
    epoch: int = 0
    known: dict[int, list[Envelope]] = field(default_factory=dict)

    @property
    def intermediate_topic(self) -> str:
        """Where envelopes go."""
        return f"{self.topic}-proxy"

    def create(self, partitions: int, limit: int | None = None, **config: str) -> None:
        """The source topic with this configuration, and the intermediate topic; `limit` is its
        max.message.bytes if that is not what the plan says.
        """
        self.clusters.source.create(self.topic, partitions, **config)
        self.clusters.destination.create(
            self.intermediate_topic, partitions, max_message_bytes=str(limit or self.limit)
        )

    def start(self, starts: Mapping[int, int], **settings: str) -> Query:
        """Begin a run at these source offsets."""
        self.epoch = next(EPOCHS)
        return query.start_query(self.spark, self.plan(starts, **settings))

    def plan(self, starts: Mapping[int, int], **settings: str) -> Plan:
        """The plan of a run."""
        route = Route(self.topic, self.topic, self.intermediate_topic)
        return Plan(
            epoch=self.epoch,
            settings=load(
                build_environment(self.clusters, self.topic, {**self.settings, **settings})
            ),
            sources={route: Topic(self.topic, "id", "cluster", len(starts))},
            identities={route: IDENTITY},
            start_offsets={
                routes.TopicPartition(self.intermediate_topic, partition): offset
                for partition, offset in starts.items()
            },
            message_bytes_max={self.intermediate_topic: self.limit},
        )

    def copy_all(self, starts: Mapping[int, int], **settings: str) -> None:
        """A run that reads what is there and ends."""
        running = self.start(starts, stop_at_end="true", **settings)
        until(lambda: not running.isActive, "the run has ended", COPY_S)
        assert running.exception() is None, running.exception()

    def read(self) -> dict[int, list[Envelope]]:
        """All envelopes on the intermediate topic, by partition and in order; each is read once."""
        address = self.clusters.destination.address
        ends = self.clusters.destination.end_offsets(self.intermediate_topic)
        for partition, end in ends.items():
            known = self.known.setdefault(partition, [])
            known += read_envelopes(
                address, self.intermediate_topic, partition, range(len(known), end)
            )
        return {partition: list(self.known[partition]) for partition in ends}

    def read_run(self, epoch: int | None = None) -> dict[int, list[Envelope]]:
        """Those of one run, of the newest by default."""
        return {
            partition: [each for each in envelopes if each.head.epoch == (epoch or self.epoch)]
            for partition, envelopes in self.read().items()
        }

    def find_starts(self) -> dict[int, int]:
        """The beginning of every partition of the source."""
        return dict.fromkeys(self.clusters.source.end_offsets(self.topic), 0)

    def write(self, begin: int, end: int, size: int = 100) -> None:
        """Write records to all partitions of the source in turn."""
        partitions = self.clusters.source.partitions(self.topic)
        self.clusters.source.write(
            self.topic, [(n % partitions, make_record(n, size)) for n in range(begin, end)]
        )

    def wait_for_end(self) -> dict[int, list[Envelope]]:
        """The envelopes, when all that is at the source was written or left out."""
        return self.wait_until_written(self.clusters.source.end_offsets(self.topic))

    def find_problems(self, kept: Any = None) -> list[str]:
        """What the envelopes say that is not so, and where those of the newest run, in order, leave
        a gap or end before the source does; `kept` says which records `filter.sql` keeps.
        """
        problems = []
        for partition, envelopes in self.read().items():
            visible = read_visible(self.clusters.source.address, self.topic, partition)
            of_run = [each for each in envelopes if each.head.epoch == self.epoch]
            problems += [*find_untrue(envelopes, visible, kept), *find_gaps(of_run)]
            last = max((each.head.through for each in of_run), default=-1)
            if visible and last < visible[-1][0]:
                problems.append(f"partition {partition} ends at {last}, not at {visible[-1][0]}")
        return problems

    def wait_until_written(self, source_ends: Mapping[int, int]) -> dict[int, list[Envelope]]:
        """The envelopes, when those of this epoch reach these source offsets."""

        def read() -> dict[int, list[Envelope]] | None:
            envelopes = self.read()
            is_there = all(
                any(e.head.epoch == self.epoch and e.head.through >= end - 1 for e in envelopes[p])
                for p, end in source_ends.items()
            )
            return envelopes if is_there else None

        return until(read, f"epoch {self.epoch} is written up to {dict(source_ends)}", COPY_S)


@dataclass
class Envelope:
    """One on the intermediate topic."""

    value: bytes
    head: Head
    records: list[EnvelopeRecord]


def read_visible(address: str, topic: str, partition: int) -> list[tuple[int, Record]]:
    """The records that a `read_committed` reader sees, with their offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "sink",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 100_000_000,
        }
    )
    records: list[tuple[int, Record]] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message: Any = consumer.poll(SILENCE_S)
            assert message is not None, f"{topic}-{partition} does not answer"
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return records
            headers = tuple(message.headers() or ())
            timestamp_ms = message.timestamp()[1]
            records.append(
                (message.offset(), Record(message.key(), message.value(), headers, timestamp_ms))
            )
    finally:
        consumer.close()


def read_envelopes(address: str, topic: str, partition: int, offsets: range) -> Iterator[Envelope]:
    """Each is checked: no key, no headers, and the bytes that the Python writer makes of it."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "sink", "fetch.message.max.bytes": 100_000_000}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, offsets.start)])
        for offset in offsets:
            message: Any = consumer.poll(SILENCE_S)
            assert message is not None, f"{topic}-{partition} has nothing at {offset}"
            assert message.error() is None, message.error()
            assert (message.offset(), message.key(), message.headers()) == (offset, None, None)
            value = message.value()
            head = envelope.parse_head(value)
            records = envelope.read_records(value, head)
            assert envelope_encoder.encode(head, records) == value, "Python writes other bytes"
            yield Envelope(value, head, records)
    finally:
        consumer.close()


def find_untrue(
    envelopes: Sequence[Envelope], visible: Sequence[tuple[int, Record]], kept: Any = None
) -> list[str]:
    """What envelopes say that is not so, of a partition with these records by source offset; `kept`
    says which of them `filter.sql` keeps.
    """
    problems = []
    for each in envelopes:
        within = [
            (offset, record)
            for offset, record in visible
            if each.head.after < offset <= each.head.through
        ]
        expected = [(offset, record) for offset, record in within if kept is None or kept(record)]
        if [(r.source_offset, to_record(r)) for r in each.records] != expected:
            problems.append(f"{each.head}: not the records of its stretch")
        if each.head.has_left_out != (len(expected) < len(within)):
            problems.append(f"{each.head}: left out {len(within) - len(expected)}")
    return problems


def find_gaps(envelopes: Sequence[Envelope]) -> list[str]:
    """Where an envelope does not begin where the one before it ended."""
    return [
        f"{before.head} and then {after.head}"
        for before, after in itertools.pairwise(envelopes)
        if before.head.through != after.head.after
    ]


def to_record(record: EnvelopeRecord) -> Record:
    """As the judge has records."""
    return Record(
        record.key,
        record.value,
        tuple((name.decode(), own) for name, own in record.headers),
        record.timestamp_ms,
    )
