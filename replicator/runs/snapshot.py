"""Snapshots of a run: what both clusters answer to one series of requests, with what is remembered
of the snapshots before. A snapshot is never changed, so that what follows from it needs neither a
cluster nor a clock (`replicator.runs.end_reasons.find_event`). Nobody looks into the intermediate
topics, only at their ends.

A snapshot need not ask for every partition (`replicator.runs.watch.Watch.choose_partitions`): those
that are not asked for are as in the snapshot before.

How far a run is, the group's frontier tells. Offsets of the source do not tell whether anything is
left to copy, since they count markers and aborted records too. So where a partition stands still,
its first visible record after the frontier is looked for, and that none was found is remembered.

What was found empty is believed while the source is certainly the one that was looked at: while all
snapshots since the one before the look have the same leader epoch, and none of them is late.
Otherwise it is forgotten: a new leader may lack what the one before it had, and have other records
at the same offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from common import clock
from common.errors import ClusterUnreachable, TopicMissing
from common.kafka import partition_offsets, source_topics, topics, visible_records
from common.kafka.partition_offsets import EndOffset, GroupCommit
from common.routes import Route, TopicPartition
from common.settings import Settings
from common.source_pool import get_request_timeout_s
from replicator.runs.clients import Clients
from replicator.runs.run import Plan

QUIET_S = 1.0
"""A partition that stands still for so long is looked at."""
OUTAGE_S = 2.0
"""When all leaders have answered this long after their previous answer, one of them may have been
away; no broker restarts faster.
"""


class OpenGap(NamedTuple):
    """A gap at stage two."""

    source_offset: int
    """As `Frontier.source_offset`."""
    up_to: int
    """As `Frontier.gap`."""
    since_s: float
    """Since when neither has changed."""


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """One partition. Offsets are source offsets unless their name says otherwise."""

    source: TopicPartition
    commit: GroupCommit | None
    """None while the group does not answer, or has none."""
    intermediate_end: int | None
    """The end offset of the intermediate partition; None when its topic is gone."""
    source_beginning: int
    source_end: EndOffset
    """The last stable offset: up to this one the source can be read."""
    source_high_watermark: int
    """Between the last stable offset and this one are records of open transactions."""
    next_offset: int
    """The offset after the frontier, as last known."""
    # what is remembered, in seconds of the monotonic clock
    progressed_at_s: float
    """When the frontier or the intermediate partition's end has moved for the last time; or since
    when something waits for stage one, if that is later; before that, when the run began.
    """
    has_progressed: bool = False
    """Whether that was so since the run began."""
    empty_up_to: int = 0
    """From the frontier on, no visible record is below this offset; 0 when that is not known."""
    gap: OpenGap | None = None
    blocked_since_s: float | None = None
    """Since when the last stable offset stays below the high watermark; None when it is not."""
    looked_at_s: float = 0.0
    """When its records were looked at for the last time."""
    is_purged: bool = False
    """Whether nothing is left on the intermediate partition, although stage two has not read up to
    its end: then its position does not move.
    """

    @property
    def has_stage_two_read_all(self) -> bool:
        """Whether stage two has read everything that is on the intermediate topic."""
        return (
            self.commit is not None
            and self.intermediate_end is not None
            and (self.is_purged or self.commit.intermediate_offset >= self.intermediate_end)
        )

    @property
    def is_deleted_uncopied(self) -> bool:
        """Whether the source has deleted offsets after the frontier that were not found empty."""
        return self.source_beginning > max(self.next_offset, self.empty_up_to)

    @property
    def lag(self) -> int:
        """The number of offsets still to be copied; 0 when only markers and aborted records are
        left.
        """
        is_empty = self.empty_up_to >= self.source_end.offset and not self.is_deleted_uncopied
        return 0 if is_empty else max(0, self.source_end.offset - self.next_offset)

    @property
    def is_settled(self) -> bool:
        """Whether everything is copied: nothing changes here before the source's end does."""
        return (
            self.has_stage_two_read_all
            and self.gap is None
            and self.next_offset >= self.source_end.offset
            and self.source_high_watermark <= self.source_end.offset
        )

    @property
    def is_waiting_for_stage_one(self) -> bool:
        """Whether stage two has nothing to do, and the source has something to copy."""
        return self.has_stage_two_read_all and (self.lag > 0 or self.is_deleted_uncopied)


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """All partitions at one moment, by intermediate partition."""

    taken_at_s: float
    """By the monotonic clock, when the last answer had come."""
    sources: Mapping[Route, topics.Topic]
    partitions: Mapping[TopicPartition, PartitionSnapshot]
    started_at_s: float
    """When a partition progressed for the first time in this run, for the last time; before that,
    when the run began. Spark starts 2,000 tasks one after the other, which takes its time.
    """
    asked: Mapping[TopicPartition, PartitionSnapshot]
    """Those that were asked for; the others are as in the snapshot before."""
    is_late: bool = False
    """Whether a broker may have been away since the snapshot before."""


