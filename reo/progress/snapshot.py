"""A snapshot of the progress of every partition of a copy, from the clusters alone: it asks no
process of the service, so it also works when none runs.

What is asked, and where it is read:

    the source's end           its offsets
    progress of stage one      the head of the newest envelope on the intermediate topic, or the
                               frontier when all envelopes there were purged
    progress of stage two      the frontier in the group's commit, as it was before any open
                               transaction
    what waits for stage one,  the first visible record at the source from that offset on, and its
    or for both                timestamp
    what waits for stage two   the difference of these two, and when the first envelope from the
                               group's offset on was written

`reo.progress.partition_progress` has the figures that follow from that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer

from common import runtime
from common.envelope import Head
from common.errors import ClusterUnreachable
from common.frontier import Frontier
from common.kafka import partition_offsets, topics, visible_records
from common.kafka.consumer_group import Group
from common.kafka.intermediate_records import parse_intermediate
from common.kafka.topics import Topic
from common.records import Consumed
from common.routes import Route, TopicPartition
from common.settings import Settings
from deduplicator.frontiers.source_start_offsets import find_first_source_offset
from reo.progress.partition_progress import PartitionProgress, Readings
from replicator.clients import Clients


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All partitions at one moment."""

    taken_at_s: float
    """By a monotonic clock."""
    sources: dict[Route, Topic]
    partitions: list[PartitionProgress]
    frontiers: dict[TopicPartition, Frontier]
    open_at_source: dict[TopicPartition, int]
    """By source partition with open transactions: the offset at which the first one begins. Records
    from there on cannot be copied yet.
    """
    open_at_destination: dict[TopicPartition, int]
    """By destination partition with open transactions: the offset at which the first one begins."""


class SnapshotReader:
    """Has the clients and asks the clusters; `take_snapshot` may be called repeatedly. It changes
    nothing.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clients = Clients(settings)
        self.group = Group(settings)

    def take_snapshot(self) -> Snapshot:
        """Ask both clusters; ClusterUnreachable and similar errors when one does not answer,
        FrontierUnreadable when a commit is not reo's.
        """
        settings, timeout_s = self.settings, self.settings.connect_timeout_s
        sources = topics.describe_sources(settings, self.clients.source_admin, timeout_s)
        existing = topics.look_up(
            settings.destination_cluster,
            self.clients.destination_admin,
            topics.list_written_topics(settings, sources),
            timeout_s,
        )
        pairs = [
            (route.get_source(partition), route.get_intermediate(partition))
            for route, source in sources.items()
            for partition in range(source.partitions)
        ]
        intermediates = [
            tp
            for _, tp in pairs
            if tp.topic in existing and tp.partition < existing[tp.topic].partitions
        ]
        commits = self.group.read_commits(intermediates)
        readings = self._read_partitions(pairs, intermediates, commits)
        outputs = [
            TopicPartition(name, partition)
            for name in dict.fromkeys(route.destination_topic for route in sources)
            if name in existing
            for partition in range(existing[name].partitions)
        ]
        frontiers_by_tp = {tp: commit.frontier for tp, commit in commits.items()}
        return Snapshot(
            runtime.monotonic(),
            sources,
            [readings.find_progress(source, tp) for source, tp in pairs],
            frontiers_by_tp,
            readings.find_open_at_source(),
            partition_offsets.find_open_transactions(
                self.clients.destination_admin,
                partition_offsets.list_end_offsets(self.clients.destination_admin, outputs),
            ),
        )

    def _read_partitions(
        self,
        pairs: list[tuple[TopicPartition, TopicPartition]],
        intermediates: list[TopicPartition],
        commits: Mapping[TopicPartition, partition_offsets.GroupCommit],
    ) -> Readings:
        source_admin, destination_admin = self.clients.source_admin, self.clients.destination_admin
        ends = partition_offsets.list_end_offsets(source_admin, [source for source, _ in pairs])
        stable = partition_offsets.list_end_offsets(source_admin, ends, committed_only=True)
        begins = partition_offsets.list_beginning_offsets(source_admin, ends)
        intermediate_begins, intermediate_ends = partition_offsets.list_bounds(
            destination_admin, intermediates
        )
        newest = self._read_firsts(
            self.clients.frontier_reader,
            {tp: end - 1 for tp, end in intermediate_ends.items() if end > intermediate_begins[tp]},
        )
        unread = {
            tp: commit.intermediate_offset
            for tp, commit in commits.items()
            if commit.intermediate_offset < intermediate_ends[tp]
        }
        first_not_consumed = self._read_firsts(
            self.clients.frontier_reader,
            {tp: max(offset, intermediate_begins[tp]) for tp, offset in unread.items()},
        )
        heads = {
            tp: head
            for tp, message in newest.items()
            if message is not None and (head := parse_intermediate(message)) is not None
        }
        written, copied = self._find_next_offsets(pairs, commits, heads)
        first_not_copied = self._read_waiting(copied, begins, stable)
        first_not_written = self._read_waiting(
            {source: offset for source, offset in written.items() if offset > copied[source]},
            begins,
            stable,
        )
        return Readings(
            runtime.time() * 1000,
            ends,
            stable,
            written,
            copied,
            first_not_written,
            first_not_copied,
            commits,
            intermediate_begins,
            intermediate_ends,
            newest,
            heads,
            first_not_consumed,
        )

    def _find_next_offsets(
        self,
        pairs: list[tuple[TopicPartition, TopicPartition]],
        commits: Mapping[TopicPartition, partition_offsets.GroupCommit],
        heads: Mapping[TopicPartition, Head],
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The next offset of stage one, and of stage two, by source partition."""
        written, copied = {}, {}
        for source, tp in pairs:
            copied[source] = (
                commits[tp].frontier.source_offset + 1
                if tp in commits
                else find_first_source_offset(
                    self.settings, self.clients.source_admin, source, added=False
                )
            )
            head = heads.get(tp)
            is_current = head is not None and (
                tp not in commits or head.epoch >= commits[tp].frontier.epoch
            )
            written[source] = max(copied[source], head.through + 1 if head and is_current else 0)
        return written, copied

    def _read_waiting(
        self,
        offsets: Mapping[TopicPartition, int],
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, Consumed | None]:
        """The first visible record at the source from each offset on; `ends` are last stable
        offsets.
        """
        return self._read_firsts(
            self.clients.source_reader,
            {
                tp: max(offset, begins[tp])
                for tp, offset in offsets.items()
                if max(offset, begins[tp]) < ends[tp]
            },
            ends,
        )

    @staticmethod
    def _read_firsts(
        reader: Consumer,
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> dict[TopicPartition, Consumed | None]:
        """Without `ends`, records that were deleted meanwhile are none: stage two deletes those of
        the intermediate topics that are copied.
        """
        records = visible_records.read_first_records(reader, begins, ends)
        silent = sorted(begins.keys() - records.keys())
        if silent:
            raise ClusterUnreachable(
                f"{', '.join(map(str, silent))}: no record and no end of the partition came for"
                f" {visible_records.POLL_S:.0f} s. Check that the leaders of these partitions run,"
                " then run the command again"
            )
        return records
