"""A record that the destination's brokers refuse, between others that they take: the service ends
with the record, the reason and what to do about this reason.
"""

from __future__ import annotations

import time

import pytest

from tests.conftest import Start
from tests.harness.copy_judge import Record
from tests.harness.kafka import Clusters
from tests.harness.service import stopped
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate

OLD_MS = 1_700_000_000_000
YOUNG_MS = 1000 * int(time.time()) + 3 * 86_400_000
LARGE = Record(b"k", b"." * 500, (), OLD_MS)
"""The largest, but for the refused one in a test of the size."""
FOLLOWING = 8000
"""More than the producer sends at once: it sends no more when a batch is refused."""
REFUSED = {
    "timestamp": (
        {},
        Record(b"k", b"", (), YOUNG_MS),
        (
            f"1 bytes, a key, timestamp {YOUNG_MS}. Widen message.timestamp.before.max.ms",
            "INVALID_TIME",
        ),
    ),
    "size": (
        {"max_message_bytes": "2000"},
        Record(None, b"." * 3000, (), OLD_MS),
        ("3000 bytes, no key, ", "Raise max.message.bytes of the topic"),
    ),
    "no key": (
        {"cleanup_policy": "compact"},
        Record(None, b"v", (), OLD_MS),
        ("1 bytes, no key, ", "A compacted topic takes no record without a key"),
    ),
}


@pytest.mark.parametrize(("mapping", "compiled"), [("same", "yes"), ("key", "no")])
@pytest.mark.parametrize("reason", REFUSED)
def test_the_refused_record_is_named(
    clusters: Clusters, topic: str, start: Start, reason: str, mapping: str, compiled: str
) -> None:
    """Wherever it is in the transaction, however its records are written."""
    config, refused, words = REFUSED[reason]
    clusters.source.create(topic, 1)
    clusters.destination.create(f"{topic}-copy", 1, **config)
    service = start(
        topic,
        "deduplicator",
        source_topic="",
        application=f"reo-{topic}",
        topics=f"{topic}={topic}-copy:{mapping}",
        deduplicator_compiled=compiled,
    )
    wait_for_frontiers(service, 1)
    records = [LARGE, LARGE, LARGE, refused, *[LARGE] * FOLLOWING]
    wrapped = wrap_records(
        clusters, topic, [(0, 2 * number, record) for number, record in enumerate(records)]
    )
    write_intermediate(clusters, topic, f"{topic}-copy", wrapped)
    place = f"It is the record of {topic}-0 at offset 6, written to {topic}-copy"
    stopped(service, 27, "RecordRefused", place, *words)
    (copied,) = clusters.destination.read(f"{topic}-copy").values()
    assert copied == [LARGE] * len(copied)
    assert len(copied) <= 3
