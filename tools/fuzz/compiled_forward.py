"""`compiled_path.c` beside Python's reader: the same values are envelopes, and the same records are
handed over.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from confluent_kafka import KafkaError

from common.envelope import (
    OFFSET_MAX,
    EnvelopeInvalid,
    EnvelopeRecord,
    Head,
    parse_head,
    read_last_record,
    read_records,
)
from deduplicator import compiled_path
from tools.fuzz.collecting_producer import CollectingProducer, Handover, ProducedRecord

RECORDS_MAX = 8
"""How many records the producer accepts at a time."""


def read_envelope(value: bytes) -> tuple[Head, list[EnvelopeRecord]]:
    """What Python reads; EnvelopeInvalid when it is not an envelope."""
    head = parse_head(value)
    records = read_records(value, head)
    if records:
        assert read_last_record(value, head) == records[-1]
    return head, records


def assert_as_python(
    producer: CollectingProducer,
    value: bytes,
    above: int = -1,
    below: int = OFFSET_MAX,
    zero_timestamp_ms: int = 0,
) -> bool:
    """C accepts the value if Python does, and hands over what Python reads; returns whether it is
    an envelope. `producer` accepts RECORDS_MAX records.
    """
    try:
        _, records = read_envelope(value)
    except EnvelopeInvalid:
        assert _count_records(value) == -1, f"only C takes it for an envelope: {value!r}"
        assert producer.forward(value, above, below, zero_timestamp_ms) == Handover(
            [], compiled_path.INVALID, above
        )
        return False
    assert _count_records(value) == len(records), f"C reads it otherwise: {value!r}"
    assert producer.forward(value, above, below, zero_timestamp_ms) == _expect_handover(
        [record for record in records if above < record.source_offset < below],
        above,
        zero_timestamp_ms,
    )
    return True


def _expect_handover(
    records: Sequence[EnvelopeRecord], above: int, zero_timestamp_ms: int
) -> Handover:
    """What has to be handed over of these records."""
    produced: list[ProducedRecord] = []
    position = above
    for record in records:
        timestamp_ms = record.timestamp_ms or zero_timestamp_ms
        if not timestamp_ms:
            return Handover(produced, compiled_path.ZERO_TIMESTAMP, record.source_offset)
        if len(produced) == RECORDS_MAX:
            return Handover(produced, int(KafkaError._QUEUE_FULL), position)
        produced.append(ProducedRecord(timestamp_ms, record.key, record.value, record.headers))
        position = record.source_offset
    return Handover(produced, 0, position)


def _count_records(value: bytes) -> int:
    # without the zero byte that follows Python's bytes, so a sanitizer sees one too many
    exact = ctypes.create_string_buffer(value, len(value))
    return int(compiled_path.load_library().reo_check(exact, len(value)))
