"""Whether a source can be copied from: its topic is the one that was copied, has the last copied
records, and has everything that follows them.

It can be copied from when

1. it answers, and has as many partitions as the copy,
2. it still has what follows the frontier, and is at least as far as the copy,
3. its topics allow an exact copy (`topic_creation.prepare_topics`: no cycle, sizes, partitions),
4. its records are the copy's records: the last one (`replicator.runs.last_record_check`), with
   failover also those before it (`replicator.runs.tail_comparison`).

In single mode a condition that is not met ends the service. With failover another source is tried
(`common.source_pool`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from common import source_pool
from common.errors import ReoError, SourceTruncated
from common.frontier import Frontier
from common.kafka import permissions, source_topics, topic_creation
from common.kafka.clients import create_admin_client, create_reader
from common.routes import TopicPartition
from common.settings import Settings
from common.source_pool import SourcePool, SourceSnapshot, SourceTopics
from replicator.runs import last_record_check, tail_comparison
from replicator.runs.clients import SINGLE_RECORD_FETCH

Frontiers = Mapping[TopicPartition, Frontier]
"""By intermediate partition."""


class Behind(ReoError):
    """The source does not have yet what was already copied; it may catch up."""


def select_source(
    pool: SourcePool,
    prepared: SourceTopics,
    frontiers: Frontiers,
    on_progress: Callable[[], None],
) -> SourceSnapshot | None:
    """The source of the next run, or None when there is none now; a Stop when a restart would not
    help.
    """
    if not pool.settings.failover:
        return inspect_single_source(pool.settings, prepared, frontiers, on_progress)
    return pool.select(
        lambda snapshot: check_offsets(snapshot, frontiers),
        lambda snapshot: check_copyable(snapshot, prepared, frontiers, on_progress),
    )


def inspect_single_source(
    settings: Settings,
    prepared: SourceTopics,
    frontiers: Frontiers,
    on_progress: Callable[[], None] = lambda: None,
) -> SourceSnapshot:
    """Single mode: a snapshot of the source if it can be copied from, else a Stop. The identity is
    checked first: another topic's offsets mean nothing.
    """
    _check_identities(prepared, frontiers)
    snapshot = source_pool.take_snapshot(settings, prepared)
    if isinstance(snapshot, ReoError):
        raise snapshot
    source_pool.report_stable_ends(snapshot)
    try:
        _check_single_source(snapshot, frontiers, on_progress)
    except SourceTruncated:
        # the topic may have been recreated between two requests
        new_snapshot = source_pool.take_snapshot(settings)
        if isinstance(new_snapshot, SourceSnapshot):
            _check_identities(new_snapshot.sources, frontiers)
        raise
    return snapshot


def _check_identities(sources: SourceTopics, frontiers: Frontiers) -> None:
    for route, _, frontier in tail_comparison.match_routes(sources, frontiers):
        source_topics.check_identity(frontier.source_identity, sources[route])


def _check_single_source(
    snapshot: SourceSnapshot, frontiers: Frontiers, on_progress: Callable[[], None]
) -> None:
    for _, tp, frontier in tail_comparison.match_routes(snapshot.sources, frontiers):
        _check_beginning(snapshot, tp, frontier)
        if snapshot.ends[tp] <= frontier.source_offset:
            raise SourceTruncated(
                f"{tp} ends at offset {snapshot.ends[tp]}, but records up to"
                f" {frontier.source_offset} were copied: the source lost its newest records. The"
                " copy has records that the source no longer has; copy to a new destination.topic",
                topic=tp.topic,
            )
    check_copied_history(snapshot, frontiers, on_progress)


def check_copied_history(
    snapshot: SourceSnapshot,
    frontiers: Frontiers,
    on_progress: Callable[[], None] = lambda: None,
) -> set[TopicPartition]:
    """The source partitions that have their last copied record; SourceTruncated when this cluster
    has lost one.
    """
    copied = tail_comparison.list_last_copied(snapshot.sources, frontiers)
    if not copied:
        return set()
    consumer = create_reader(
        snapshot.settings.source_cluster, snapshot.settings, **SINGLE_RECORD_FETCH
    )
    try:
        return last_record_check.check_source_history(
            snapshot.settings,
            create_admin_client(snapshot.settings.source_cluster, snapshot.settings),
            consumer,
            copied,
            on_progress,
        )
    finally:
        consumer.close()


def _check_beginning(snapshot: SourceSnapshot, tp: TopicPartition, frontier: Frontier) -> None:
    next_offset, begin = frontier.source_offset + 1, snapshot.beginnings[tp]
    if begin > next_offset:
        filter_note = (
            ", and nothing tells whether filter.sql would have let them pass"
            if snapshot.settings.filter.sql
            else ""
        )
        raise SourceTruncated(
            f"{tp} begins at offset {begin} now, but the copy continues at {next_offset}:"
            f" {begin - next_offset} offsets were deleted at the source before they were copied"
            f" (retention, or kafka-delete-records){filter_note}. These records cannot be copied;"
            " for an exact copy of what is left, copy to a new destination.topic",
            topic=tp.topic,
        )


def check_offsets(snapshot: SourceSnapshot, frontiers: Frontiers) -> None:
    """Check conditions 1 and 2 for a source that answers."""
    for _, tp, frontier in tail_comparison.match_routes(snapshot.sources, frontiers):
        if tp not in snapshot.ends:
            raise Behind(f"{tp} does not exist there")
        _check_beginning(snapshot, tp, frontier)
        if snapshot.ends[tp] <= frontier.source_offset:
            raise Behind(
                f"{tp} ends there at offset {snapshot.ends[tp]}, and records up to"
                f" {frontier.source_offset} were copied: it is behind, was truncated, or was"
                " recreated"
            )
        if frontier.last_record and snapshot.stable_ends[tp] <= frontier.last_record.source_offset:
            raise Behind(
                f"{tp} has an open transaction there at offset {snapshot.stable_ends[tp]},"
                f" and the record at offset {frontier.last_record.source_offset} was copied: it is"
                " behind, or it lost the end of that transaction"
            )


def check_copyable(
    snapshot: SourceSnapshot,
    prepared: SourceTopics,
    frontiers: Frontiers,
    on_progress: Callable[[], None],
) -> None:
    """Check conditions 3 and 4 for a source that is at least as far as the copy."""
    if snapshot.sources != prepared:
        permissions.check_permissions(snapshot.settings, "run replicator")
        topic_creation.prepare_topics(snapshot.settings, on_progress)
    same_last = check_copied_history(snapshot, frontiers, on_progress)
    compared = tail_comparison.compare_tails(snapshot, frontiers, same_last, on_progress)
    source_pool.report_compared(snapshot, compared)
