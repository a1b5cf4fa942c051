"""Records that the source has lost while a run lives.

A source that loses records ends before what was copied from it. If it has grown again between two
snapshots, its offsets show nothing. But records are lost only when the leader changes or while a
broker is away. After either, the last copied records are compared with the source
(`replicator.runs.last_record_check`): as of the previous snapshot, and then as of each one, until
stage two has read everything that was on the intermediate topic at that event. So what was read
before the loss, and is copied after it, is compared too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from common.routes import TopicPartition
from common.settings import Settings
from replicator.runs import last_record_check, tail_comparison
from replicator.runs.clients import Clients
from replicator.runs.run import Plan
from replicator.runs.snapshot import ClusterSnapshot, PartitionSnapshot


@dataclass(slots=True)
class SourceLosses:
    """Looks for them in the snapshots of one run."""

    settings: Settings
    clients: Clients
    plan: Plan
    copied: dict[TopicPartition, last_record_check.LastCopied]
    """By source partition, what was copied last, as of the previous snapshot."""
    beat: Callable[[], None]
    """Called while a comparison lasts long."""
    uncompared_up_to: dict[TopicPartition, int] = field(default_factory=dict)
    """By intermediate partition, after an event that can lose records: its end offset then. What
    stage two copies from before it is compared.
    """

    def check(self, before: ClusterSnapshot | None, now: ClusterSnapshot) -> None:
        """SourceTruncated when the last copied record of a partition is gone, ClusterUnreachable
        when that cannot be told now.
        """
        frontiers = {
            tp: partition.commit.frontier
            for tp, partition in now.asked.items()
            if partition.commit is not None
        }
        copied = tail_comparison.list_last_copied(self.plan.sources, frontiers)
        if can_have_lost_records(before, now):
            self._compare(self.copied)
            self.uncompared_up_to = {
                tp: partition.intermediate_end or 0 for tp, partition in now.partitions.items()
            }
        if self.uncompared_up_to:
            sources = {now.partitions[tp].source for tp in self.uncompared_up_to}
            # the others are compared
            self._compare(
                {
                    tp: last
                    for tp, last in copied.items()
                    if tp in sources and last != self.copied.get(tp)
                }
            )
            self.uncompared_up_to = {
                tp: end
                for tp, end in self.uncompared_up_to.items()
                if (commit := now.partitions[tp].commit) is None or commit.intermediate_offset < end
            }
        self.copied |= copied

    def _compare(self, copied: dict[TopicPartition, last_record_check.LastCopied]) -> None:
        last_record_check.check_source_history(
            self.settings,
            self.clients.source_admin,
            self.clients.source_reader,
            copied,
            self.beat,
        )


def can_have_lost_records(before: ClusterSnapshot | None, now: ClusterSnapshot) -> bool:
    """Whether the source can have lost records between two snapshots; `before` is None after the
    plan, which may be old.
    """
    return (
        before is None
        or now.is_late
        or any(
            is_truncated(partition)
            or partition.source_end.leader_epoch != before.partitions[tp].source_end.leader_epoch
            for tp, partition in now.asked.items()
        )
    )


def is_truncated(partition: PartitionSnapshot) -> bool:
    """Whether the source ends before what was copied from it. Not by the last stable offset: while
    a transaction is open, that may be below a first frontier.
    """
    return partition.source_high_watermark < partition.next_offset
