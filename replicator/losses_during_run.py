"""Records that the source has lost while a run lives.

A source that loses records ends before what was read from it. If it has grown again between two
snapshots, its offsets show nothing. But records are lost only when the leader changes or while a
broker is away. After either, the last copied records are compared with the source
(`replicator.last_record_check`), as of the previous snapshot and as of now, until everything is
copied that was written before that event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from common import runtime
from common.kafka import partition_offsets
from common.routes import TopicPartition
from common.settings import Settings
from common.source_candidates import get_request_timeout_s
from replicator import last_record_check
from replicator.candidates import tail_comparison
from replicator.clients import Clients
from replicator.cluster_snapshot import ClusterSnapshot
from replicator.run import Plan

OUTAGE_S = 2.0
"""A snapshot that ends this long after the previous one may have waited for a broker; no broker
restarts faster.
"""


@dataclass(slots=True)
class SourceLosses:
    """Looks for them in the snapshots of one run."""

    settings: Settings
    clients: Clients
    plan: Plan
    copied: dict[TopicPartition, last_record_check.LastCopied]
    """By source partition, what was copied last, as of the previous snapshot."""
    unverified_up_to: dict[TopicPartition, int] = field(default_factory=dict)
    """After an event that can lose records: the source offset up to which records were written
    before it. Stage two may have copied them since.
    """
    leader_epochs: dict[TopicPartition, int | None] = field(default_factory=dict)
    """By source partition, as of the previous snapshot."""
    sampled_at: float = field(default_factory=runtime.monotonic)

    def has_lost_records(
        self, snapshot: ClusterSnapshot, next_offsets: Mapping[TopicPartition, int]
    ) -> bool:
        """Whether a partition ends before what was read from it; SourceTruncated when its last
        copied record is gone. `next_offsets`: by intermediate partition, the source offset that
        is written next.
        """
        source_partitions = self.plan.map_source_partitions()
        leader_epochs = {
            source_tp: end.leader_epoch for source_tp, end in snapshot.source_stable_ends.items()
        }
        truncated = {
            source_tp
            for tp, source_tp in source_partitions.items()
            if snapshot.source_stable_ends[source_tp].offset < next_offsets[tp]
        }
        # while a transaction is open, the last stable offset may be below a first frontier
        if truncated:
            ends = partition_offsets.list_end_offsets(
                self.clients.source_admin, truncated, timeout_s=get_request_timeout_s(self.settings)
            )
            truncated = {
                source_tp
                for tp, source_tp in source_partitions.items()
                if source_tp in truncated and ends[source_tp] < next_offsets[tp]
            }
        frontiers = {tp: commit.frontier for tp, commit in snapshot.commits.items()}
        copied = tail_comparison.list_last_copied(self.plan.sources, frontiers)
        if (
            truncated
            or leader_epochs != self.leader_epochs
            or runtime.monotonic() > self.sampled_at + OUTAGE_S
        ):
            self._check_history(self.copied)
            written = {
                tp: newest.source_offset + 1
                for tp, newest in snapshot.newest.items()
                if newest.epoch == self.plan.epoch
            }
            self.unverified_up_to = {
                tp: max(position, written.get(tp, 0)) for tp, position in next_offsets.items()
            }
        if self.unverified_up_to:
            # the others are compared
            self._check_history(
                {tp: last for tp, last in copied.items() if last != self.copied.get(tp)}
            )
            self.unverified_up_to = {
                tp: end
                for tp, end in self.unverified_up_to.items()
                if tp not in frontiers or frontiers[tp].rule.frontier + 1 < end
            }
        self.copied |= copied
        self.leader_epochs, self.sampled_at = leader_epochs, runtime.monotonic()
        return bool(truncated)

    def _check_history(self, copied: dict[TopicPartition, last_record_check.LastCopied]) -> None:
        last_record_check.check_source_history(
            self.settings,
            self.clients.source_admin,
            self.clients.source_reader,
            copied,
            self.clients.beat,
        )
