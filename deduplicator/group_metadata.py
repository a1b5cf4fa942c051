"""What a member of the group commits with: its generation and id, by which a broker tells it from a
worker that was believed dead, or that has lost a partition to another one.

A rebalance does not always wait for the callback `Intermediate._on_revoke`: librdkafka joins again
by itself when a subscribed topic has new partitions, also while a callback waits for the next poll
(2.16, `rd_kafka_cgrp_metadata_update_check`). Then the client has a generation in which its
partitions may be another worker's. So offsets are sent with the generation in which the partitions
were assigned, and a broker refuses them in any later one. An assignment itself can be out of date
when its callback runs, and the generation a later one: so the coordinator is asked as well
(`WorkerGroup.is_assigned`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from common.errors import AccessRefused, Fenced, StageFailed, TopicsUnfit
from common.kafka import partition_offsets
from common.kafka.client_errors import translate
from deduplicator.transactions.transaction_failures import TransactionFailed

METADATA_MAGIC = b"CGMDv2:"
REBALANCING = frozenset(
    {KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID}
)


class MemberMetadata:
    """The group metadata of a consumer that is a member with the assignment that it knows."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self._when_assigned: bytes | None = None

    def on_assigned(self) -> None:
        """The group has assigned partitions; called inside its callback."""
        self._when_assigned = self.consumer.consumer_group_metadata()

    def get(self) -> bytes:
        """To send offsets with; StageFailed when it is not that of a member. A broker accepts
        offsets without generation and id from anybody (it is how simple consumers commit), so a
        worker that was believed dead could overwrite its successor's frontier.
        """
        metadata = self._when_assigned or self.consumer.consumer_group_metadata()
        check_membership(metadata)
        return metadata

    def get_generation(self) -> int:
        """In which the partitions were assigned; -1 before the first time."""
        return parse_group_metadata(self._when_assigned)[0] if self._when_assigned else -1

    def get_member_id(self) -> str:
        """Of the member to which the partitions were assigned; empty before the first time."""
        return parse_group_metadata(self._when_assigned)[1] if self._when_assigned else ""


def check_membership(metadata: bytes) -> None:
    """StageFailed when this group metadata is not that of a member."""
    generation, member_id = parse_group_metadata(metadata)
    if generation < 0 or not member_id:
        raise StageFailed(
            f"this worker is not a member of the group now (generation {generation}): the"
            " transaction is not committed"
        )


def commit_offsets(consumer: Consumer, offsets: Sequence[TopicPartition]) -> None:
    """Commit as a member, outside a transaction; TransactionFailed when it is not certain."""
    error = None
    for batch in partition_offsets.split_commit(offsets):
        try:
            answers = consumer.commit(offsets=list(batch), asynchronous=False) or []
            error = next((answer.error for answer in answers if answer.error is not None), None)
        except KafkaException as failed:
            error = failed.args[0]
        if error is not None:
            break
    if error is None or error.code() in REBALANCING:
        return
    translated = translate(error, "committing the offsets")
    raise (
        translated
        if isinstance(translated, Fenced | AccessRefused | TopicsUnfit)
        else TransactionFailed(str(translated))
    )


def parse_group_metadata(metadata: bytes) -> tuple[int, str]:
    """Generation and member id in librdkafka's serialised group metadata
    (rd_kafka_consumer_group_metadata_write).

    The format is: magic, generation (int32, host order), group id, NUL, member id, NUL, and a flag
    with the instance id.
    """
    if not metadata.startswith(METADATA_MAGIC):
        raise StageFailed(
            "the client's group metadata has an unknown format: this version of confluent-kafka is"
            " not supported"
        )
    start = len(METADATA_MAGIC)
    generation = int.from_bytes(metadata[start : start + 4], sys.byteorder, signed=True)
    _, member_id, _ = metadata[start + 4 :].split(b"\0", 2)
    return generation, member_id.decode()
