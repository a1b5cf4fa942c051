"""The process of stage one: plan a run, start it, watch it, and repeat until asked to stop or, with
`--stop-at-end`, until everything is copied.

The JVM starts immediately, in parallel with the planning, because each takes seconds. A plan does
not get old while the JVM starts: its epoch is installed, so the frontiers stay where they are until
the run writes. If another run begins in the meantime, or stage two begins again, the first snapshot
shows it. What the source loses in the meantime, the first snapshot compares, too
(`replicator.runs.source_losses`).

All runs use the same JVM. A failed query does not resume from Spark's checkpoint; a new run from
the frontier replaces it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import StreamingQueryException

from common import clock, failpoints, source_pool, stop_at_end
from common.errors import (
    AccessRefused,
    ClusterUnreachable,
    SourceRecreated,
    SourceTruncated,
    StageFailed,
    Stop,
    TopicMissing,
)
from common.kafka import permissions, source_topics, topic_creation
from common.liveness import Liveness
from common.metrics import EPOCH, RUNS
from common.route_states import HaltedRoutes, build_waiting_error
from common.routes import TopicPartition
from common.settings import Settings
from common.source_pool import SourcePool, get_request_timeout_s
from common.stage_process import Stopping
from common.stop_at_end import Target, Targets
from replicator.refused_records import DamagedBatch
from replicator.runs import end_reasons
from replicator.runs.clients import Clients
from replicator.runs.end_reasons import Event, State
from replicator.runs.planner import Planner, wait_unless_stopping
from replicator.runs.run import Engine, Plan, Query
from replicator.runs.watch import Watch
from replicator.spark import session, spark_master

log = logging.getLogger(__name__)
WATCH_S = 0.5
"""How often the watch is asked; with many partitions it looks less often (`replicator.runs.watch`).
"""
PLAN_AGAIN_S = 0.5
"""When the next plan is made while nobody can tell whether everything is copied."""
COMMITTED_S = 10.0
"""In this time stage two commits an envelope that it has to read; otherwise a new plan asks for the
reason.
"""
LOG_S = 10.0
BACKOFF_S = (0.2, 1.0, 3.0, 10.0)
Left = Literal["nothing", "records", "unknown"]


class Stage:
    """One process; `state` moves by `replicator.runs.end_reasons.NEXT`."""

    def __init__(
        self,
        settings: Settings,
        stopping: Stopping,
        engine: Engine,
        partitions: int,
        state_file: Path | None = None,
    ) -> None:
        self.settings = settings
        self.partitions = partitions
        """The number of source partitions when the engine was started."""
        self.stopping = stopping
        self.engine = engine
        self.liveness = Liveness("replicator")
        self.clients = Clients(settings, self.liveness.beat)
        self.pool = SourcePool(settings, state_file)
        self.halted = HaltedRoutes(settings)
        # a JVM that does not start, or a filter that it refuses, is no reason to wait for stage two
        self.planner = Planner(
            settings,
            self.clients,
            self.pool,
            self.liveness,
            stopping,
            self.halted,
            engine.count_slots,
        )
        self.targets: dict[TopicPartition, Target] = {}
        """With `--stop-at-end`, by intermediate partition: fixed by the first plan that has it."""
        self.logged_at_s = -LOG_S
        self.state: State = "planned"
        self.failures = 0
        self.damage: tuple[DamagedBatch, int] | None = None
        """Why the last query failed, and where its run began in this partition."""

    def run(self) -> float | None:
        """Run after run, until `done`. Returns, with `--stop-at-end`, when the plan was begun that
        left nothing to copy (`clock.monotonic`); None when it was asked to stop before.
        """
        ended = None
        while self.state != "done":
            try:
                ended = self._run_until_stop()
            except Stop as stop:
                self.halted.stop(stop)
        log.info("stage one has stopped")
        return ended

    def _run_until_stop(self) -> float | None:
        complete_at = None
        while self.state != "done":
            began_at = clock.monotonic()
            failpoints.hit("one: ready")
            # the JVM says whether the filter is valid, also where nothing is left to copy
            must_start_first = self.settings.stop_at_end and bool(self.settings.filter.sql)
            plan = self.planner.plan() if not must_start_first or self._wait_for_slots() else None
            failpoints.hit("one: planned")
            if plan is None:
                self._apply("stopped")
                continue
            left = self._find_left(plan) if self.settings.stop_at_end else "records"
            if left == "records":
                self._run(plan)
            elif left == "nothing":
                if self.halted.topics:
                    raise build_waiting_error(self.halted.halted)
                failpoints.hit("one: drained")
                self._apply("complete")
                complete_at = began_at
            else:
                wait_unless_stopping(PLAN_AGAIN_S, self.liveness, self.stopping, "clusters")
        return complete_at

    def _find_left(self, plan: Plan) -> Left:
        """With `--stop-at-end`: what is left to copy; "nothing" only when every frontier has
        reached its target, and the destination shows it. "unknown": another plan has to tell.
        """
        try:
            # a route that was paused gets its targets when it is resumed
            new = {
                tp: source
                for tp, source in plan.map_source_partitions().items()
                if tp not in self.targets
            }
            if new:
                targets = stop_at_end.find_source_targets(self.clients.source_admin, new)
                if not self._is_same_source(plan):
                    return "unknown"
                self.targets |= targets
            behind = {
                tp: self.targets[tp]
                for tp, start_offset in plan.start_offsets.items()
                if start_offset < self.targets[tp].source_offset
            }
            left = self._look_at_source(plan, behind) if behind else "nothing"
        except ClusterUnreachable as silent:
            log.warning("whether everything is copied cannot be told yet: %s", silent)
            return "unknown"
        if left != "nothing":
            return left
        if self._is_complete(plan):
            return "nothing"
        if clock.monotonic() > self.logged_at_s + LOG_S:
            self.logged_at_s = clock.monotonic()
            log.info(
                "everything is copied, say the frontiers, but the destination does not show it:"
                " waiting until stage two has compared them"
            )
        return "unknown"

    def _look_at_source(self, plan: Plan, behind: Targets) -> Left:
        """Whether the source has records before the targets of these partitions. When it has none,
        the watch has stated that, and stage two is waited for to commit it. SourceTruncated when
        the source has lost what was copied, or what was not.
        """
        watch = Watch(plan.settings, self.clients, plan, self.liveness.lag, quiet_s=0.0)
        for _ in range(2):
            before = watch.last_snapshot
            if self._evaluate_run(watch) is not None or watch.last_snapshot is before:
                return "unknown"
        ends = {tp: target.source_offset for tp, target in behind.items()}
        if not self.settings.failover:  # another cluster that ends earlier can be behind
            stop_at_end.check_source_ends(
                self.clients.source_admin,
                {watch.source_partitions[tp]: end for tp, end in ends.items()},
                lambda: self._is_same_source(plan),
            )
        if watch.has_records_before(ends):
            return "records"
        deadline = clock.monotonic() + COMMITTED_S
        while clock.monotonic() < deadline and not self.stopping():
            if not stop_at_end.list_behind(behind, self.planner.try_read_commits(behind)):
                return "nothing"
            wait_unless_stopping(0.05, self.liveness, self.stopping, "stage two")
        return "unknown"

    def _is_complete(self, plan: Plan) -> bool:
        """Whether the targets are reached, also by the frontiers as they are now (stage two may
        have moved one back since the plan was made), and the destination shows what these say.
        """
        targets = {tp: self.targets[tp] for tp in plan.start_offsets}
        commits = self.planner.try_read_commits(plan.start_offsets)
        return (
            commits.keys() >= plan.start_offsets.keys()
            and not stop_at_end.list_behind(targets, commits)
            and stop_at_end.has_copied_records(
                self.clients.destination_admin,
                self.clients.destination_reader,
                plan.settings,
                plan.sources,
                commits,
                self.clients.beat,
            )
        )

    def _is_same_source(self, plan: Plan) -> bool:
        """Whether the topics that were asked are those of the plan; the next plan names one that
        was recreated since.
        """
        return plan.sources == source_topics.describe_sources(
            plan.settings, self.clients.source_admin, get_request_timeout_s(plan.settings)
        )

    def _run(self, plan: Plan) -> None:
        if not self._wait_for_slots():
            self._apply("stopped")
            return
        slots = spark_master.count_slots(self.settings, self.partitions)
        if slots < len(plan.start_offsets):
            raise StageFailed(
                f"the source has {len(plan.start_offsets)} partitions now, this JVM has {slots}"
                " slots: stage one restarts with more slots"
            )
        log.info(
            "run with epoch %(epoch)d begins at %(starts)s",
            {"epoch": plan.epoch, "starts": plan.map_source_offsets()},
        )
        EPOCH.set(plan.epoch)
        self.planner.begin_run()
        watch = Watch(plan.settings, self.clients, plan, self.liveness.lag)
        self.liveness.lag.keep_only(watch.source_partitions.values())
        try:
            query = self.engine.start(plan)
            self._apply("started")
            failpoints.hit("one: query started")
            try:
                event = self._follow(query, watch)
            except Stop as stop:
                self.halted.stop(stop)
                event = "switched"
            self.liveness.report_waiting("spark")
            failure = query.exception() if event == "failed" else None
            RUNS.labels(event).inc()
            log.info(
                "run with epoch %(epoch)d ended: %(reason)s", {"epoch": plan.epoch, "reason": event}
            )
            if event != "stopped" and query.isActive:  # a process that stops kills its JVM
                query.stop()
        # the query does not stop within spark.sql.streaming.stopTimeout, because a broker is away
        except Py4JJavaError as failed:
            raise StageFailed(
                f"the JVM of stage one must be restarted: {end_reasons.describe_failure(failed)}"
            ) from None
        except (Py4JError, OSError) as lost:  # py4j raises the socket's own errors too
            if self.stopping():  # SIGTERM has reached the JVM too
                self._apply("stopped")
                return
            raise StageFailed(f"the JVM of stage one is gone: {lost}") from None
        failpoints.hit("one: run ended")
        self._apply(event)
        if event == "failed":
            log.warning("the query failed: %s", end_reasons.describe_failure(failure))
            self._check_damage(plan, failure)
            self._pause()
        elif event != "stalled":
            self.failures = 0

    def _follow(self, query: Query, watch: Watch) -> Event:
        """Watch the run until it ends."""
        while True:
            if self.stopping():
                return "stopped"
            end_event = end_reasons.find_end_event(query)
            if end_event is not None:
                return end_event
            self.halted.report()
            if self.planner.has_switched:
                return "switched"
            event = self._evaluate_run(watch)
            if event is not None and (event != "grown" or self._is_prepared(watch)):
                return event
            # `end_reasons.find_end_event` handles a failed query
            with contextlib.suppress(StreamingQueryException):
                query.awaitTermination(WATCH_S)

    def _is_prepared(self, watch: Watch) -> bool:
        """Whether a new run can begin at once with all that the source has now."""
        now = watch.last_snapshot
        return now is not None and self.planner.is_prepared(watch.plan, now.sources)

    def _evaluate_run(self, watch: Watch) -> Event | None:
        """Take one snapshot and evaluate it; None while a cluster does not answer."""
        self.liveness.beat()
        health_event = self.pool.poll(watch.source_partitions.values())
        if health_event:
            return health_event
        try:
            event = self._evaluate_sample(watch)
        except ClusterUnreachable as unreachable:
            log.warning("the positions cannot be read now: %s", unreachable)
            self.liveness.report_waiting("clusters")
            return None
        except (SourceRecreated, SourceTruncated, TopicMissing, AccessRefused) as failed:
            if not self.settings.failover:
                raise
            self.pool.report_end_of_run(failed)
            return "lost"
        self._report_readiness(event, watch)
        return event

    def _report_readiness(self, event: Event | None, watch: Watch) -> None:
        """Ready: both clusters have just answered, and every partition of the run makes progress or
        has nothing to copy.
        """
        if event in (None, "grown") and self.state == "running" and watch.is_progressing():
            self.liveness.set_ready()
        else:
            self.liveness.report_waiting("spark" if self.state == "running" else "stage two")

    def _evaluate_sample(self, watch: Watch) -> Event | None:
        try:
            chosen = watch.choose_partitions()
            return watch.observe(chosen, self.planner.try_read_commits(chosen)) if chosen else None
        except (TopicMissing, SourceTruncated):
            # names a topic that was deleted or recreated while the snapshot was taken
            watch.check_sources()
            raise

    def _wait_for_slots(self) -> bool:
        """Wait until the engine has a slot for each partition; False when asked to stop before. On
        a cluster, slots come and go with executors.
        """
        logged_at = clock.monotonic()
        while not self.stopping():
            self.liveness.report_waiting("spark")
            slots = self.engine.count_slots()
            if slots is not None and slots >= self.partitions:
                return True
            if slots is not None and clock.monotonic() > logged_at + 10:
                logged_at = clock.monotonic()
                log.warning(
                    "waiting for the cluster's executors: %d slots, %d are needed, one for each"
                    " partition",
                    slots,
                    self.partitions,
                )
            clock.sleep(0.05)
        return False

    def _check_damage(self, plan: Plan, failure: Exception | None) -> None:
        """RecordRefused at a damaged batch of the source, when nothing is left to copy before it:
        each run copies some more of that, and begins later than the run before.
        """
        damaged = end_reasons.find_damage(failure)
        starts = {str(source): offset for source, offset in plan.map_source_offsets().items()}
        before = self.damage
        self.damage = (damaged, starts[damaged.partition]) if damaged else None
        if damaged and self.damage == before and not self.settings.failover:
            raise damaged.error
        if damaged and before:
            self.failures = 0  # it has copied some: the next run begins soon

    def _pause(self) -> None:
        wait_unless_stopping(
            BACKOFF_S[min(self.failures, len(BACKOFF_S) - 1)], self.liveness, self.stopping, "spark"
        )
        self.failures += 1

    def _apply(self, event: Event) -> None:
        self.state = end_reasons.get_next_state(self.state, event)


def run_stage(
    settings: Settings,
    stopping: Stopping,
    start_engine: Callable[[Settings, int], Engine] = session.Spark,
    state_file: Path | None = None,
) -> float | None:
    """Run stage one from start to end; returns what `Stage.run` does. `start_engine` starts its
    engine for a number of partitions; the engine does not outlive this call.

    `state_file` is for `common.source_pool.SourcePool`.
    """
    failpoints.hit("one: started")
    with permissions.explain_refusals(settings, "run replicator"):
        beat = Liveness("replicator").beat
        sources = source_pool.try_sources(settings, topic_creation.prepare_topics, beat)
        partitions = sum(source.partitions for source in sources.values())
        engine = start_engine(settings, partitions)
        try:
            stage = Stage(settings, stopping, engine, partitions, state_file)
            with contextlib.closing(stage.halted):
                stage.halted.start(sources, beat)
                return stage.run()
        finally:
            engine.close()
