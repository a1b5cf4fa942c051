"""One cluster: its topics, groups and transactions, the responses of its brokers, and what
operators and failures do to it.

There is one broker. The requests of clients come through `simulator.kafka.network`. The calls under
"operator" take effect at once; they are for fault injection, for load generators, and for the
simulated Spark, which writes as a plain producer.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, Uuid

from tools.simulator.kafka.batch_sizes import batch_bytes
from tools.simulator.kafka.errors import BrokerError
from tools.simulator.kafka.groups import Group
from tools.simulator.kafka.log import Log
from tools.simulator.kafka.log_records import ABORT, COMMIT, NewRecord, Writer
from tools.simulator.kafka.topics import DEFAULTS, DEFAULTS_3_9, Topic, merge_config
from tools.simulator.kafka.transaction_coordinator import Coordinator
from tools.simulator.schedule import START_UNIX_S, Schedule, Signal

OFFSETS_TOPIC = "__consumer_offsets"


class Cluster:
    """The state of a cluster."""

    def __init__(
        self,
        schedule: Schedule,
        name: str,
        cluster_id: str = "",
        faults: Any = None,
        is_older: bool = False,
    ) -> None:
        self.schedule = schedule
        self.name = name
        self.defaults = DEFAULTS_3_9 if is_older else DEFAULTS
        """The default topic settings; with `is_older`, those of Kafka 3.9."""
        self.topics: dict[str, Topic] = {}
        self.cluster_id = (
            cluster_id or urlsafe_b64encode(schedule.random.randbytes(16)).decode()[:22]
        )
        self.faults = faults
        self.is_down = False
        self.record_delay_s = 0.0
        """How long a transactional producer waits for each of its records, as with a quota
        (KIP-124).
        """
        self.producer_queue_records = 0
        """The limit of a transactional producer's queue, if it is not that of its options: one that
        its application fills faster than it sends.
        """
        self.down_since = 0.0
        self.up = Signal(schedule)
        """Notified when the cluster is up again."""
        self.groups: dict[str, Group] = {}
        self.transactions = Coordinator(self)
        self.address = name
        self.brokers = 1
        """The number of brokers in its answers: the limit of replication factors."""
        self.initial_rebalance_delay_s = 0.0
        self.outages = 0
        """How often it has come back."""
        self.create_topic(OFFSETS_TOPIC, 4)

    def now_ms(self) -> int:
        """The brokers' clock."""
        return int((START_UNIX_S + self.schedule.now) * 1000)

    def find_log(self, topic: str, partition: int) -> Log | None:
        """The log of a partition, or None."""
        found = self.topics.get(topic)
        return (
            found.logs[partition]
            if found is not None and 0 <= partition < len(found.logs)
            else None
        )

    def log(self, topic: str, partition: int) -> Log:
        """The log of a partition. BrokerError when it does not exist."""
        found = self.find_log(topic, partition)
        if found is None:
            raise BrokerError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return found

    def topic(self, name: str) -> Topic:
        """A topic. BrokerError when it does not exist."""
        if name not in self.topics:
            raise BrokerError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return self.topics[name]

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic, with a new id."""
        if name in self.topics:
            raise BrokerError(KafkaError.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        most, least = (self.schedule.random.getrandbits(62) + 1 for _ in range(2))
        self.topics[name] = Topic(
            name,
            Uuid(most, least),
            partitions,
            config or {},
            merge_config(self.defaults, config or {}),
        )
        return self.topics[name]

    def group(self, name: str) -> Group:
        """The group, created with the first request that needs it."""
        found = self.groups.get(name)
        if found is None:
            found = self.groups[name] = Group(self, name)
        return found

    def find_group(self, name: str) -> Group:
        """The group, or an empty one that is not stored."""
        return self.groups.get(name) or Group(self, name)

    def produce(
        self,
        topic: str,
        partition: int,
        records: list[NewRecord],
        writer: Writer,
        transactional_id: str | None = None,
    ) -> tuple[int, int]:
        """Produce: the first offset, and the broker's timestamp or -1."""
        log = self.log(topic, partition)
        config = self.topics[topic].config
        if batch_bytes(records) > int(config["max.message.bytes"]):
            raise BrokerError(KafkaError.MSG_SIZE_TOO_LARGE)
        is_compacted = "compact" in config["cleanup.policy"]
        if is_compacted and any(record.key is None for record in records):
            raise BrokerError(KafkaError.INVALID_RECORD)
        now_ms = self.now_ms()
        is_appended_at = config["message.timestamp.type"] == "LogAppendTime"
        if not is_appended_at:
            oldest, newest = (
                now_ms - int(config["message.timestamp.before.max.ms"]),
                now_ms + int(config["message.timestamp.after.max.ms"]),
            )
            if any(not oldest <= record.timestamp_ms <= newest for record in records):
                raise BrokerError(KafkaError.INVALID_TIMESTAMP)
        if transactional_id is not None and writer.producer_id not in log.open_transactions:
            self.transactions.check_open(
                transactional_id, writer.producer_id, writer.epoch, (topic, partition)
            )
        end = log.end
        first = log.append(records, now_ms if is_appended_at else None, writer)
        if first < end:  # it came twice (`UnifiedLog.append`)
            return first, max(record.timestamp_ms for record in records)
        return first, now_ms if is_appended_at else -1

    def commit_in_transaction(
        self,
        transactional_id: str,
        writer: Writer,
        group: str,
        offsets: Mapping[tuple[str, int], tuple[int, str]],
        member: tuple[int, str, str | None],
    ) -> None:
        """TxnOffsetCommit."""
        for partition_key in offsets:
            self.log(*partition_key)
        found = self.group(group)
        found.check_member(*member, is_transactional=True)
        self.transactions.check_open(transactional_id, writer.producer_id, writer.epoch, group)
        found.offsets.add_pending(writer.producer_id, offsets)

    # ---- operator

    def add_partitions(self, name: str, total: int, validate_only: bool = False) -> None:
        """Increase the number of partitions to `total`."""
        topic = self.topic(name)
        if total <= len(topic.logs):
            raise BrokerError(
                KafkaError.INVALID_PARTITIONS,
                f"The topic {name} currently has {len(topic.logs)} partition(s); "
                f"{total} would not be an increase.",
            )
        if not validate_only:
            topic.logs += [Log() for _ in range(total - len(topic.logs))]

    def alter_config(self, name: str, **config: str | None) -> None:
        """Change settings of a topic. Underscores stand for dots; None removes a setting."""
        topic = self.topics[name]
        for key, value in config.items():
            topic.overrides.pop(key.replace("_", "."), None)
            if value is not None:
                topic.overrides[key.replace("_", ".")] = value
        topic.config = merge_config(self.defaults, topic.overrides)

    def delete_topic(self, name: str, is_known_to_coordinators: bool = True) -> None:
        """Delete a topic and, unless the coordinators learn of it later (`forget_offsets`), the
        offsets that groups have committed for it.
        """
        topic = self.topics.pop(name, None)
        if topic is None:
            raise BrokerError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        if is_known_to_coordinators:
            self.forget_offsets(name)
        for log in topic.logs:
            log.notify_watchers()

    def forget_offsets(self, topic: str) -> None:
        """The coordinators learn that a topic was deleted: they know it by its name, and delete all
        offsets that groups have on it by now.
        """
        for group in self.groups.values():
            group.offsets.remove_topic(topic)

    def append(
        self, topic: str, partition: int, records: Iterable[NewRecord | tuple[Any, ...]]
    ) -> int:
        """Append as a plain producer. Records are (key, value, headers, timestamp in ms). Returns
        the first offset; BrokerError as for a producer.
        """
        return self.produce(topic, partition, [NewRecord(*record) for record in records], Writer())[
            0
        ]

    def open_transaction(self) -> Transaction:
        """Open a transaction of a load generator."""
        return Transaction(self, self.transactions.new_producer_id())

    def delete_group(self, name: str) -> None:
        """Delete a group and its offsets."""
        self.groups.pop(name, None)

    def expire_offsets(self, name: str) -> None:
        """Delete all offsets of a group that are not pending in a transaction."""
        if name in self.groups:
            self.groups[name].offsets.committed.clear()

    def downtime_s(self) -> float:
        """For how long the cluster has been down; 0 while it is up."""
        return self.schedule.now - self.down_since if self.is_down else 0.0

    def set_down(self, is_down: bool) -> None:
        """While the cluster is down, no request arrives. Its timers go on."""
        if is_down and not self.is_down:
            self.down_since = self.schedule.now
        self.is_down = is_down
        if not is_down:
            self.outages += 1
            self.up.notify()
            for group in self.groups.values():
                group.restart_sessions()


