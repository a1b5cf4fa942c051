"""A consumer's commits, as a member of a group or without one, and its lookups of offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_INVALID, KafkaError, Message, TopicPartition

from tools.simulator.kafka.errors import (
    BrokerError,
    ConnectionLost,
    RequestTimedOut,
    create_exception,
    create_topic_partition,
)
from tools.simulator.kafka.fetch import Fetcher
from tools.simulator.kafka.list_offsets import answer_list_offsets
from tools.simulator.kafka.membership import Membership
from tools.simulator.kafka.network import FOREVER_S, Network


class ConsumerOffsets(Fetcher):
    """The part of a consumer that commits, and that looks up offsets."""

    def __init__(self, network: Network, options: dict[str, Any]) -> None:
        super().__init__(network, options)
        self.group_id = str(options["group.id"])
        self.membership: Membership | None = None
        self.is_closed = False

    def committed(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """The committed offsets of the group. With read_committed, wait until pending offsets are
        stable.
        """
        self.check_open()
        deadline = self.schedule.now + (timeout if timeout >= 0 else FOREVER_S)
        keys = [(partition.topic, partition.partition) for partition in partitions]
        while True:
            try:
                answers = self.request(
                    "OffsetFetch",
                    lambda: self.cluster.find_group(self.group_id).fetch(
                        keys, self.is_read_committed
                    ),
                    deadline - self.schedule.now,
                )
            except (RequestTimedOut, ConnectionLost):
                raise create_exception(KafkaError._TIMED_OUT) from None
            if not any(
                code == KafkaError.UNSTABLE_OFFSET_COMMIT for _, _, code in answers.values()
            ):
                return [
                    create_topic_partition(
                        *key, offset if offset >= 0 else OFFSET_INVALID, metadata or None, code
                    )
                    for key, (offset, metadata, code) in ((key, answers[key]) for key in keys)
                ]
            if self.schedule.now + self.backoff_s >= deadline:
                self.schedule.sleep(deadline - self.schedule.now)
                raise create_exception(KafkaError._TIMED_OUT)
            self.schedule.sleep(self.backoff_s)

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit offsets of the group; as its member, if this consumer is one."""
        self.check_open()
        if message is not None:
            offsets = [
                TopicPartition(
                    str(message.topic()),
                    int(message.partition() or 0),
                    int(message.offset() or 0) + 1,
                )
            ]
        own_positions = [
            TopicPartition(*key, state.position)
            for key, state in self.partition_states.items()
            if state.position >= 0
        ]
        positions = own_positions if offsets is None else offsets
        if not positions:
            raise create_exception(KafkaError._NO_OFFSET)
        if self.membership and self.membership.is_fatal:
            raise create_exception(KafkaError._FATAL)
        generation, member_id, instance_id = self.member()
        offsets_to_commit = {
            (position.topic, position.partition): (position.offset, position.metadata or "")
            for position in positions
        }

        def execute() -> dict[tuple[str, int], int]:
            return self.cluster.group(self.group_id).commit(
                offsets_to_commit, generation, member_id, instance_id
            )

        if asynchronous:
            self.network.send(self.cluster, "OffsetCommit", execute, 60.0, lambda *_: None)
            return None
        try:
            codes = self.request("OffsetCommit", execute, 60.0)
        except BrokerError as error:
            raise create_exception(error.code) from None
        except (RequestTimedOut, ConnectionLost):
            raise create_exception(KafkaError._TIMED_OUT) from None
        if codes and all(codes.values()):
            raise create_exception(next(iter(codes.values())))
        return [
            create_topic_partition(
                position.topic,
                position.partition,
                position.offset,
                position.metadata,
                codes[position.topic, position.partition],
            )
            for position in positions
        ]

    def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """Offsets by timestamp; also OFFSET_END and OFFSET_BEGINNING."""
        self.check_open()
        asked = [
            (partition.topic, partition.partition, partition.offset) for partition in partitions
        ]
        try:
            answers = self.request(
                "ListOffsets",
                lambda: [
                    answer_list_offsets(self.cluster, *one, self.is_read_committed) for one in asked
                ],
                timeout,
            )
        except (RequestTimedOut, ConnectionLost):
            raise create_exception(
                KafkaError._TIMED_OUT, "Failed to get offsets: Local: Timed out"
            ) from None
        return [
            create_topic_partition(
                topic, partition, answer.offset, None, answer.code, answer.leader_epoch
            )
            for (topic, partition, _), answer in zip(asked, answers, strict=True)
        ]

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """The low and high watermark; with `cached`, those of the last fetch."""
        self.check_open()
        key = partition.topic, partition.partition
        if cached:
            state = self.partition_states.get(key)
            return (state.begin, state.end) if state else (OFFSET_INVALID, OFFSET_INVALID)
        try:
            return self.request(
                "ListOffsets",
                lambda: (
                    self.cluster.log(*key).begin,
                    self.resolve_logical_offset(self.cluster.log(*key), -1),
                ),
                timeout,
            )
        except (RequestTimedOut, ConnectionLost):
            raise create_exception(KafkaError._TIMED_OUT) from None
        except BrokerError as error:
            raise create_exception(
                KafkaError._UNKNOWN_PARTITION
                if error.code == KafkaError.UNKNOWN_TOPIC_OR_PART
                else error.code
            ) from None

    def member(self) -> tuple[int, str, str | None]:
        """Generation, member id and instance id; empty values when this is no member."""
        membership = self.membership
        return (
            (membership.generation, membership.member_id, membership.instance_id)
            if membership
            else (-1, "", None)
        )

    def check_open(self) -> None:
        """RuntimeError when the consumer is closed."""
        if self.is_closed:
            raise RuntimeError("Consumer closed")
