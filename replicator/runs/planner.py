"""Where the next run begins, and whether it may begin: from the committed frontiers alone. Stage
one keeps no state of its own.

    1. prepare   the source topics, and the topics of the destination
    2. wait      until every partition has a frontier
    3. install   the epoch of the run at every frontier (`replicator.runs.epochs`); stage two has
                 then read all that older runs have written, and the frontiers stay where they are
    4. check     the source against these frontiers

A run must not begin where it cannot be exact. So before every run the source is compared with the
frontier (`replicator.runs.source_selection`): it must still be the same topic, and still have
everything after the frontier.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import replace

from common import clock, source_pool
from common.errors import (
    ClusterUnreachable,
    HangingTransaction,
    ReoError,
    SourceRefused,
    SourceTruncated,
    Stop,
    TopicMissing,
)
from common.frontier import Frontier
from common.kafka import partition_offsets, permissions, source_topics, topic_creation, topics
from common.kafka.clients import create_reader
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.partition_offsets import GroupCommit
from common.kafka.route_topics import load_route_topics
from common.kafka.topics import Topic
from common.liveness import Liveness, Reason
from common.route_states import HaltedRoutes, describe_halted
from common.routes import Route, TopicPartition, name_some
from common.settings import Settings
from common.source_pool import SourcePool, SourceSnapshot
from common.stage_process import Stopping
from replicator.runs import source_selection, tail_comparison
from replicator.runs.clients import Clients
from replicator.runs.epochs import EpochInstaller
from replicator.runs.run import Plan

log = logging.getLogger(__name__)
PAUSE_S = 0.1
RETRY_S = 2.0
PREPARE_AGAIN_S = 5.0
"""When the topics are prepared again while a frontier is missing, or nothing can be written: an
intermediate topic may have been deleted, and its frontiers with it.
"""
LIST_TIMEOUT_S = 2.0
"""A resume, or the end of the process, waits for it."""
LOG_S = 10.0


class Planner:
    """Makes plans; waits for stage two while the frontiers do not show the epoch yet."""

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        pool: SourcePool,
        liveness: Liveness,
        stopping: Stopping,
        halted: HaltedRoutes,
        on_waiting: Callable[[], object] = lambda: None,
    ) -> None:
        self.settings = settings
        self.clients = clients
        self.pool = pool
        self.liveness = liveness
        self.stopping = stopping
        self.halted = halted
        self.left_out: frozenset[str] = frozenset()
        """The intermediate topics of the routes that were halted at the last plan: `settings` have
        none of them.
        """
        self.on_waiting = on_waiting
        """Called while stage two is waited for; its error ends the wait."""
        self.epochs = EpochInstaller(clients.empty_envelopes)
        self.last_sources: dict[Route, Topic] = {}
        """The source topics of the previous plan."""
        self.logged_at_s = 0.0
        self.prepare_again_at_s = 0.0
        """When a run prepares again what appears while it lives."""

    def plan(self) -> Plan | None:
        """The plan of the next run; None when the process is asked to stop while it waits. Another
        call returns a plan with the same epoch, until `begin_run`.
        """
        backoff_s = self.settings.source.backoff_min_ms / 1000
        self.logged_at_s = clock.monotonic()
        while not self.stopping():
            self._leave_out_halted()
            prepared = source_pool.try_sources(self.settings, self._prepare_sources)
            if not prepared and self.left_out and not self.settings.stop_at_end:
                self._wait_for_resume()
                continue
            frontiers = self._install_epoch(source_topics.map_source_partitions(prepared))
            if frontiers is None:
                continue
            try:
                source = source_selection.select_source(
                    self.pool, prepared, frontiers, self.liveness.beat
                )
            # of several sources, one that was refused hides that another one is truncated
            except (SourceTruncated, SourceRefused):
                if self._has_moved(frontiers):
                    continue
                raise
            # another source can have partitions that the one before it did not have
            if source is not None and frontiers.keys() >= set(
                source_topics.list_intermediate_partitions(source.sources)
            ):
                self.clients.use_source(source.settings)
                # an intermediate topic was deleted just now: the next round creates it
                with suppress(TopicMissing):
                    return self._build_plan(source, frontiers)
                continue
            wait_unless_stopping(backoff_s, self.liveness, self.stopping, "source")
            backoff_s = min(2 * backoff_s, self.settings.source.backoff_max_ms / 1000)
        return None

    @property
    def has_switched(self) -> bool:
        """Whether a route was paused or resumed since the last plan."""
        return self.halted.topics != self.left_out

    def _leave_out_halted(self) -> None:
        if not self.has_switched:
            return
        self.left_out = self.halted.topics
        self.pool.settings = self.settings = self.settings.leave_out(self.left_out)
        self.last_sources = {
            route: source
            for route, source in self.last_sources.items()
            if route.intermediate_topic not in self.left_out
        }

    def _wait_for_resume(self) -> None:
        """No route is to be copied: there is certainly nothing to do."""
        log.info("%s: waiting for `reo resume`", describe_halted(self.halted.halted))
        self.liveness.lag.keep_only(())
        list_again_at_s = clock.monotonic() + PREPARE_AGAIN_S
        while not self.stopping() and not self.has_switched:
            self.halted.report()
            if self.halted.is_answered:
                self.liveness.set_ready()
            else:
                self.liveness.report_waiting("clusters")
            clock.sleep(PAUSE_S)
            if clock.monotonic() > list_again_at_s:
                list_again_at_s = clock.monotonic() + PREPARE_AGAIN_S
                with suppress(ReoError):  # nothing needs the source now
                    if source_topics.list_routes(
                        self.settings, self.clients.source_admin, LIST_TIMEOUT_S
                    ):
                        return

    def is_prepared(self, plan: Plan, now: Mapping[Route, Topic]) -> bool:
        """Whether stage two has committed a frontier for each partition that the source topics have
        now and that this plan has not. Until then the run of the plan need not end. Creates what
        they need, every PREPARE_AGAIN_S.
        """
        self.halted.add(now)
        if clock.monotonic() > self.prepare_again_at_s:
            self.prepare_again_at_s = clock.monotonic() + PREPARE_AGAIN_S
            timeout_s = min(plan.settings.connect_timeout_s, int(REQUEST_TIMEOUT_S))
            settings = replace(plan.settings, connect_timeout_s=timeout_s)
            known = {route for route, source in now.items() if plan.sources.get(route) == source}
            try:
                topic_creation.create_missing(
                    load_route_topics(settings), self.liveness.beat, known
                )
            except ClusterUnreachable as silent:
                log.warning("new topics or partitions cannot be prepared now: %s", silent)
            except Stop:  # the next plan repairs or names it
                return True
        new = source_topics.map_source_partitions(now).keys() - plan.start_offsets.keys()
        missing = new - self.try_read_commits(new).keys()
        if missing:
            self._log_waiting(sorted(missing), {})
        return not missing

    def begin_run(self) -> None:
        """A run with the last plan begins: the next plan has another epoch."""
        self.epochs.is_used = True

    def _has_moved(self, frontiers: Mapping[TopicPartition, Frontier]) -> bool:
        """Whether these frontiers are not the committed ones, or nobody can say: then what the
        source no longer has may be copied. A process can stand still after it has read them, while
        stage two goes on and the copied records are deleted at the source. And a transaction whose
        records are visible can still have offsets that are not: then nobody can say.
        """
        with closing(create_reader(self.settings.destination_cluster, self.settings)) as reader:
            try:
                commits = partition_offsets.read_commits(reader, frontiers, REQUEST_TIMEOUT_S)
            except (ClusterUnreachable, HangingTransaction) as later:
                log.warning(
                    "the source lacks records after the frontier; whether they are copied cannot"
                    " be told yet: %s",
                    later,
                )
                return True
        return any(
            tp not in commits or commits[tp].frontier != frontier
            for tp, frontier in frontiers.items()
        )

    def _build_plan(
        self, snapshot: SourceSnapshot, frontiers: Mapping[TopicPartition, Frontier]
    ) -> Plan:
        identities = {
            route: source_pool.find_copied_identity(
                self.settings,
                source,
                (
                    frontier
                    for tp, frontier in frontiers.items()
                    if tp.topic == route.intermediate_topic
                ),
            )
            for route, source in snapshot.sources.items()
        }
        return Plan(
            self.epochs.epoch,
            snapshot.settings,
            snapshot.sources,
            identities,
            {tp: frontier.source_offset + 1 for tp, frontier in frontiers.items()},
            self._find_message_bytes_max(frontiers),
            tail_comparison.list_last_copied(snapshot.sources, frontiers),
        )

    def _find_message_bytes_max(self, topic_partitions: Iterable[TopicPartition]) -> dict[str, int]:
        client, cluster = self.clients.destination_admin, self.settings.destination_cluster
        return {
            name: topics.get_message_bytes_max(client, cluster, name)
            for name in sorted({tp.topic for tp in topic_partitions})
        }

    def _prepare_sources(self, settings: Settings) -> dict[Route, Topic]:
        """The source topics to copy now. While patterns match no topic it waits, unless
        `stop_at_end` is set.
        """
        # without it, a run without permission fails with Spark's message, which names no ACL
        permissions.check_permissions(settings, "run replicator")
        is_logged = False
        while True:
            self.liveness.report_waiting("source")
            state = load_route_topics(settings)
            self.halted.add(state.sources)  # one that does not fit can stop alone
            sources = topic_creation.create_missing(state, self.liveness.beat)
            source_topics.check_none_deleted(self.last_sources, sources)
            if sources or self.left_out or self.settings.stop_at_end or self.stopping():
                self.last_sources = sources
                return sources
            if not is_logged:
                log.info(
                    "no source topic matches %s yet: waiting for one",
                    ", ".join(map(str, self.settings.rules)),
                )
                is_logged = True
            clock.sleep(RETRY_S)

    def _install_epoch(
        self, source_partitions: Mapping[TopicPartition, TopicPartition]
    ) -> dict[TopicPartition, Frontier] | None:
        """The frontiers, when each of them shows the epoch of the next run. None when the topics
        have to be prepared again, a route was paused or resumed, or the process is asked to stop.
        `source_partitions` is by intermediate partition.
        """
        prepare_again_at_s = clock.monotonic() + PREPARE_AGAIN_S
        while not self.stopping() and not self.has_switched:
            self.liveness.report_waiting("stage two")
            self.on_waiting()
            commits = self._read_commits(source_partitions)
            if commits is None:
                prepare_again_at_s = clock.monotonic() + PREPARE_AGAIN_S
                clock.sleep(PAUSE_S)
                continue
            missing = [tp for tp in source_partitions if tp not in commits]
            waiting = {} if missing else self.epochs.find_waiting(commits, source_partitions)
            if not missing and not waiting:
                return {tp: commit.frontier for tp, commit in commits.items()}
            self._log_waiting(missing, waiting)
            is_undelivered = not waiting.keys().isdisjoint(self.epochs.empty_envelopes.undelivered)
            if (missing or is_undelivered) and clock.monotonic() > prepare_again_at_s:
                return None
            clock.sleep(PAUSE_S)
        return None

    def _log_waiting(
        self, missing: list[TopicPartition], waiting: Mapping[TopicPartition, GroupCommit]
    ) -> None:
        """What stage two has to do before the run can begin, every LOG_S."""
        if clock.monotonic() <= self.logged_at_s + LOG_S:
            return
        self.logged_at_s = clock.monotonic()
        if missing:
            log.info("waiting for stage two to commit the first frontier of %s", name_some(missing))
            return
        try:
            ends = partition_offsets.list_end_offsets(self.clients.destination_admin, waiting)
        except (ClusterUnreachable, TopicMissing) as unknown:
            log.info("waiting for stage two: %s", unknown)
            return
        unread = {
            tp: ends[tp] - commit.intermediate_offset
            for tp, commit in waiting.items()
            if ends[tp] > commit.intermediate_offset
        }
        if not unread:  # its next commit shows the epoch
            return
        first, *others = sorted(unread, key=lambda tp: -unread[tp])
        log.info(
            "waiting for stage two to read %d intermediate records of %s%s",
            unread[first],
            first,
            f", {name_some([f'{unread[tp]} of {tp}' for tp in others])}" if others else "",
        )

    def try_read_commits(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, GroupCommit]:
        """The commits, as of before any open transaction: stage two goes on while a run is planned,
        too. Empty while the cluster does not answer.
        """
        return self._read_commits(topic_partitions) or {}

    def _read_commits(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, GroupCommit] | None:
        """The same; None while the cluster does not answer."""
        try:
            return partition_offsets.read_commits(
                self.clients.frontier_reader, topic_partitions, 2.0
            )
        except (ClusterUnreachable, HangingTransaction) as later:
            log.debug("the frontier cannot be read yet: %s", later)
            return None


def wait_unless_stopping(
    seconds: float, liveness: Liveness, stopping: Stopping, reason: Reason
) -> None:
    """Wait so many seconds, or until the process is asked to stop; the heartbeat continues."""
    deadline = clock.monotonic() + seconds
    while clock.monotonic() < deadline and not stopping():
        liveness.report_waiting(reason)
        clock.sleep(0.05)
