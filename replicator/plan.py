"""Where the next run begins, and whether it may: from the committed frontiers alone, nothing of stage one's own.

A run must not begin where it cannot be exact. So here, and before every run, the source is held against the frontier (`replicator.source_selection`): still
the same topic, still all that comes after the frontier.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from common import epochs, machine, permissions, positions, source_candidates, topics
from common.errors import ClusterUnreachable, HangingTransaction
from common.frontier import Frontier
from common.positions import Committed
from common.process import Stopping
from common.pulse import Pulse, Reason
from common.routes import Place, Route
from common.settings import Settings
from common.source_candidates import SourceSnapshot
from common.topics import Topic
from replicator import tail_comparison
from replicator.clients import Clients
from replicator.run import Plan
from replicator.source_selection import SourceSelection

log = logging.getLogger(__name__)
PAUSE_S = 0.1
RETRY_S = 2.0


class Planner:
    """Makes plans; waits for stage two where one cannot be made yet."""

    def __init__(self, settings: Settings, clients: Clients, selection: SourceSelection, pulse: Pulse, stopping: Stopping,
                 clock: Callable[[], float] = machine.time) -> None:
        self.settings = settings
        self.clients = clients
        self.selection = selection
        self.pulse = pulse
        self.stopping = stopping
        self.clock = clock
        self.last_sources: dict[Route, Topic] = {}
        """What was copied last."""

    def plan(self) -> Plan | None:
        """The next run; None when the process is told to stop while it waits."""
        backoff_s = self.settings.number("source.backoff_min_ms") / 1000
        while not self.stopping():
            on = source_candidates.select_answering(self.settings)
            permissions.check(on, "run replicator")  # a run that was refused fails in Spark's words: here it is said in ours
            prepared = self._prepare_sources(on)
            commits = self._wait_for_frontiers(topics.intermediates(prepared))
            if commits is None:
                return None
            frontiers = {place: commit.frontier for place, commit in commits.items()}
            chosen = self.selection.select_source(prepared, frontiers)
            if chosen is not None:
                self.clients.use_source(chosen.settings)
                return self._build_plan(chosen, frontiers)
            wait_unless_stopping(backoff_s, self.pulse, self.stopping, "source")
            backoff_s = min(2 * backoff_s, self.settings.number("source.backoff_max_ms") / 1000)
        return None

    def _build_plan(self, chosen: SourceSnapshot, frontiers: Mapping[Place, Frontier]) -> Plan:
        read = [frontier.rule.epoch for frontier in frontiers.values()]
        epoch = epochs.of_run(int(self.clock() * 1000), read, machine.random_bits(epochs.RANDOM_BITS))
        identities = {
            route: source_candidates.find_copied_identity(
                self.settings, source, (frontier for place, frontier in frontiers.items() if place.topic == route.intermediate_topic))
            for route, source in chosen.sources.items()}
        return Plan(epoch, chosen.settings, chosen.sources, identities, {place: frontier.rule.frontier + 1 for place, frontier in frontiers.items()},
                    self._batch_bytes_max(frontiers), tail_comparison.list_last_copied(chosen.sources, frontiers))

    def _batch_bytes_max(self, places: Iterable[Place]) -> int:
        client, cluster = self.clients.destination_admin, self.settings.destination
        return max((topics.bytes_max(client, cluster, name) for name in {place.topic for place in places}), default=0)

    def _prepare_sources(self, on: Settings) -> dict[Route, Topic]:
        """What is to be copied now; waits while patterns fit no topic, unless the end of what is there is asked for."""
        said = False
        while True:
            self.pulse.wait("source")
            sources = topics.prepare(on)
            topics.check_none_gone(self.last_sources, sources)
            if sources or self.settings.stop_at_end or self.stopping():
                self.last_sources = sources
                return sources
            if not said:
                log.info("no source topic fits %s yet: waiting for one", ", ".join(rule.source for rule in self.settings.rules))
                said = True
            machine.sleep(RETRY_S)

    def _wait_for_frontiers(self, places: list[Place]) -> dict[Place, Committed] | None:
        """The frontier of every partition, after stage two had `replicator.drain_s` to read what is on the intermediate topics."""
        drained_by = machine.monotonic() + self.settings.number("replicator.drain_s")
        said = 0.0
        while not self.stopping():
            self.pulse.wait("stage two")
            commits = self.try_read_commits(places)
            missing = [place for place in places if place not in commits]
            if not missing and (machine.monotonic() > drained_by or self._is_drained(commits)):
                return commits
            if missing and machine.monotonic() > said + 10:
                said = machine.monotonic()
                log.info("waiting for stage two to make the frontier of %s", missing)
            machine.sleep(PAUSE_S)
        return None

    def try_read_commits(self, places: Iterable[Place]) -> dict[Place, Committed]:
        """The commits that can be read now: none of them while the cluster is silent or a transaction is undecided."""
        try:
            return positions.committed(self.clients.frontier_reader, places, 2.0)
        except (ClusterUnreachable, HangingTransaction) as later:
            log.debug("the frontier cannot be read yet: %s", later)
            return {}

    def _is_drained(self, commits: dict[Place, Committed]) -> bool:
        try:
            ends = positions.ends(self.clients.destination_admin, commits)
        except ClusterUnreachable as silent:
            log.debug("%s", silent)
            return False
        return all(commits[place].intermediate_offset >= end for place, end in ends.items())


def wait_unless_stopping(seconds: float, pulse: Pulse, stopping: Stopping, reason: Reason) -> None:
    """So long, or until told to stop; with a sign of life all the time."""
    until = machine.monotonic() + seconds
    while machine.monotonic() < until and not stopping():
        pulse.wait(reason)
        machine.sleep(0.05)
