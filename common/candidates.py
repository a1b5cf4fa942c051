"""Identical upstreams: clusters that have the same topics with the same records at the same offsets, copied from one at a time (`source.mode=failover`).

Each has an identity of its own, so an identity cannot say what was copied. The records can: stage one begins a run on a candidate only when the
copy's last records are that candidate's (`replicator.tail_comparison`), whether it copied from it before or not. So nothing has to be remembered of candidates.
A frontier names the copied topic by its name alone (`copied_identity`), and which candidate it was does not matter to stage two.

Stage two and the command line ask the source little: how many partitions it has, where a first frontier begins. Any candidate tells them
(`answering`); in single mode there is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from common import machine, positions, topics
from common.errors import ReoError
from common.frontier import Frontier
from common.kafka_clients import REQUEST_TIMEOUT_S, admin
from common.metrics import SOURCE_ERRORS
from common.origin import identity_of
from common.routes import Place, Route
from common.settings import Settings
from common.topics import Topic

PAUSE_S = 0.1
Sources = dict[Route, Topic]


class Look(NamedTuple):
    """What a candidate has now."""

    settings: Settings
    """With this candidate as the only source."""
    sources: Sources
    beginnings: dict[Place, int]
    """By source partition, like all of it."""
    ends: dict[Place, int]
    stable: dict[Place, int]
    """The last stable offsets: what can be copied from it."""

    @property
    def watermark(self) -> int:
        """How far it can be copied, all topics and partitions together: what candidates are compared by. One with a transaction that hangs falls behind."""
        return sum(self.stable.values())


def look(settings: Settings, known: Sources | None = None) -> Look | ReoError:
    """The one source of these settings, or why it cannot be looked at; of topics that are `known` only where they stand is asked."""
    timeout_s = request_timeout_s(settings)
    try:
        client = admin(settings.source, settings)  # each thread has its own
        sources = known if known is not None else topics.sources(settings, client, timeout_s)
        places = [route.source(partition) for route, source in sources.items() for partition in range(source.partitions)]
        return Look(settings, sources, positions.beginnings(client, places, timeout_s), positions.ends(client, places, timeout_s=timeout_s),
                    positions.ends(client, places, committed_only=True, timeout_s=timeout_s))
    except ReoError as failed:
        SOURCE_ERRORS.labels(settings.source.bootstrap_servers, type(failed).__name__).inc()
        return failed


def looks(settings: Settings) -> list[Look | ReoError]:
    """All candidates, in the order of the settings, asked at the same time."""
    return machine.all_at_once(look, map(settings.on, settings.sources))


def answering(settings: Settings) -> Settings:
    """The settings with one source: the candidate that is furthest of those that answer. Waits `connect_timeout_s` for one; then the first one's error."""
    if len(settings.sources) == 1:
        return settings
    deadline = machine.monotonic() + settings.number("connect_timeout_s")
    while True:
        found = looks(settings)
        there = [seen for seen in found if isinstance(seen, Look)]
        if there:
            return max(there, key=lambda seen: (len(seen.ends), seen.watermark)).settings
        if machine.monotonic() > deadline and isinstance(found[0], ReoError):
            raise found[0]
        machine.sleep(PAUSE_S)


def copied_identity(settings: Settings, source: Topic, frontiers: Iterable[Frontier]) -> str:
    """What frontiers and origins call the copied topic: its identity; with failover what the copy's frontiers call it already, else its name's."""
    if not settings.failover:
        return source.identity
    return next((frontier.source_identity for frontier in frontiers), identity_of("", source.name, ""))


def request_timeout_s(settings: Settings) -> float:
    """How long a source is waited for: with failover there may be a better one."""
    return settings.number("source.request_timeout_ms") / 1000 if settings.failover else REQUEST_TIMEOUT_S
