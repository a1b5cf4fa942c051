"""Takes snapshots of a run: what both clusters answer to one series of requests, with what is
remembered of the snapshots before (`replicator.partition_snapshot`). A snapshot is never changed,
so that what follows from it (`replicator.run_watch.find_event`) needs neither a cluster nor a
clock. Nobody looks into the intermediate topics, only at their ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from common import runtime
from common.errors import ClusterUnreachable, TopicMissing
from common.kafka import partition_offsets, topics, visible_records
from common.kafka.partition_offsets import GroupCommit
from common.routes import Route, TopicPartition
from common.settings import Settings
from common.source_pool import get_request_timeout_s
from replicator.clients import Clients
from replicator.partition_snapshot import PartitionSnapshot, remember
from replicator.run import Plan

QUIET_S = 1.0
"""A partition that stands still for so long is looked at."""
OUTAGE_S = 2.0
"""A snapshot that ends this long after the previous one may have waited for a broker; no broker
restarts faster.
"""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """All partitions at one moment, by intermediate partition."""

    taken_at_s: float
    """By the monotonic clock, when the last answer had come."""
    sources: Mapping[Route, topics.Topic]
    partitions: Mapping[TopicPartition, PartitionSnapshot]


def describe_sources(settings: Settings, clients: Clients, plan: Plan) -> dict[Route, topics.Topic]:
    """Every route with its source topic as it is now; TopicMissing when a source topic of this
    run is gone.
    """
    sources = topics.describe_sources(
        settings, clients.source_admin, get_request_timeout_s(settings)
    )
    topics.check_none_deleted(plan.sources, sources)
    return sources


def take_snapshot(
    settings: Settings,
    clients: Clients,
    plan: Plan,
    commits: Mapping[TopicPartition, GroupCommit],
    before: ClusterSnapshot | None,
    quiet_s: float = QUIET_S,
) -> ClusterSnapshot:
    """Look at what stood still for so long in the snapshot before, then ask both clusters;
    `commits` were read just before. ClusterUnreachable when one does not answer, TopicMissing when
    a source topic is gone.
    """
    began_at_s = runtime.monotonic()
    found_empty = _look_at_quiet(settings, clients, before, began_at_s - quiet_s) if before else {}
    look_s = runtime.monotonic() - began_at_s
    source_partitions, timeout_s = plan.map_source_partitions(), get_request_timeout_s(settings)
    client, at_source = clients.source_admin, source_partitions.values()
    sources = describe_sources(settings, clients, plan)
    intermediate_ends = _list_intermediate_ends(settings, clients, plan)
    purged = _find_purged(clients, intermediate_ends, commits, before)
    # before the stable ends: records written in between are no open transaction
    high_watermarks = partition_offsets.list_end_offsets(client, at_source, timeout_s=timeout_s)
    beginnings = partition_offsets.list_beginning_offsets(client, at_source, timeout_s)
    stable_ends = partition_offsets.list_stable_ends(client, at_source, timeout_s)
    now_s = runtime.monotonic()
    # a look may be long: it reads over all markers
    is_late = before is not None and now_s - look_s > before.taken_at_s + OUTAGE_S
    partitions = {}
    for tp, source in source_partitions.items():
        partition_before, commit = before.partitions[tp] if before else None, commits.get(tp)
        if commit is not None:
            next_offset = commit.frontier.source_offset + 1
        else:
            next_offset = (
                partition_before.next_offset if partition_before else plan.start_offsets[tp]
            )
        answers = PartitionSnapshot(
            source,
            commit,
            intermediate_ends.get(tp),
            beginnings[source],
            stable_ends[source],
            high_watermarks[source],
            next_offset,
            progressed_at_s=now_s,
            is_purged=tp in purged,
        )
        partitions[tp] = remember(
            partition_before, answers, None if is_late else found_empty.get(tp, 0)
        )
    return ClusterSnapshot(now_s, sources, partitions)


def _list_intermediate_ends(
    settings: Settings, clients: Clients, plan: Plan
) -> dict[TopicPartition, int]:
    """Empty when a topic is gone."""
    try:
        return partition_offsets.list_end_offsets(clients.destination_admin, plan.start_offsets)
    except TopicMissing:
        return {}
    except ClusterUnreachable:
        # of a topic that is gone, the client says the same as of brokers that do not answer
        names = {tp.topic for tp in plan.start_offsets}
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


def _look_at_quiet(
    settings: Settings, clients: Clients, before: ClusterSnapshot, since_s: float
) -> dict[TopicPartition, int]:
    """The partitions that stand still since then and have nothing visible after the frontier, with
    the last stable offset up to which that was looked for. ClusterUnreachable when a partition does
    not answer.
    """
    quiet = {
        tp: partition
        for tp, partition in before.partitions.items()
        if partition.progressed_at_s <= since_s and partition.is_waiting_for_stage_one
    }
    # as of now: what was deleted since the snapshot cannot be read
    beginnings = partition_offsets.list_beginning_offsets(
        clients.source_admin,
        [partition.source for partition in quiet.values()],
        get_request_timeout_s(settings),
    )
    quiet = {
        tp: partition
        for tp, partition in quiet.items()
        if beginnings[partition.source] <= max(partition.next_offset, partition.empty_up_to)
    }
    first_visible = find_first_visible(
        clients,
        {
            partition.source: (
                max(partition.next_offset, partition.empty_up_to),
                partition.source_end.offset,
            )
            for partition in quiet.values()
        },
    )
    return {
        tp: partition.source_end.offset
        for tp, partition in quiet.items()
        if first_visible[partition.source] is None
    }


def find_first_visible(
    clients: Clients, ranges: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int | None]:
    """The offset of the first visible record in each range of a source partition, or None; a range
    ends at a last stable offset or below. ClusterUnreachable when a partition does not answer.
    """
    records = visible_records.read_first_records(
        clients.source_reader,
        {source: begin for source, (begin, _) in ranges.items()},
        {source: end for source, (_, end) in ranges.items()},
        clients.beat,
    )
    silent = ranges.keys() - records.keys()
    if silent:
        raise ClusterUnreachable(
            f"reading {', '.join(map(str, sorted(silent)))}: no record and no end of the partition"
            f" for {visible_records.POLL_S:.0f} s"
        )
    # a message without a value is false
    offsets = {source: record.offset() for source, record in records.items() if record is not None}
    return {
        source: offsets[source] if offsets.get(source, end) < end else None
        for source, (_, end) in ranges.items()
    }
