"""A snapshot of the progress of every partition of a copy, from the clusters alone: it asks no
process of the service, so it also works when none runs.

    progress of stage one      the head of the newest envelope on the intermediate topic, or the
                               frontier when all envelopes there were purged
    progress of stage two      the frontier in the group's commit, as it was before any open
                               transaction
    what waits for stage one,  the first visible record at the source from that offset on, and its
    or for both                timestamp
    what waits for stage two   the difference of these two, and when the first envelope from the
                               group's offset on was written
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer

from common import clock
from common.errors import ClusterUnreachable, MoveRefused
from common.frontier import Frontier
from common.kafka import partition_offsets, source_topics, topics, visible_records
from common.kafka.consumer_group import Group
from common.kafka.intermediate_records import parse_intermediate
from common.kafka.partition_offsets import GroupCommit
from common.kafka.route_topics import find_gone
from common.kafka.topics import Topic
from common.records import Consumed
from common.route_states import RouteState, RouteStates, list_halted
from common.routes import Route, TopicPartition, name_some
from common.settings import Settings
from deduplicator.frontiers.source_start_offsets import find_first_source_offsets
from reo.progress.partition_progress import Lags, PartitionProgress, measure_lag
from replicator.runs.clients import Clients


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All partitions at one moment."""

    taken_at_s: float
    """By a monotonic clock."""
    sources: dict[Route, Topic]
    partitions: list[PartitionProgress]
    open_at_destination: dict[TopicPartition, int]
    """By destination partition with open transactions: the offset at which the first one begins."""
    halted: dict[str, RouteState] = field(default_factory=dict)
    """By source topic: the routes of which nothing is read."""

    @property
    def frontiers(self) -> dict[TopicPartition, Frontier]:
        """By intermediate partition."""
        return {row.intermediate: row.frontier for row in self.partitions if row.frontier}

    @property
    def open_at_source(self) -> dict[TopicPartition, int]:
        """By source partition with open transactions: the offset at which the first one begins.
        Records from there on cannot be copied yet.
        """
        return {
            row.source: row.last_stable_offset
            for row in self.partitions
            if row.last_stable_offset < row.source_end
        }

    def find_moved(self) -> list[PartitionProgress]:
        """The partitions, when they have moved to the destination; MoveRefused when only some of
        them have.
        """
        moved = [row for row in self.partitions if row.move]
        if 0 < len(moved) < len(self.partitions):
            names = sorted({row.source.topic for row in moved})
            others = sorted({row.source.topic for row in self.partitions}.difference(names))
            raise MoveRefused(
                f"{name_some(names)} moved before, and {name_some(others)} did not. Give the topics"
                " that are meant, with --topic"
            )
        return moved


def measure_rates(
    before: Snapshot, now: Snapshot, get_offset: Callable[[PartitionProgress], int]
) -> dict[TopicPartition, float]:
    """By source partition, how many offsets per second were added between two snapshots; never
    negative, also when a new run begins again at the frontier.
    """
    interval_s = max(now.taken_at_s - before.taken_at_s, 1e-6)
    old = {row.source: row for row in before.partitions}
    return {
        row.source: max(0, get_offset(row) - get_offset(old.get(row.source, row))) / interval_s
        for row in now.partitions
    }


