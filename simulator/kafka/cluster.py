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

from simulator.kafka.config import DEFAULTS, DEFAULTS_3_9, merge_config
from simulator.kafka.errors import BrokerError
from simulator.kafka.groups import Group
from simulator.kafka.log import ABORT, COMMIT, DATA, Log, NewRecord, Record, Writer
from simulator.kafka.sizes import batch_bytes
from simulator.kafka.transactions import Coordinator
from simulator.schedule import START_UNIX_S, Schedule, Signal

OFFSETS_TOPIC = "__consumer_offsets"


class Topic:
    """A topic with its id. A recreated topic is another object."""

    __slots__ = ("config", "id", "logs", "name", "overrides")

    def __init__(
        self,
        name: str,
        topic_id: Uuid,
        partitions: int,
        overrides: Mapping[str, str],
        config: dict[str, str],
    ) -> None:
        self.name = name
        self.id = topic_id
        self.overrides = dict(overrides)
        """The topic's own settings (DYNAMIC_TOPIC_CONFIG)."""
        self.config = config
        self.logs = [Log() for _ in range(partitions)]


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
        self.cluster_id = (
            cluster_id or urlsafe_b64encode(schedule.random.randbytes(16)).decode()[:22]
        )
        self.faults = faults
        self.defaults = DEFAULTS_3_9 if is_older else DEFAULTS
        """The default topic settings; with `is_older`, those of Kafka 3.9."""
        self.is_down = False
        self.record_delay_s = 0.0
        """How long a transactional producer waits for each of its records, as with a quota
        (KIP-124).
        """
        self.down_since = 0.0
        self.up = Signal(schedule)
        """Notified when the cluster is up again."""
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}
        self.transactions = Coordinator(self)
        self.address = name
        self.brokers = 1
        """The number of brokers in its answers: the limit of replication factors."""
        self.initial_rebalance_delay_s = 0.0
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
        return log.append(records, now_ms if is_appended_at else None, writer), (
            now_ms if is_appended_at else -1
        )

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
        found.add_pending(writer.producer_id, offsets)

    # ---- operator

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

    def delete_topic(self, name: str) -> None:
        """Delete a topic and the offsets that groups have committed for it."""
        topic = self.topics.pop(name, None)
        if topic is None:
            raise BrokerError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        for group in self.groups.values():
            group.remove_topic(name)
        for log in topic.logs:
            log.notify_watchers()

    def add_partitions(self, name: str, total: int, validate_only: bool = False) -> None:
        """Increase the number of partitions to `total`."""
        topic = self.topics[name]
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

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Delete the records below an offset, or all with -1. Returns the new log start offset."""
        return self.log(topic, partition).delete(before)

    def apply_retention(self, topic: str) -> None:
        """Delete records older than retention.ms from the beginning of each partition, but none of
        open transactions.
        """
        limit_ms = int(self.topics[topic].config["retention.ms"])
        for log in self.topics[topic].logs if limit_ms >= 0 else ():
            kept = next(
                (
                    record.offset
                    for record in log.records
                    if record.timestamp_ms >= self.now_ms() - limit_ms
                ),
                log.end,
            )
            log.delete(min(kept, log.last_stable_offset))

    def compact(self, topic: str, partition: int) -> int:
        """Keep only the newest stable record of each key, and remove aborted records. Returns how
        many records were removed.
        """
        log = self.log(topic, partition)
        stable_records = log.records[: log.index(log.last_stable_offset)]
        newest: dict[bytes | None, int] = {
            record.key: record.offset
            for record in stable_records
            if record.kind == DATA and record.offset not in log.aborted
        }
        removed_offsets = [
            record.offset
            for record in stable_records
            if record.kind == DATA
            and (record.offset in log.aborted or newest.get(record.key) != record.offset)
        ]
        log.remove(removed_offsets)
        return len(removed_offsets)

    def truncate(
        self, topic: str, partition: int, count: int, is_same_epoch: bool = False
    ) -> list[Record]:
        """Lose the newest records, as in an unclean leader election or when a disk is restored.
        Returns the lost records.
        """
        log = self.log(topic, partition)
        lost_records = log.records[log.index(max(log.begin, log.end - count)) :]
        log.truncate(count, is_same_epoch)
        return lost_records

    def change_leaders(self, topic: str) -> None:
        """Change the leader of every partition without loss. A connected client must refresh its
        leader epochs.
        """
        for log in self.topics[topic].logs:
            log.change_leader()

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
            self.groups[name].offsets.clear()

    def downtime_s(self) -> float:
        """For how long the cluster has been down; 0 while it is up."""
        return self.schedule.now - self.down_since if self.is_down else 0.0

    def set_down(self, is_down: bool) -> None:
        """While the cluster is down, no request arrives. Its timers go on."""
        if is_down and not self.is_down:
            self.down_since = self.schedule.now
        self.is_down = is_down
        if not is_down:
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
