"""A minimal stage one: wraps records in envelopes (`common.envelope`), and writes them to the
intermediate topic.

With it a test of stage two needs no Spark, and can write what stage one writes only after failures:
duplicates, gaps, envelopes of zombies. It installs no epoch.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterable, Mapping

from common.envelope import EnvelopeRecord, Head, compute_identity
from tests.harness.copy_judge import Record
from tests.harness.kafka import Clusters, until
from tests.harness.service import Service
from tools.envelope_encoder import encode

RECORDS_MAX = 7
"""So many records at most are in an envelope here, so that a few records are several envelopes."""
Envelopes = list[tuple[int, Record]]
"""By intermediate partition."""


def create_epoch() -> int:
    """An epoch above that of every run before: stage one counts, and this is the time."""
    return int(time.time() * 1000) << 20 | random.getrandbits(20)


def wrap_records(
    clusters: Clusters,
    topic: str,
    records: Iterable[tuple[int, int, Record]],
    epoch: int | None = None,
    after: Mapping[int, int] | None = None,
) -> Envelopes:
    """Envelopes of one run. `records` are (partition, source offset, record) in order. Those of a
    partition are all that the source has above `after`, by default the offset before the first one.
    """
    cluster_id, topic_id = clusters.source.topic_id(topic)
    identity, epoch = compute_identity(cluster_id, topic, topic_id), epoch or create_epoch()
    waiting: dict[int, list[EnvelopeRecord]] = {}
    through = dict(after or {})
    envelopes: Envelopes = []

    def finish(partition: int) -> None:
        wrapped = waiting.pop(partition)
        head = Head(identity, epoch, partition, through[partition], wrapped[-1].source_offset)
        envelopes.append((partition, Record(None, encode(head, wrapped))))
        through[partition] = head.through

    for partition, offset, record in records:
        through.setdefault(partition, offset - 1)
        waiting.setdefault(partition, []).append(build_record(offset, record))
        if len(waiting[partition]) == RECORDS_MAX:
            finish(partition)
    for partition in list(waiting):
        finish(partition)
    return envelopes


def build_record(source_offset: int, record: Record) -> EnvelopeRecord:
    """A source record as it is in an envelope."""
    headers = tuple((name.encode(), value) for name, value in record.headers)
    return EnvelopeRecord(source_offset, record.timestamp_ms, 0, record.key, record.value, headers)


def wait_for_frontiers(service: Service, partitions: int) -> None:
    """Wait until stage two has a frontier for each partition: a run needs a frontier to start
    from.
    """
    workers = int(service.environment.get("REO_DEDUPLICATOR_WORKERS", "1"))
    until(
        lambda: service.metric("reo_ready", stage="deduplicator") == workers, "stage two is ready"
    )
    until(
        lambda: {
            int(partition)
            for partition in re.findall(
                r'^reo_frontier_offset{[^}]*partition="(\d+)"', service.read_metrics(), re.MULTILINE
            )
        }.issuperset(range(partitions)),
        "every partition has a frontier",
    )


def write_intermediate(clusters: Clusters, topic: str, copy: str, envelopes: Envelopes) -> None:
    """Write envelopes to the intermediate topic of a copy."""
    clusters.destination.write(f"{copy}-proxy", envelopes)
