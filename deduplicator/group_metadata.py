"""What a member of the group commits with: its generation and id, by which a broker tells it from a
worker that was believed dead.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from common.errors import AccessRefused, Fenced, StageFailed
from common.kafka.client_errors import translate
from deduplicator.transactions.transaction_failures import TransactionFailed

METADATA_MAGIC = b"CGMDv2:"
REBALANCING = frozenset(
    {KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID}
)


def get_checked_metadata(consumer: Consumer) -> Any:
    """The consumer's group metadata; StageFailed when it is not that of a member."""
    metadata = consumer.consumer_group_metadata()
    generation, member_id = parse_group_metadata(metadata)
    if generation < 0 or not member_id:
        raise StageFailed(
            f"this worker is not a member of the group now (generation {generation}): the"
            " transaction is not committed"
        )
    return metadata


def commit_offsets(consumer: Consumer, offsets: Sequence[TopicPartition]) -> None:
    """Commit as a member, outside a transaction; TransactionFailed when it is not certain."""
    try:
        answers = consumer.commit(offsets=list(offsets), asynchronous=False) or []
        error = next((answer.error for answer in answers if answer.error is not None), None)
    except KafkaException as failed:
        error = failed.args[0]
    if error is None or error.code() in REBALANCING:
        return
    translated = translate(error, "committing the offsets")
    raise (
        translated
        if isinstance(translated, Fenced | AccessRefused)
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
