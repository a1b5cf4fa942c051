"""Which record the brokers refuse, in a transaction that they refuse.

They refuse a batch. The error of the transaction has the reason alone, and a delivery report does
not always tell the record from the others of its batch (librdkafka 2.16 with a single one, although
brokers say which it is, KIP-467). So the records are written again, each with a report, then half
of those that are refused, and so on, in transactions that are aborted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from common.errors import RecordRefused, ReoError
from common.kafka.client_errors import translate
from common.routes import TopicPartition
from deduplicator.destination import Destination
from deduplicator.kafka_destination import KafkaDestination
from deduplicator.partition import Partition
from deduplicator.transactions.transaction_failures import TransactionFailed
from deduplicator.unwrap import Record, unwrap_records

REPORT_S = 0.1


class Write(NamedTuple):
    """A record of the transaction: its destination, and where it is from."""

    destination: TopicPartition
    record: Record
    source: str
    source_topic: str

    def __str__(self) -> str:
        """As text for a person."""
        key, value, _, timestamp_ms = self.record
        return (
            f"It is {self.source}, written to {self.destination}:"
            f" {len(key or b'') + len(value or b'')} bytes,"
            f" {'no key' if key is None else 'a key'}, timestamp {timestamp_ms}"
        )


def name_refused_record(
    refused: RecordRefused, destination: Destination, decided: Iterable[Partition]
) -> RecordRefused:
    """The error of a transaction, which is aborted, with the record in it that brokers refuse.
    Without one if no record is refused now.
    """
    if refused.is_explained or not isinstance(destination, KafkaDestination):
        return refused
    suspects = _write_again(destination, list(_list_writes(decided)))
    while len(suspects) > 1:
        half = suspects[: len(suspects) // 2]
        suspects = _write_again(destination, half) or suspects[len(half) :]
    if not _write_again(destination, suspects):
        return refused
    return RecordRefused(
        f"{refused.message}. {suspects[0]}",
        refused.to_do,
        is_explained=True,
        topic=suspects[0].source_topic,
    )


def _write_again(destination: KafkaDestination, writes: Sequence[Write]) -> list[Write]:
    """Write to a transaction and abort it; returns what was in a refused batch."""
    rejected: list[Write] = []

    def note_report(write: Write, error: KafkaError | None, _: Any) -> None:
        if error is not None and isinstance(translate(error, ""), RecordRefused):
            rejected.append(write)

    with suppress(KafkaException, TransactionFailed, ReoError):
        destination.begin()
        for write in writes:
            destination.write_record(write.destination, write.record, partial(note_report, write))
        producer = destination.producers.current
        # what is in the queue when a batch is refused is not sent any more
        while producer.client and len(producer.client) and not rejected:
            producer.client.poll(REPORT_S)
            producer.check_deadline("writing the records again")
    destination.abort()
    return rejected


def _list_writes(decided: Iterable[Partition]) -> Iterator[Write]:
    """What the transaction wrote, in the same order."""
    for partition in decided:
        decisions, to = partition.get_decisions(), partition.destination_tp
        source, topic = f"the record of {partition.source_tp} at offset", partition.source_tp.topic
        for envelope in decisions.envelopes:
            accepted = envelope.read_records()
            records = unwrap_records(envelope, accepted, decisions.zero_timestamp_ms)
            for one, record in zip(accepted, records, strict=True):
                yield Write(to, record, f"{source} {one.source_offset}", topic)
        outputs = [tp for tp, group in decisions.partitioned_records for _ in group]
        written = zip(
            outputs or [to] * len(decisions.records),
            decisions.records,
            decisions.source_offsets,
            strict=True,
        )
        for tp, record, source_offset in list(written)[decisions.torn :]:
            yield Write(tp, record, f"{source} {source_offset}", topic)
        for record in decisions.parked:
            yield Write(
                partition.parked_tp, record, f"a parked record of {partition.source_tp}", topic
            )