class SnapshotReader:
    """Has the clients and asks the clusters; `take_snapshot` may be called repeatedly. It changes
    nothing.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clients = Clients(settings)
        self.group = Group(settings)
        self.route_states = RouteStates(settings)

    def take_snapshot(self) -> Snapshot:
        """Ask both clusters; ClusterUnreachable and similar errors when one does not answer,
        FrontierUnreadable when a commit is not reo's.
        """
        settings, timeout_s = self.settings, self.settings.connect_timeout_s
        sources = source_topics.describe_sources(settings, self.clients.source_admin, timeout_s)
        existing = topics.look_up(
            settings.destination_cluster,
            self.clients.destination_admin,
            topics.list_written_topics(settings, sources),
            timeout_s,
        )
        pairs = {
            route.get_source(partition): route.get_intermediate(partition)
            for route, source in sources.items()
            for partition in range(source.partitions)
        }
        intermediates = [
            tp
            for tp in pairs.values()
            if tp.topic in existing and tp.partition < existing[tp.topic].partitions
        ]
        commits = self.group.read_commits(intermediates)
        copied = {tp: one.frontier for tp, one in commits.items() if one.frontier.move is None}
        gone = find_gone(settings, sources, existing, copied)
        used = {tp: commit for tp, commit in commits.items() if tp not in gone}
        readings = Readings(settings, self.clients, pairs, intermediates, used, gone)
        outputs = [
            TopicPartition(name, partition)
            for name, copied in {one.destination_topic: one.partitions for one in sources}.items()
            if name in existing
            for partition in range(existing[name].partitions)
            if partition in copied
        ]
        client = self.clients.destination_admin
        open_at_destination = partition_offsets.find_open_transactions(
            client, partition_offsets.list_end_offsets(client, outputs)
        )
        partitions = list(map(readings.find_progress, pairs))
        states = self.route_states.read({tp.topic for tp in intermediates})
        halted = list_halted(states, sources)
        return Snapshot(clock.monotonic(), sources, partitions, open_at_destination, halted)


class Readings:
    """What is read of all partitions at one moment; `pairs` has the intermediate partition of each
    source partition, `intermediates` has those that exist, and `gone` those that are copied again,
    with the destination topic (`common.kafka.route_topics.find_gone`).
    """

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        pairs: Mapping[TopicPartition, TopicPartition],
        intermediates: list[TopicPartition],
        commits: Mapping[TopicPartition, GroupCommit],
        gone: Mapping[TopicPartition, str],
    ) -> None:
        self.settings = settings
        self.clients = clients
        self.pairs = pairs
        self.commits = commits
        self.gone = gone
        self.ends = partition_offsets.list_end_offsets(clients.source_admin, pairs)
        self.begins, self.stable_ends = partition_offsets.list_bounds(
            clients.source_admin, pairs, committed_only=True
        )
        self.intermediate_begins, self.intermediate_ends = partition_offsets.list_bounds(
            clients.destination_admin, intermediates
        )
        ends = self.intermediate_ends.items()
        self.newest = self._read_envelopes({tp: end - 1 for tp, end in ends})
        heads = {
            tp: parse_intermediate(message, source.partition)
            for source, tp in pairs.items()
            if (message := self.newest.get(tp)) is not None
        }
        self.heads = {tp: head for tp, head in heads.items() if head is not None and tp not in gone}
        """Of the newest envelopes; a record of the old format has none."""
        self.first_not_consumed = self._read_envelopes(
            {
                tp: max(commit.intermediate_offset, self.intermediate_begins[tp])
                for tp, commit in commits.items()
            }
        )
        self.copied = self._find_copied()
        """The source offset that stage two copies next."""
        self.written = {source: self._find_written(source) for source in pairs}
        """The source offset that stage one writes next."""
        self.first_not_copied = self._read_waiting(self.copied)
        self.first_not_written = self._read_waiting(
            {tp: offset for tp, offset in self.written.items() if offset > self.copied[tp]}
        )
        self.taken_at_ms = clock.time() * 1000

    def find_progress(self, source: TopicPartition) -> PartitionProgress:
        """The progress of a source partition."""
        tp = self.pairs[source]
        commit, head, last = self.commits.get(tp), self.heads.get(tp), self.newest.get(tp)
        frontier = commit.frontier if commit else None
        end, written, copied = self.ends[source], self.written[source], self.copied[source]
        held_back, now_ms = end - self.stable_ends[source], self.taken_at_ms
        not_copied = self.first_not_copied.get(source)
        not_written = self.first_not_written.get(source) if written > copied else not_copied
        return PartitionProgress(
            source,
            tp,
            end,
            self.stable_ends[source],
            written,
            copied,
            frontier,
            Lags(
                measure_lag(end - written, not_written, now_ms, held_back),
                measure_lag(written - copied, self.first_not_consumed.get(tp), now_ms),
                measure_lag(end - copied, not_copied, now_ms, held_back),
            ),
            last_written_ms=last.timestamp()[1] if last else None,
            epoch=max(head.epoch if head else 0, frontier.epoch if frontier else 0),
            unread=self._count_unread(tp, commit) if commit else 0,
            is_run_waiting=bool(
                head and frontier and head.after == head.through and head.epoch > frontier.epoch
            ),
            gone_topic=self.gone.get(tp, ""),
        )

    def _find_copied(self) -> dict[TopicPartition, int]:
        pairs, commits = self.pairs.items(), self.commits
        added = {source: tp in self.gone for source, tp in pairs if tp not in commits}
        return {
            source: commits[tp].frontier.source_offset + 1 for source, tp in pairs if tp in commits
        } | find_first_source_offsets(self.settings, self.clients.source_admin, added)

    def _find_written(self, source: TopicPartition) -> int:
        tp = self.pairs[source]
        head, commit = self.heads.get(tp), self.commits.get(tp)
        if head and (commit is None or head.epoch >= commit.frontier.epoch):
            return max(self.copied[source], head.through + 1)
        return self.copied[source]

    def _count_unread(self, tp: TopicPartition, commit: GroupCommit) -> int:
        begin, end = self.intermediate_begins[tp], self.intermediate_ends[tp]
        # a position that is gone is the beginning of what is there now
        position = commit.intermediate_offset
        return end - (position if begin <= position <= end else begin)

    def _read_envelopes(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Consumed | None]:
        """The first one from each of these offsets on. Those that were deleted meanwhile are none:
        stage two deletes what is copied.
        """
        begins, ends = self.intermediate_begins, self.intermediate_ends
        present = {tp: offset for tp, offset in offsets.items() if begins[tp] <= offset < ends[tp]}
        return _read_firsts(self.clients.frontier_reader, present)

    def _read_waiting(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Consumed | None]:
        """The first visible record at the source from each offset on."""
        begins = {tp: max(offset, self.begins[tp]) for tp, offset in offsets.items()}
        present = {tp: begin for tp, begin in begins.items() if begin < self.stable_ends[tp]}
        return _read_firsts(self.clients.source_reader, present, self.stable_ends)


def _read_firsts(
    reader: Consumer,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, Consumed | None]:
    records = visible_records.read_first_records(reader, begins, ends)
    silent = sorted(begins.keys() - records.keys())
    if silent:
        raise ClusterUnreachable(
            f"{name_some(silent)}: no record and no end of the partition came for"
            f" {visible_records.POLL_S:.0f} s. Check that the leaders of these partitions run,"
            " then run the command again"
        )
    return records
