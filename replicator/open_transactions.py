"""Open transactions of the source: what they keep stage one from reading, and for how long.

A partition is read up to its last stable offset, which stays where it is until the first open
transaction ends.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from common.metrics import SOURCE_OPEN
from common.routes import TopicPartition
from replicator.cluster_snapshot import ClusterSnapshot

log = logging.getLogger(__name__)
OPEN_S = 60.0
"""After this time an open transaction of the source is logged; it is Kafka's default transaction
timeout.
"""


@dataclass(slots=True)
class OpenTransactions:
    """Of the snapshots of one run; everything is by source partition."""

    stable_end_since: dict[TopicPartition, tuple[int, float]] = field(default_factory=dict)
    """The last stable offset, and since when it has not changed."""
    warned_open: set[TopicPartition] = field(default_factory=set)

    def count_waiting(
        self, source_tp: TopicPartition, snapshot: ClusterSnapshot, now: float
    ) -> int:
        """The number of offsets after the last stable offset: stage one cannot read them before an
        open transaction of the source ends.
        """
        stable = snapshot.source_stable_ends[source_tp].offset
        waiting = snapshot.source_high_watermarks[source_tp] - stable
        if waiting <= 0 or self.stable_end_since.get(source_tp, (-1, now))[0] != stable:
            self.stable_end_since[source_tp] = (stable, now)
        open_s = now - self.stable_end_since[source_tp][1] if waiting > 0 else 0.0
        SOURCE_OPEN.labels(*map(str, source_tp)).set(open_s)
        if open_s > OPEN_S and source_tp not in self.warned_open:
            self.warned_open.add(source_tp)
            log.warning(
                "an open transaction of the source blocks %s at offset %d: the %d offsets from"
                " there on cannot be copied before it ends",
                source_tp,
                stable,
                waiting,
            )
        elif waiting <= 0:
            self.warned_open.discard(source_tp)
        return max(0, waiting)
