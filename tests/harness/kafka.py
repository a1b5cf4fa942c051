"""Helpers of the tests for Kafka: create topics, write and read records, list offsets; and `until`,
with which every test waits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from confluent_kafka import (
    IsolationLevel,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from common.kafka.cluster_metadata import read_cluster_id
from common.kafka.consumer_group import find_offsets_partition
from common.kafka.coordinator_client import IDLE_S
from tests.harness.admin_requests import call_with_retry, is_creation_accepted, try_to_list_offsets
from tests.harness.copy_judge import Partitions, Record, compare_partitions, read_topic
from tests.harness.producing import make_producer, produce_records
from tools.demo.broker import Broker
from tools.demo.fair_share import Limit

ROOT = Path(__file__).parents[2]
OTHER_JARS = {"3.9": ROOT / "jars" / "older", "4.4": ROOT / "jars" / "newer"}
"""Brokers of the oldest and of the newest line that the tests copy from and to
(`make broker-versions`).
"""
Value = TypeVar("Value")
PAUSE_S = 0.05
START_S = 60
"""Timeout of a condition that needs a start of Spark. Only a failing test waits this long: no test
sleeps for a fixed time.
"""
COPY_S = 120
"""Timeout of a copy of everything that the tests write, on a busy machine."""
MARKERS_S = 5
"""Timeout for the markers of a transaction that is committed or aborted; the shortest timeout of
a transaction in the tests is 12 s.
"""
UNFENCED = {"broker.session.timeout.ms": "600000"}
"""A broker that is never restarted stays registered although it stood still: one that is fenced
names no broker to its clients, and leads with new leader epochs afterwards.
"""
UNLIMITED_RETENTION = {"retention.ms": "-1"}


def find_jars(version: str) -> Path:
    """Of a broker of this line; AssertionError without them."""
    folder = OTHER_JARS[version]
    assert any(folder.glob(f"kafka_*-{version}*.jar")), (
        f"there is no broker of Kafka {version}: run `make broker-versions`"
    )
    return folder


def speed_up_jvms() -> None:
    """Make every JVM started from now on use the C1 compiler only: a test starts many JVMs, and
    none runs long enough to profit from C2.

    Measured on two cores: one kill of stage two, with start and judge, takes 19 s instead of 34.
    """
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")


def until(
    condition: Callable[[], Value | None],
    what: str,
    timeout_s: float = START_S,
    seen_last: Sequence[str] = (),
) -> Value:
    """Repeat the condition until its value is true, and return the value; AssertionError with
    `what` after `timeout_s` (`demo.fair_share`).
    """
    limit = Limit(timeout_s)
    while True:
        is_last = limit.is_over()  # before the condition, which this process may stand still after
        value = condition()
        if value:
            return value
        assert not is_last, f"not in {timeout_s} s: {what} (last seen: {seen_last or value!r})"
        time.sleep(PAUSE_S)


@dataclass
class Cluster:
    """A cluster of one broker, and the requests that tests send to it."""

    broker: Broker
    _admin: AdminClient | None = None
    _asked_at: float = 0.0

    @property
    def address(self) -> str:
        """For `bootstrap.servers`."""
        return self.broker.address

    @property
    def admin(self) -> AdminClient:
        """One admin client for all requests of one thread; a new one when it was idle. It may have
        lost its connection, and a group's coordinator (`common.kafka.coordinator_client`).
        """
        now = time.monotonic()
        if self._admin is None or now > self._asked_at + IDLE_S:
            self._admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        self._asked_at = now
        return self._admin

    def for_another_thread(self) -> Self:
        """The same cluster with a client of its own: with one client for two threads, responses
        were lost (confluent-kafka 2.16).
        """
        return replace(self, _admin=None)

    def create(self, topic: str, partitions: int, **config: str) -> str:
        """Create a topic without retention, so that it keeps records with old timestamps; return
        its name.
        """
        new_topic = NewTopic(
            topic,
            partitions,
            -1,
            config=UNLIMITED_RETENTION
            | {name.replace("_", "."): value for name, value in config.items()},
        )
        timed_out_topics: set[str] = set()
        until(
            lambda: is_creation_accepted(self.admin, new_topic, timed_out_topics),
            f"the cluster creates topic {topic}",
        )
        until(lambda: self.partitions(topic) == partitions, f"topic {topic} exists")
        self.end_offsets(topic)  # answered when each partition has a leader
        return topic

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until it does not exist."""
        self.admin.delete_topics([topic])[topic].result()
        until(lambda: self.partitions(topic) == 0, f"topic {topic} is deleted")

    def cluster_id(self) -> str:
        """Of the brokers."""
        return read_cluster_id(self.admin, START_S)

    def topic_id(self, topic: str) -> tuple[str, str]:
        """The cluster id and the topic id."""
        description = self.admin.describe_topics(TopicCollection([topic]))[topic].result()
        return self.cluster_id(), str(description.topic_id)

    def partitions(self, topic: str) -> int:
        """The number of partitions; 0 when the topic does not exist."""
        try:
            return len(
                call_with_retry(
                    lambda: self.admin.describe_topics(TopicCollection([topic]))[topic]
                ).partitions
            )
        except KafkaException:
            return 0

    def config(self, topic: str) -> dict[str, str]:
        """A topic's configuration."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return {
            name: str(entry.value)
            for name, entry in self.admin.describe_configs([resource])[resource].result().items()
        }

    def end_offsets(self, topic: str, stable: bool = False) -> dict[int, int]:
        """The end offset of each partition; with `stable`, its last stable offset."""
        isolation = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
        return self._offsets(topic, OffsetSpec.latest(), isolation)

    def beginning_offsets(self, topic: str) -> dict[int, int]:
        """The first offset that each partition still holds."""
        return self._offsets(topic, OffsetSpec.earliest())

    def _offsets(
        self,
        topic: str,
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        partitions: int | None = None,
    ) -> dict[int, int]:
        """Repeat the request while a new partition has no leader."""
        requests = {
            TopicPartition(topic, partition): spec
            for partition in range(partitions or self.partitions(topic))
        }

        def list_offsets() -> list[tuple[int, int]] | None:
            return try_to_list_offsets(self.admin, topic, requests, isolation)

        return dict(until(list_offsets, f"the offsets of {topic}")) if requests else {}

    def count_offsets(self, topic: str, partitions: int | None = None) -> int:
        """The sum of the end offsets: an upper bound on the visible records. Markers, aborted and
        uncommitted records count too.

        `partitions` saves a request, for callers that must be fast.
        """
        return sum(self._offsets(topic, OffsetSpec.latest(), partitions=partitions).values())

    def has_no_open_transaction(self, topic: str) -> bool:
        """Whether a `read_committed` consumer reaches the end of the topic, and of the partition of
        `__consumer_offsets` that has the group of its copy: other groups are other tests'. The end
        offsets are listed first and may grow.
        """
        for name in (topic, "__consumer_offsets"):
            ends = self.end_offsets(name)
            stable = self.end_offsets(name, stable=True)
            of_group = find_offsets_partition(f"reo-{topic}", max(1, len(ends)))
            if any(
                stable[partition] < end
                for partition, end in ends.items()
                if name == topic or partition == of_group
            ):
                return False
        return True

    def wait_until_no_transaction_is_open(self, topic: str) -> bool:
        """Whether no transaction is open, now or when the markers of the last commit are written:
        long before an abandoned transaction times out.
        """
        limit = Limit(MARKERS_S)
        while True:
            is_last = limit.is_over()  # before the look, which this process may stand still after
            if self.has_no_open_transaction(topic):
                return True
            if is_last:
                return False
            time.sleep(PAUSE_S)

    def write(self, topic: str, records: Iterable[tuple[int, Record]], **options: Any) -> None:
        """Write records in order, each to its partition, and wait until all are delivered."""
        producer = self.producer(**options)
        produce_records(producer, topic, records)
        assert producer.flush(60) == 0

    def producer(self, **options: Any) -> Producer:
        """An idempotent producer."""
        return make_producer(self.address, options)

    def read(self, topic: str) -> Partitions:
        """All committed records, as the judge reads them."""
        return read_topic(self.address, topic)


@dataclass
class Clusters:
    """The source and the destination."""

    source: Cluster
    destination: Cluster

    def differences(self, topic: str, copy: str | None = None) -> list[str]:
        """The differences between a topic and its copy: empty when the copy is exact."""
        return compare_partitions(self.source.read(topic), self.destination.read(copy or topic))

    def wait_for_copy(self, topic: str, records: int, timeout_s: float = COPY_S) -> None:
        """Wait until the copy of a source with `records` visible records is exact; the judge reads
        both topics only when the copy has that many offsets.
        """
        last_differences: list[str] = []

        def is_exact() -> bool:
            if self.destination.count_offsets(topic) >= records:
                last_differences[:] = self.differences(topic)
                return not last_differences
            return False

        until(is_exact, f"{records} records of {topic} are copied", timeout_s, last_differences)


def make_record(number: int, size: int = 100) -> Record:
    """A record that is unique in its topic."""
    return Record(
        b"key-%d" % (number % 1000),
        b"%010d" % number + b"." * (size - 10),
        (("number", b"%d" % number),),
        1_700_000_000_000 + number,
    )


def make_records(numbers: Iterable[int], partitions: int) -> list[tuple[int, Record]]:
    """Unique records, assigned to the partitions in turn."""
    return [(number % partitions, make_record(number)) for number in numbers]