def describe_sources(settings: Settings, clients: Clients, plan: Plan) -> dict[Route, topics.Topic]:
    """Every route with its source topic as it is now; TopicMissing when a source topic of this
    run is gone.
    """
    sources = source_topics.describe_sources(
        settings, clients.source_admin, get_request_timeout_s(settings)
    )
    source_topics.check_none_deleted(plan.sources, sources)
    return sources


def take_snapshot(
    settings: Settings,
    clients: Clients,
    plan: Plan,
    commits: Mapping[TopicPartition, GroupCommit],
    before: ClusterSnapshot | None,
    source_partitions: Mapping[TopicPartition, TopicPartition],
    answered_at_s: float,
    quiet_s: float = QUIET_S,
) -> ClusterSnapshot:
    """Look at what stood still for so long in the snapshot before, then ask both clusters;
    `commits` were read just before. ClusterUnreachable when one does not answer, TopicMissing when
    a source topic is gone.

    `source_partitions` are asked for, by intermediate partition: all of them at first.
    `answered_at_s`: when all leaders have answered for the last time.
    """
    began_at_s = clock.monotonic()
    looked_at = _find_quiet(before, source_partitions, quiet_s, began_at_s) if before else {}
    found_empty = _look_at_quiet(settings, clients, looked_at)
    look_s = clock.monotonic() - began_at_s
    timeout_s = get_request_timeout_s(settings)
    client, at_source = clients.source_admin, source_partitions.values()
    sources = describe_sources(settings, clients, plan)
    intermediate_ends = _list_intermediate_ends(settings, clients, source_partitions)
    purged = _find_purged(clients, intermediate_ends, commits, before)
    # before the stable ends: records written in between are no open transaction
    high_watermarks = partition_offsets.list_end_offsets(client, at_source, timeout_s=timeout_s)
    beginnings = partition_offsets.list_beginning_offsets(client, at_source, timeout_s)
    stable_ends = partition_offsets.list_stable_ends(client, at_source, timeout_s)
    now_s = clock.monotonic()
    # a look may be long: it reads over all markers
    is_late_after_look = before is not None and now_s - look_s > answered_at_s + OUTAGE_S
    asked = {}
    for tp, source in source_partitions.items():
        partition_before, commit = before.partitions[tp] if before else None, commits.get(tp)
        answers = PartitionSnapshot(
            source,
            commit,
            intermediate_ends.get(tp),
            beginnings[source],
            stable_ends[source],
            high_watermarks[source],
            _find_next_offset(plan, tp, partition_before, commit),
            progressed_at_s=now_s,
            looked_at_s=now_s if tp in looked_at else 0.0,
            is_purged=tp in purged,
        )
        asked[tp] = remember(
            partition_before, answers, None if is_late_after_look else found_empty.get(tp, 0)
        )
    return ClusterSnapshot(
        now_s,
        sources,
        {**before.partitions, **asked} if before else asked,
        _find_started_at(before, asked, now_s),
        asked,
        is_late=before is not None and now_s > answered_at_s + OUTAGE_S,
    )


def _find_next_offset(
    plan: Plan,
    tp: TopicPartition,
    before: PartitionSnapshot | None,
    commit: GroupCommit | None,
) -> int:
    if commit is not None:
        return commit.frontier.source_offset + 1
    return before.next_offset if before is not None else plan.start_offsets[tp]


def _find_started_at(
    before: ClusterSnapshot | None, asked: Mapping[TopicPartition, PartitionSnapshot], now_s: float
) -> float:
    if before is None or any(
        partition.has_progressed and not before.partitions[tp].has_progressed
        for tp, partition in asked.items()
    ):
        return now_s
    return before.started_at_s


