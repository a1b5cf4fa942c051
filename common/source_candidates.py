"""Source candidates: clusters that have the same topics with the same records at the same offsets;
one is copied from at a time (`source.mode=failover`).

The topic has another identity in each cluster, so an identity cannot say what was copied. The
records can: stage one begins a run on a candidate only when the copy's last records are that
candidate's (`replicator.candidates.tail_comparison`), whether it copied from that candidate before
or not. So no state is kept about candidates. With failover, a frontier identifies the copied topic
by its name alone (`find_copied_identity`), and stage two does not need to know the candidate.

Stage two and the command line ask the source little: how many partitions it has, and where a first
frontier begins. Any candidate can answer (`select_answering`); in single mode there is one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from common import runtime
from common.envelope import compute_identity
from common.errors import (
    AccessRefused,
    ClusterUnreachable,
    ReoError,
    TopicMissing,
    TopicsUnfit,
)
from common.frontier import Frontier
from common.kafka import partition_offsets, topics
from common.kafka.clients import create_admin_client
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.topics import Topic
from common.metrics import SOURCE_ERRORS
from common.routes import Route, TopicPartition
from common.settings import Settings

log = logging.getLogger(__name__)
PAUSE_S = 0.1
SourceTopics = dict[Route, Topic]
LACKS = (AccessRefused, ClusterUnreachable, TopicMissing, TopicsUnfit)
"""What one candidate can lack, and another one have. (A candidate that is the destination itself,
say, is an error of the settings.)
"""


class SourceSnapshot(NamedTuple):
    """The topics and offsets of a candidate at one moment."""

    settings: Settings
    """With this candidate as the only source."""
    sources: SourceTopics
    beginnings: dict[TopicPartition, int]
    """By source partition, like `ends` and `stable_ends`."""
    ends: dict[TopicPartition, int]
    stable_ends: dict[TopicPartition, int]
    """The last stable offsets: up to these the candidate can be copied."""

    @property
    def stable_end_sum(self) -> int:
        """The sum of the last stable offsets, by which candidates are compared. A candidate with a
        hanging transaction falls behind.
        """
        return sum(self.stable_ends.values())


def take_snapshot(
    settings: Settings, known: SourceTopics | None = None
) -> SourceSnapshot | ReoError:
    """A snapshot of the only source of these settings, or why it failed. For `known` topics only
    the offsets are asked.
    """
    timeout_s = get_request_timeout_s(settings)
    try:
        client = create_admin_client(settings.source_cluster, settings)  # each thread needs its own
        sources = (
            known if known is not None else topics.describe_sources(settings, client, timeout_s)
        )
        topic_partitions = topics.list_source_partitions(sources)
        return SourceSnapshot(
            settings,
            sources,
            partition_offsets.list_beginning_offsets(client, topic_partitions, timeout_s),
            partition_offsets.list_end_offsets(client, topic_partitions, timeout_s=timeout_s),
            partition_offsets.list_end_offsets(
                client, topic_partitions, committed_only=True, timeout_s=timeout_s
            ),
        )
    except ReoError as failed:
        SOURCE_ERRORS.labels(settings.source_cluster.bootstrap_servers, type(failed).__name__).inc()
        return failed


def take_snapshots(settings: Settings) -> list[SourceSnapshot | ReoError]:
    """Snapshots of all candidates, in the order of the settings, taken at the same time."""
    return runtime.run_parallel(take_snapshot, map(settings.select_source, settings.sources))


def select_answering(settings: Settings) -> Settings:
    """The settings with the furthest candidate that answers as the only source. When none does in
    `connect_timeout_s`: ClusterUnreachable if any of them is silent, since that one may have what
    others lack; otherwise the first candidate's error.
    """
    return find_furthest(settings)[0]


def find_furthest(settings: Settings) -> tuple[Settings, list[ReoError]]:
    """The same, and the errors of the candidates that do not answer: one of them can have more
    records.
    """
    answering, errors = _list_answering(settings)
    return answering[0], errors


def try_candidates(
    settings: Settings, prepare: Callable[..., SourceTopics], *more: object
) -> SourceTopics:
    """The topics that `prepare` returns with the furthest candidate that lacks nothing; it gets
    that candidate's settings, and `more`. When all that answer lack something, the error is chosen
    as by `select_answering`.
    """
    if len(settings.sources) == 1:
        return prepare(settings, *more)
    answering, errors = _list_answering(settings)
    for candidate in answering:
        try:
            return prepare(candidate, *more)
        except LACKS as reason:
            is_silent = isinstance(reason, ClusterUnreachable)
            if is_silent and isinstance(take_snapshot(candidate), SourceSnapshot):
                raise  # it is the destination
            log.warning(
                "source candidate %s cannot be copied from now: %s",
                candidate.source_cluster.bootstrap_servers,
                reason,
            )
            errors.append(reason)
    raise _choose_error(errors)


def _list_answering(settings: Settings) -> tuple[list[Settings], list[ReoError]]:
    """At least one candidate, the furthest first, and the errors of the others."""
    if len(settings.sources) == 1:
        return [settings], []
    deadline = runtime.monotonic() + settings.connect_timeout_s
    while True:
        results = take_snapshots(settings)
        snapshots = [result for result in results if isinstance(result, SourceSnapshot)]
        errors = [result for result in results if isinstance(result, ReoError)]
        if snapshots:
            snapshots.sort(
                key=lambda snapshot: (len(snapshot.ends), snapshot.stable_end_sum), reverse=True
            )
            return [snapshot.settings for snapshot in snapshots], errors
        if runtime.monotonic() > deadline:
            raise _choose_error(errors)
        runtime.sleep(PAUSE_S)


def _choose_error(errors: list[ReoError]) -> ReoError:
    return next((error for error in errors if isinstance(error, ClusterUnreachable)), errors[0])


def find_copied_identity(settings: Settings, source: Topic, frontiers: Iterable[Frontier]) -> str:
    """The identity of the copied topic in frontiers and envelopes: the topic's; with failover the
    one in the copy's frontiers, else one made of its name.
    """
    if not settings.failover:
        return source.identity
    return next(
        (frontier.source_identity for frontier in frontiers), compute_identity("", source.name, "")
    )


def can_be_same_source(
    settings: Settings, source: Topic, frontier: Frontier, is_of_route: bool
) -> bool:
    """Whether a frontier under another intermediate topic can be of this source topic;
    `is_of_route`: another route has that intermediate topic now.

    With failover a copy that began in single mode keeps the identity that its topic had in one
    cluster, which need not be a candidate any more: it excludes nothing.
    """
    identities = {source.identity, compute_identity("", source.name, "")}
    return frontier.source_identity in identities or (settings.failover and not is_of_route)


def get_request_timeout_s(settings: Settings) -> float:
    """How long to wait for a source: with failover not long, because another one may answer."""
    return settings.source.request_timeout_ms / 1000 if settings.failover else REQUEST_TIMEOUT_S
