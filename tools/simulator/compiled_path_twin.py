"""Stands for `compiled_path.c`, which hands records to librdkafka: the same function in Python
hands them to a simulated producer. `tools/fuzz/` compares the C function with the reader that is
used here.

What decides whether and how the function is called is the service's own code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from common.envelope import parse_head, read_records
from common.routes import TopicPartition
from deduplicator import compiled_path, kafka_destination
from deduplicator.compiled_path import Forwarded
from tools.simulator.kafka.producer import Producer


def use_twin() -> Callable[[], None]:
    """Replace the C function, for simulated producers. Returns what puts it back."""
    replaced: list[tuple[Any, str, Any]] = [
        (compiled_path, "forward", forward),
        (compiled_path, "load_library", lambda: None),
        (kafka_destination, "Producer", Producer),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in replaced]

    def put(values: list[tuple[Any, str, Any]]) -> None:
        for module, name, value in values:
            setattr(module, name, value)

    put(replaced)
    return lambda: put(before)


def forward(
    producer: Producer,
    tp: TopicPartition,
    value: bytes,
    above: int,
    below: int,
    zero_timestamp_ms: int | None,
) -> Forwarded:
    """See `deduplicator.compiled_path.forward`."""
    count, last_source_offset = 0, above
    for record in read_records(value, parse_head(value)):
        if not above < record.source_offset < below:
            continue
        headers = [(name.decode(), own) for name, own in record.headers]
        timestamp_ms = record.timestamp_ms or zero_timestamp_ms or 0
        try:
            producer.produce(
                tp.topic,
                record.value,
                record.key,
                tp.partition,
                timestamp=timestamp_ms,
                headers=headers or None,
            )
        except BufferError:
            return Forwarded(count, last_source_offset, is_queue_full=True)
        count, last_source_offset = count + 1, record.source_offset
    return Forwarded(count, last_source_offset, is_queue_full=False)