def _list_intermediate_ends(
    settings: Settings, clients: Clients, topic_partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Empty when a topic is gone."""
    try:
        return partition_offsets.list_end_offsets(clients.destination_admin, topic_partitions)
    except TopicMissing:
        return {}
    except ClusterUnreachable:
        # of a topic that is gone, the client says the same as of brokers that do not answer
        names = {tp.topic for tp in topic_partitions}
        existing = topics.look_up(settings.destination_cluster, clients.destination_admin, names)
        if existing.keys() >= names:
            raise
        return {}


def _find_purged(
    clients: Clients,
    ends: Mapping[TopicPartition, int],
    commits: Mapping[TopicPartition, GroupCommit],
    before: ClusterSnapshot | None,
) -> set[TopicPartition]:
    """The intermediate partitions that have no record any more, of those where stage two seems to
    have something to read, and nothing is written.
    """
    unread = [
        tp
        for tp, end in ends.items()
        if before is not None
        and before.partitions[tp].intermediate_end == end
        and tp in commits
        and commits[tp].intermediate_offset < end
    ]
    try:
        beginnings = partition_offsets.list_beginning_offsets(clients.destination_admin, unread)
    except TopicMissing:
        return set()
    return {tp for tp, begin in beginnings.items() if begin >= ends[tp]}


def _find_quiet(
    before: ClusterSnapshot,
    topic_partitions: Collection[TopicPartition],
    quiet_s: float,
    now_s: float,
) -> dict[TopicPartition, PartitionSnapshot]:
    """The partitions to look at: they stand still for so long. Of many, those that were
    not looked at for the longest time; all of them when nothing is waited for.
    """
    quiet = [
        (tp, partition)
        for tp in topic_partitions
        if (partition := before.partitions[tp]).progressed_at_s <= now_s - quiet_s
        and partition.is_waiting_for_stage_one
    ]
    quiet.sort(key=lambda row: row[1].looked_at_s)
    return dict(quiet[: visible_records.PARTITIONS_MAX] if quiet_s else quiet)


def _look_at_quiet(
    settings: Settings, clients: Clients, quiet: Mapping[TopicPartition, PartitionSnapshot]
) -> dict[TopicPartition, int]:
    """Of these partitions, those that have nothing visible after the frontier, with the last stable
    offset up to which that was looked for. One that does not answer is none of them: what the
    snapshot asks next says why, as that its topic is another one, or ends before that offset now.
    """
    begins = {
        tp: max(partition.next_offset, partition.empty_up_to) for tp, partition in quiet.items()
    }
    # as of now: what was deleted since the snapshot cannot be read
    beginnings = partition_offsets.list_beginning_offsets(
        clients.source_admin,
        [partition.source for partition in quiet.values()],
        get_request_timeout_s(settings),
    )
    begins = {tp: begin for tp, begin in begins.items() if beginnings[quiet[tp].source] <= begin}
    records = visible_records.read_first_records(
        clients.source_reader,
        {quiet[tp].source: begin for tp, begin in begins.items()},
        {quiet[tp].source: quiet[tp].source_end.offset for tp in begins},
        clients.beat,
    )
    found_empty = {}
    for tp in begins:
        source, end = quiet[tp].source, quiet[tp].source_end.offset
        if source in records:
            record = records[source]
            if record is None or record.offset() >= end:
                found_empty[tp] = end
    return found_empty


def remember(
    before: PartitionSnapshot | None,
    now: PartitionSnapshot,
    found_empty: int | None,
) -> PartitionSnapshot:
    """The snapshot with what has to be remembered of the one before; it was taken at its
    `progressed_at_s`. Pure.

    `found_empty`: up to which offset nothing visible was found between the two snapshots, or 0;
    None when this one is late.
    """
    now_s = now.progressed_at_s
    now = replace(
        now,
        looked_at_s=now.looked_at_s or (before.looked_at_s if before else 0.0),
        gap=_find_gap(before.gap if before else None, now, now_s),
        blocked_since_s=_find_blocked_since(before, now, now_s),
    )
    if before is None:
        return replace(now, has_progressed=not now.is_waiting_for_stage_one)
    now = replace(now, empty_up_to=_find_empty_up_to(before, now, found_empty))
    has_moved = (now.next_offset, now.intermediate_end) != (
        before.next_offset,
        before.intermediate_end,
    )
    # with many partitions, the snapshot before can be old of one in which nothing waited then
    has_waited = before.is_waiting_for_stage_one and now.is_waiting_for_stage_one
    if has_moved or not has_waited:
        return replace(now, has_progressed=True)
    return replace(
        now, has_progressed=before.has_progressed, progressed_at_s=before.progressed_at_s
    )


def _find_gap(gap_before: OpenGap | None, now: PartitionSnapshot, now_s: float) -> OpenGap | None:
    """The gap that is open at stage two. It is of this run: another epoch ends it."""
    if now.commit is None:
        return gap_before
    frontier = now.commit.frontier
    if frontier.gap is None:
        return None
    gap = OpenGap(frontier.source_offset, frontier.gap, now_s)
    return gap_before if gap_before is not None and gap_before[:2] == gap[:2] else gap


def _find_blocked_since(
    before: PartitionSnapshot | None, now: PartitionSnapshot, now_s: float
) -> float | None:
    """Since when an open transaction blocks the source partition at this offset."""
    if now.source_high_watermark <= now.source_end.offset:
        return None
    is_same = before is not None and before.source_end.offset == now.source_end.offset
    since_s = before.blocked_since_s if before is not None and is_same else None
    return now_s if since_s is None else since_s


def _find_empty_up_to(
    before: PartitionSnapshot, now: PartitionSnapshot, found_empty: int | None
) -> int:
    """Up to which offset nothing visible follows the frontier, as far as that is certain."""
    if (
        found_empty is None
        or now.next_offset < before.next_offset
        or now.source_end.leader_epoch != before.source_end.leader_epoch
    ):
        return 0
    # what was deleted before it was looked at was not found empty
    is_read_whole = now.source_beginning <= max(before.next_offset, before.empty_up_to)
    end = max(before.empty_up_to, found_empty if is_read_whole else 0)
    return end if end <= now.source_end.offset else 0
