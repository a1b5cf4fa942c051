"""A minimal stage one: wraps records as `common.origin` describes, and writes them to the
intermediate topic.

With it a test of stage two needs no Spark, and can write what Spark writes only after failures:
duplicates, holes, records of zombies.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterable

from common import run_epochs
from common.origin import HEADER, Origin, compute_identity, encode
from tests.harness.judge import Record
from tests.harness.kafka import Clusters, until
from tests.harness.service import Service

WrappedRecords = list[tuple[int, Record]]


def create_epoch() -> int:
    """The epoch of a run that has read the current frontiers: they can be ahead of the clock."""
    now_ms = int(time.time() * 1000)
    return run_epochs.create_run_epoch(
        now_ms,
        [run_epochs.create_higher_epoch(now_ms, [])],
        random.getrandbits(run_epochs.RANDOM_BITS),
    )


def wrap_records(
    clusters: Clusters,
    topic: str,
    records: Iterable[tuple[int, int, Record]],
    epoch: int | None = None,
    attempt: int = 1,
    first_sequences: dict[int, int] | None = None,
) -> WrappedRecords:
    """One batch: `records` are (partition, source offset, record) in order."""
    cluster_id, topic_id = clusters.source.topic_id(topic)
    identity, epoch = compute_identity(cluster_id, topic, topic_id), epoch or create_epoch()
    sequences = dict(first_sequences or {})
    wrapped: WrappedRecords = []
    for partition, offset, record in records:
        sequence = sequences.get(partition, 0)
        sequences[partition] = sequence + 1
        header = (
            HEADER,
            encode(
                Origin(
                    partition, offset, record.timestamp_ms, 0, epoch, attempt, sequence, identity
                )
            ),
        )
        wrapped.append((partition, Record(record.key, record.value, (*record.headers, header), 0)))
    return wrapped


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


def write_intermediate(clusters: Clusters, topic: str, copy: str, records: WrappedRecords) -> None:
    """Write wrapped records to the intermediate topic of a copy."""
    clusters.destination.write(f"{copy}-proxy", records)
