"""One system: the service's processes with their restarts, beside the clusters and their writers.

The processes run the service's own code; `reo.service.restarts` decides what follows an exit code
and how long a restart waits, `common.liveness` which process is killed because it hangs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from common.errors import ReoError
from common.liveness import is_silent
from common.metrics import HEARTBEAT, READY
from common.routes import TopicPartition
from common.settings import Settings
from common.stop_at_end import CHECK_INTERVAL_S, EndOfCopy
from deduplicator import worker
from reo.service.restarts import WATCHDOG_INTERVAL_S
from replicator import stage
from tools.simulator import log_reader, operator, record_filter
from tools.simulator.child import Child
from tools.simulator.clusters import LOAD_S, Clusters
from tools.simulator.plan import Plan
from tools.simulator.schedule import START_UNIX_S, Process, Schedule
from tools.simulator.service_settings import build_settings
from tools.simulator.spark_query import Engine, Query

if TYPE_CHECKING:
    from tools.simulator.fault_injector import FaultInjector
    from tools.simulator.spark_task import Task


OLD_HELD_S, NEW_HELD_S = (0.0, 1.0), (0.0, 3.0)


class System(Clusters):
    """The processes of the service, with their clusters."""

    def __init__(self, plan: Plan, schedule: Schedule, log_event: Callable[[str], None]) -> None:
        super().__init__(plan, schedule)
        self.log_event = log_event
        self.queries: list[Query] = []
        """All queries of the schedule."""
        self.faults: FaultInjector
        self.children: list[Child] = []
        self.service_exit_code: int | None = None
        """The exit code of the service."""
        self.ended_at = 0.0
        self.is_recovered = False
        """Whether `reo recover` has been run."""
        self.recovered_exit_codes: set[int] = set()
        """After these exit codes, an operator recovers the frontiers and starts the service
        again.
        """
        self.is_stopped_by_operator = False
        """Whether an operator has stopped the service: no process is started."""
        self.end_reason = ""
        self.read_through: dict[TopicPartition, int] = {}
        """For each source partition, the last row that a query has read."""
        self.conditions: dict[TopicPartition, list[tuple[int, str]]] = {}
        """For each source partition, the conditions of `filter.sql`, each with the first source
        offset that was read with it.
        """
        self.filter_sql = record_filter.CONDITIONS[1] if plan.filter_setting == "filter.sql" else ""
        """The present one."""
        self.ends_at_start: dict[TopicPartition, int] = {}
        """For each source partition, its end when the service was started."""
        self.settings = build_settings(self, self.filter_sql)
        self.killed_workers = 0
        self.end_of_copy = EndOfCopy(self._are_workers_ready)

    def load_frontier_offset(self, source: TopicPartition) -> int | None:
        """The offset of the frontier that is committed for a source partition, or None."""
        intermediate = self.find_intermediate(source)
        return log_reader.load_frontier_offset(
            self.destination, self.settings.application, intermediate
        )

    def is_copied(self, source: TopicPartition, offset: int, content: log_reader.Content) -> bool:
        """Whether the filters let a record through."""
        conditions = self.conditions.setdefault(source, [(0, self.filter_sql)])
        condition = next(one for begin, one in reversed(conditions) if begin <= offset)
        return record_filter.is_row_copied(condition, content[1]) and (
            self.plan.filter_setting != "filter.function"
            or record_filter.is_value_copied(content[1])
        )

    def change_filter(self, condition: str) -> None:
        """Another `filter.sql` from the next start on."""
        self.filter_sql = condition
        self.settings = build_settings(self, condition)

    def on_query_started(self, query: Query) -> None:
        """A run with another `filter.sql` begins: what is copied before its first offsets is as the
        filter before wanted it, what follows is as this one does.

        What is held of older runs arrives soon, and what this one writes, too: in either order.
        """
        self.queries.append(query)
        condition, has_changed = query.plan.settings.filter.sql, False
        for intermediate, source in query.plan.map_source_partitions().items():
            begin = query.plan.start_offsets[intermediate]
            conditions = self.conditions.setdefault(source, [(0, condition)])
            if conditions[-1][1] != condition:
                conditions.append((begin, condition))
                self.faults.judge.apply_filter(source, begin)
                has_changed = True
        if has_changed:
            generator, now = self.schedule.random, self.schedule.now
            query.held_until_s = now + generator.uniform(*NEW_HELD_S)
            for attempt in self.list_attempts():
                attempt.held_until_s = min(
                    attempt.held_until_s, now + generator.uniform(*OLD_HELD_S)
                )

    def list_attempts(self) -> list[Task]:
        """All attempts of all tasks of all runs."""
        return [attempt for query in self.queries for attempt in query.attempts]

    def start_all(self) -> None:
        """Create the source topic and start all processes."""
        self.start_source()
        if self.plan.stop_at_end:
            self.schedule.run(10 * LOAD_S, lambda: not self.is_loading)
        self.ends_at_start = {tp: self.source.log(*tp).end for tp in self.list_source_partitions()}
        for number in range(self.plan.workers):
            self.add_worker(number)
        self.add_stage_one()
        self.schedule.call_later(WATCHDOG_INTERVAL_S, self._watch_children)
        if self.plan.stop_at_end:
            self._check_end()

    # ---- processes

    def add_worker(self, number: int) -> None:
        """Add a worker process of stage two."""
        self._add(
            Child(
                f"worker {number}",
                lambda child: (
                    lambda: worker.run(self.settings, number, lambda: child.is_stop_requested)
                ),
                number % 4,
            )
        )

    def add_stage_one(self) -> None:
        """Add a process of stage one. A second one is a mistake of an operator or of a
        scheduler.
        """
        number = sum(child.name.startswith("stage one") for child in self.children)
        self._add(Child(f"stage one {number}", self._stage_one, 3 - number % 4))

    def _stage_one(self, child: Child) -> Callable[[], object]:
        def create_engine(_: Settings, __: int) -> Engine:
            assert child.process is not None
            child.engine = Engine(self, child.process)
            return child.engine

        def run_stage() -> None:
            child.complete_at = None
            child.complete_at = stage.run_stage(
                self.settings, lambda: child.is_stop_requested, create_engine
            )

        return run_stage

    def _add(self, child: Child) -> None:
        self.children.append(child)
        self.start(child)

    def start(self, child: Child) -> None:
        """Start a new process, unless one is running or none may run."""
        if (
            self.service_exit_code is not None
            or self.is_stopped_by_operator
            or not child.is_enabled
            or (child.process and child.process.is_alive)
        ):
            return
        child.is_stop_requested = False
        # the real supervisor removes the gauges of a process that has ended
        READY.labels(*child.metric_labels).set(0)
        child.process = Process(child.name, self.plan.clock_offsets_s[child.host])
        child.started = START_UNIX_S + self.schedule.now
        child.process.on_end = lambda raised: self._on_process_end(child, raised)
        self.schedule.start(child.process, child.create_main(child))

    def kill(self, child: Child) -> None:
        """Kill the process with SIGKILL; it is started again after its backoff."""
        assert child.process is not None
        process = child.process
        self.killed_workers += child.metric_labels[0] == "deduplicator"
        self._restart_later(child)
        if child.engine:
            child.engine.on_driver_exit()
            child.engine = None
        self.schedule.kill(process)

    def _on_process_end(self, child: Child, raised: BaseException | None) -> None:
        exit_code = 0 if raised is None else raised.exit_code if isinstance(raised, ReoError) else 1
        message = f"{type(raised).__name__}: {raised}" if raised else "done"
        self.log_event(f"{child.name} ends: {message}")
        if child.engine:
            self.schedule.kill(child.engine.process)
            child.engine = None
        if raised is not None and not isinstance(raised, ReoError):
            self.faults.on_unexpected_error(child.name, raised)
        if exit_code in self.recovered_exit_codes and not self.is_stopped_by_operator:
            self.recovered_exit_codes.discard(exit_code)
            self.stop_for_operator(operator.run_recover)
        elif child.restarts.is_end_of_service(exit_code) and not self.is_stopped_by_operator:
            self.end(exit_code, message)
        elif exit_code == 0 and child.complete_at is not None and not self.is_stopped_by_operator:
            self.end_of_copy.planned_at = child.complete_at
        else:
            self._restart_later(child)

    def _are_workers_ready(self) -> bool:
        return all(
            child.process
            and child.process.is_alive
            and READY.labels(*child.metric_labels)._value.get()
            for child in self.children
            if child.is_enabled and child.metric_labels[0] == "deduplicator"
        )

    def _check_end(self) -> None:
        """As the real supervisor."""
        if self.service_exit_code is not None:
            return
        verdict = self.end_of_copy.check()
        if verdict == "complete" and not self.is_stopped_by_operator:
            self.end(0, "done")
        for child in self.children:
            if verdict == "ask again" and child.metric_labels[0] == "replicator":
                self.start(child)
        self.schedule.call_later(CHECK_INTERVAL_S, self._check_end)

    def stop_for_operator(self, work: Callable[[System], None]) -> None:
        """An operator stops the service and does `work`. No process is started meanwhile."""
        self.is_stopped_by_operator = True
        self.stop()
        self.schedule.start(Process("operator"), lambda: work(self))

    def restart(self) -> None:
        """The operator starts the service again."""
        self.is_stopped_by_operator = False
        self.end_of_copy = EndOfCopy(self._are_workers_ready)
        for child in self.children:
            self.start(child)

    def end(self, exit_code: int, end_reason: str) -> None:
        """The service ends with this exit code."""
        self.ended_at = self.schedule.now
        self.service_exit_code, self.end_reason = exit_code, end_reason
        self.stop()

    def _restart_later(self, child: Child) -> None:
        self.faults.on_restart(child)
        self.schedule.call_later(child.restarts.start_later(), lambda: self.start(child))

    def _watch_children(self) -> None:
        """As the supervisor. A second stage one has the same metric here: none of the two is
        watched.
        """
        if self.service_exit_code is not None:
            return
        has_one_stage_one = sum(child.name.startswith("stage one") for child in self.children) == 1
        for child in self.children:
            if not (child.process and child.process.is_alive):
                continue
            child.restarts.on_running(child.started)
            if not has_one_stage_one and child.metric_labels[0] == "replicator":
                continue
            heartbeat = (
                HEARTBEAT.labels(*child.metric_labels)._value.get() - child.process.clock_offset_s
            )
            if is_silent(max(child.started, heartbeat), START_UNIX_S + self.schedule.now):
                self.log_event(f"{child.name} gave no sign of life: the watchdog kills it")
                self.kill(child)
        self.schedule.call_later(WATCHDOG_INTERVAL_S, self._watch_children)

    def stop(self) -> None:
        """Send SIGTERM to all processes."""
        for child in self.children:
            child.is_stop_requested = True

    def find_child(self, process: Process | None) -> Child | None:
        """The child to which a process belongs."""
        return (
            next((child for child in self.children if child.process is process), None)
            if process
            else None
        )
