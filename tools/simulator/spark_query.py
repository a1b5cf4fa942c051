"""The simulated Spark query: what stage one's JVM writes to the intermediate topics, and everything
that can go wrong there.

A query runs micro-batches, one after the other. A batch has one task per partition (`spark_task`).
Spark starts a batch only when the previous batch is completely written; the driver hands on how far
its last attempts have written. Faults of envelopes change this. The JVM is a process of its own: it
can be frozen, and it can go on writing after its driver was killed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import StageFailed
from common.routes import TopicPartition
from replicator.runs.run import Plan
from tools.simulator.schedule import Process, Signal
from tools.simulator.spark_task import Task

if TYPE_CHECKING:
    from tools.simulator.system import System

FOREVER_S = 1e9
LINGER_S = (0.0, 8.0)
"""A JVM goes on for this time after its driver was killed."""


class JvmUnreachable(OSError):
    """The error of py4j when the JVM does not answer."""


class QueryFailed(Exception):
    """Spark's error of a failed query."""


class Engine:
    """Stage one's JVM. It ends some time after its driver."""

    def __init__(self, system: System, driver: Process) -> None:
        self.system = system
        self.process = Process(f"jvm of {driver.name}", driver.clock_offset_s)
        system.schedule.start(self.process, lambda: system.schedule.sleep(FOREVER_S))

    def count_slots(self) -> int:
        """The number of task slots: more than partitions."""
        try:
            self.check_jvm()
        except JvmUnreachable as error:
            raise StageFailed(str(error)) from None
        return max(64, 2 * self.system.plan.partitions)

    def start(self, plan: Plan) -> Query:
        """Start the query of a run."""
        self.check_jvm()
        return Query(self, plan)

    def close(self) -> None:
        """Kill the JVM when its driver ends."""
        self.system.schedule.kill(self.process)

    def check_jvm(self) -> None:
        """A call from Python into the JVM: waits while the JVM is frozen. JvmUnreachable when it is
        dead.
        """
        self.system.schedule.sleep(0.001)
        while self.process.is_frozen and self.process.is_alive:
            self.system.schedule.sleep(0.1)
        if not self.process.is_alive:
            raise JvmUnreachable("the JVM does not answer")

    def on_driver_exit(self) -> None:
        """The JVM notices that its standard input is closed, and ends some time later."""
        self.system.schedule.call_later(
            self.system.schedule.random.uniform(*LINGER_S),
            lambda: self.system.schedule.kill(self.process),
        )


class Query:
    """The part of StreamingQuery that `replicator.runs.run` and `replicator.stage` use."""

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self.engine = engine
        self.system = engine.system
        self.plan = plan
        self.failure: QueryFailed | None = None
        self.is_over = False
        self.started_at_s = self.system.schedule.now
        self.ended = Signal(self.system.schedule)
        self.progressed = Signal(self.system.schedule)
        """A task has read its part of the batch, an envelope is acknowledged, or the query has
        ended.
        """
        self.attempts: list[Task] = []
        """All attempts of all tasks."""
        self.held_until_s = 0.0
        """As `Task.held_until_s`, for all of them."""
        self.system.on_query_started(self)
        self.system.schedule.start(engine.process, self._run_batches, "query")

    def find_identity(self, intermediate: TopicPartition) -> str:
        """The identity of the source topic that is written to an intermediate topic."""
        return next(
            identity
            for route, identity in self.plan.identities.items()
            if route.intermediate_topic == intermediate.topic
        )

    @property
    def can_read(self) -> bool:
        """Whether it can still read its source."""
        return not self.is_over and self.engine.process.is_alive

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether the query is running."""
        self.engine.check_jvm()
        return not self.is_over

    def exception(self) -> QueryFailed | None:
        """The error with which the query failed."""
        self.engine.check_jvm()
        return self.failure

    def awaitTermination(self, seconds: float) -> bool:  # noqa: N802
        """Wait up to this time for the end. Returns whether the query has ended."""
        if not self.is_over:
            self.system.schedule.wait(self.ended, seconds)
        self.engine.check_jvm()
        return self.is_over

    def stop(self) -> None:
        """Stop the query."""
        self.engine.check_jvm()
        self.end(None)

    def end(self, failure: str | None) -> None:
        """End the query: its tasks read no more. Envelopes in flight still arrive."""
        if not self.is_over:
            self.is_over = True
            self.failure = QueryFailed(failure) if failure else None
            for attempt in self.attempts:
                attempt.is_interrupted = True
            self.ended.notify()
            self.progressed.notify()

    def _run_batches(self) -> None:
        settings, source_partitions = self.plan.settings, self.plan.map_source_partitions()
        schedule, positions = self.system.schedule, dict(self.plan.start_offsets)
        written_through = {tp: begin - 1 for tp, begin in positions.items()}
        source = self.system.find_cluster(settings.source_cluster)
        last_end = (
            {tp: source.log(*source_partitions[tp]).last_stable_offset for tp in positions}
            if settings.stop_at_end
            else {}
        )
        while not self.is_over:
            ends_at = schedule.now + (1e9 if settings.stop_at_end else settings.replicator.batch_s)
            tasks = [
                Task(
                    self,
                    tp,
                    source_partitions[tp],
                    begin,
                    written_through[tp],
                    last_end.get(tp),
                    ends_at,
                )
                for tp, begin in positions.items()
            ]
            for task in tasks:
                schedule.start(self.engine.process, task.read, f"task {task.tp}")
            while not self.is_over and not all(task.is_done for task in tasks):
                schedule.wait(self.progressed, FOREVER_S)
            if self.is_over:
                return
            last_attempts = [task.last_attempt for task in tasks]
            positions = {attempt.tp: attempt.position for attempt in last_attempts}
            written_through = {attempt.tp: attempt.writer.through for attempt in last_attempts}
            if settings.stop_at_end:
                self.end(None)
