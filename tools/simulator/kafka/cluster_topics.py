"""The topics of a simulated cluster with their logs, and what operators and failures do to them.

Everything takes effect at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, Uuid

from tools.simulator.kafka.errors import BrokerError
from tools.simulator.kafka.log import Log
from tools.simulator.kafka.log_records import DATA, Record
from tools.simulator.kafka.topic_configs import DEFAULTS, DEFAULTS_3_9, merge_config
from tools.simulator.schedule import START_UNIX_S, Schedule


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


class ClusterTopics:
    """The part of a cluster that has the topics."""

    def __init__(self, schedule: Schedule, is_older: bool) -> None:
        self.schedule = schedule
        self.defaults = DEFAULTS_3_9 if is_older else DEFAULTS
        """The default topic settings; with `is_older`, those of Kafka 3.9."""
        self.topics: dict[str, Topic] = {}

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
