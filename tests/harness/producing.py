"""How tests write records: with an idempotent producer, in order, and a record that is not
delivered is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Producer

from tests.harness.copy_judge import Record


def make_producer(address: str, options: Mapping[str, Any]) -> Producer:
    """An idempotent producer; options are librdkafka's, with underscores for dots."""
    return Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": 5,
            "message.max.bytes": 10_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "log_level": 0,
        }
        | {name.replace("_", "."): value for name, value in options.items()}
    )


def produce_records(producer: Producer, topic: str, records: Iterable[tuple[int, Record]]) -> None:
    """Produce records; a record that cannot be delivered is an error."""

    def on_delivery(error: object, _: object) -> None:
        assert error is None, error

    for partition, record in records:
        while True:
            try:
                # produce() has two parameters for the callback, and ignores the second one when the
                # first is passed, even as None
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    partition,
                    on_delivery,
                    None,
                    record.timestamp_ms,
                    list(record.headers),
                )
                break
            except BufferError:
                producer.poll(0.1)
    producer.poll(0)