class Transaction:
    """A transaction of a load generator, written without a client."""

    def __init__(self, cluster: Cluster, producer_id: int) -> None:
        self.cluster = cluster
        self.producer_id = producer_id
        self.sequences: dict[tuple[str, int], int] = {}

    def append(
        self, topic: str, partition: int, records: Iterable[NewRecord | tuple[Any, ...]]
    ) -> int:
        """Append records. Returns the first offset."""
        new = [NewRecord(*record) for record in records]
        sequence = self.sequences.get((topic, partition), 0)
        self.sequences[topic, partition] = sequence + len(new)
        return self.cluster.produce(
            topic, partition, new, Writer(self.producer_id, 0, sequence, True)
        )[0]

    def commit(self, after_s: float = 0.0) -> None:
        """Commit: the markers are written within `after_s`."""
        self._end(COMMIT, after_s)

    def abort(self, after_s: float = 0.0) -> None:
        """Abort: the markers are written within `after_s`."""
        self._end(ABORT, after_s)

    def _end(self, kind: int, after_s: float) -> None:
        for partition_key in self.sequences:
            if after_s:
                self.cluster.schedule.call_later(
                    after_s * self.cluster.schedule.random.random(),
                    partial(self._write_marker, partition_key, kind),
                )
            else:
                self._write_marker(partition_key, kind)

    def _write_marker(self, partition_key: tuple[str, int], kind: int) -> None:
        log = self.cluster.find_log(*partition_key)
        if log and self.producer_id in log.open_transactions:
            log.append_marker(self.producer_id, 0, kind, self.cluster.now_ms())
