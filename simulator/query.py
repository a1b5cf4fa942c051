"""The simulated Spark query: what stage one's JVM writes to the intermediate topics, and everything
that can go wrong there.

A query runs micro-batches, one after the other. A batch has one task per partition, with sequences
from 0. A task reads committed records and gives producer batches to its client, which delivers them
in order, each after a delay. Spark starts a batch only when the previous batch is completely
written. The faults change this:

- `lose`: the client gives up a producer batch and delivers the next one; the task, and with it the
  query, fails some time later;
- `straggle`: a producer batch arrives much later, when the query may have ended long ago;
- `repeat`: Spark starts a second attempt of a task on another host, from the beginning of its batch
  and with sequences from 0, while the first attempt goes on writing;
- the JVM is a process of its own: it can be frozen, and it can go on writing after its driver was
  killed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from common.errors import StageFailed
from common.origin import HEADER, Origin, encode
from common.routes import Place
from replicator.run import Plan
from simulator import logs
from simulator.schedule import START_UNIX_S, Process, Signal

if TYPE_CHECKING:
    from simulator.system import System

POLL_S = 0.05
FOREVER_S = 1e9
FAIL_DELAY_S = (0.01, 3.0)
"""A task fails this long after its producer batch was lost."""
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

    def slots(self) -> int:
        """The number of task slots: more than partitions."""
        try:
            self.check_jvm()
        except JvmUnreachable as error:
            raise StageFailed(str(error)) from None
        return 64

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
    """The part of StreamingQuery that `replicator.run` and `replicator.stage` use."""

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self.engine = engine
        self.system = engine.system
        self.plan = plan
        self.failure: QueryFailed | None = None
        self.is_over = False
        self.changed = Signal(self.system.schedule)
        self.ends: dict[Place, int] = {}
        """For each source partition, the end offset of the last completed batch."""
        self.system.queries.append(self)
        self.system.schedule.start(engine.process, self._run_batches, "query")

    @property
    def can_read(self) -> bool:
        """Whether it can still read its source."""
        return not self.is_over and self.engine.process.is_alive

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether the query is running."""
        self.engine.check_jvm()
        return not self.is_over

    @property
    def lastProgress(self) -> Mapping[str, Any] | None:  # noqa: N802
        """The progress of the last completed batch."""
        self.engine.check_jvm()
        if not self.ends:
            return None
        offsets: dict[str, dict[str, int]] = {}
        for place, end in self.ends.items():
            offsets.setdefault(place.topic, {})[str(place.partition)] = end
        return {"sources": [{"endOffset": orjson.dumps(offsets).decode()}]}

    def exception(self) -> QueryFailed | None:
        """The error with which the query failed."""
        self.engine.check_jvm()
        return self.failure

    def awaitTermination(self, seconds: float) -> bool:  # noqa: N802
        """Wait up to this time for the end. Returns whether the query has ended."""
        if not self.is_over:
            self.system.schedule.wait(self.changed, seconds)
        self.engine.check_jvm()
        return self.is_over

    def stop(self) -> None:
        """Stop the query."""
        self.engine.check_jvm()
        self.end(None)

    def end(self, failure: str | None) -> None:
        """End the query: its tasks read no more. Producer batches in flight still arrive."""
        if not self.is_over:
            self.is_over = True
            self.failure = QueryFailed(failure) if failure else None
            self.changed.notify()

    def _run_batches(self) -> None:
        settings, source_partitions = self.plan.settings, self.plan.source_partitions()
        schedule, positions = self.system.schedule, dict(self.plan.starts)
        source = self.system.find_cluster(settings.source_cluster)
        last_end = (
            {place: source.log(*source_partitions[place]).last_stable_offset for place in positions}
            if settings.stop_at_end
            else {}
        )
        number = 0
        while not self.is_over:
            number += 1
            batch_ms = (
                int((START_UNIX_S + schedule.now + self.engine.process.clock_offset_s) * 1000)
                + number
            )
            ends_at = schedule.now + (1e9 if settings.stop_at_end else settings.replicator.batch_s)
            tasks = [
                Task(
                    self,
                    batch_ms,
                    place,
                    source_partitions[place],
                    begin,
                    last_end.get(place),
                    ends_at,
                )
                for place, begin in positions.items()
            ]
            for task in tasks:
                schedule.start(self.engine.process, task.read, f"task {task.place}")
            while not self.is_over and not all(task.is_done for task in tasks):
                schedule.sleep(POLL_S)
            if self.is_over:
                return
            positions = {task.place: task.last_attempt.position for task in tasks}
            self.ends = {
                source_partitions[place]: position for place, position in positions.items()
            }
            if settings.stop_at_end:
                self.end(None)


class Task:
    """One attempt of the task for one partition of one batch."""

    def __init__(
        self,
        query: Query,
        batch_ms: int,
        place: Place,
        source_partition: Place,
        begin: int,
        end: int | None,
        ends_at: float,
    ) -> None:
        self.query, self.system, self.batch_ms = query, query.system, batch_ms
        self.place, self.source_partition = place, source_partition
        self.begin = self.position = begin
        self.end, self.ends_at = end, ends_at
        self.sequence = 0
        self.unacknowledged_batches = 0
        self.last_arrival = 0.0
        self.is_interrupted = False
        self.next_attempt: Task | None = None
        """The attempt that replaces this one."""
        self.is_read = False

    @property
    def last_attempt(self) -> Task:
        """The attempt whose result Spark uses."""
        return self.next_attempt.last_attempt if self.next_attempt else self

    @property
    def is_done(self) -> bool:
        """Whether the last attempt has read its part of the batch, and all its writes are
        acknowledged.
        """
        last_attempt = self.last_attempt
        return last_attempt.is_read and last_attempt.unacknowledged_batches == 0

    def read(self) -> None:
        """Read, wrap and send records until the batch ends."""
        schedule, source = (
            self.system.schedule,
            self.system.find_cluster(self.query.plan.settings.source_cluster),
        )
        while not self.is_interrupted and not self.query.is_over:
            if source.is_down:
                schedule.sleep(POLL_S)
                continue
            if self.end is not None and self.position >= self.end:
                break
            read_result = logs.read_committed(
                source,
                self.source_partition,
                self.position,
                schedule.random.randint(1, 4),
                self.end,
            )
            if read_result is None:  # out of range
                if self.query.plan.settings.stop_at_end or schedule.random.random() < 0.5:
                    self._fail("OffsetOutOfRangeException")
                    return
                schedule.sleep(1.0)
                continue
            records, next_offset = read_result
            if wrapped_records := list(self._wrap_records(records)):
                self._send(wrapped_records)
            self.position = next_offset
            self.system.spark_read_to[self.source_partition] = max(
                next_offset, self.system.spark_read_to.get(self.source_partition, 0)
            )
            if not records:
                if self.end is None and schedule.now >= self.ends_at:
                    break
                schedule.sleep(POLL_S)
            else:
                schedule.sleep(schedule.random.uniform(0.0005, 0.01))
        self.is_read = True

    def _wrap_records(self, records: list[tuple[int, Any]]) -> Iterator[tuple[Any, ...]]:
        plan = self.query.plan
        identity = next(
            identity
            for route, identity in plan.identities.items()
            if route.intermediate_topic == self.place.topic
        )
        is_filtered = plan.settings.filter.sql != ""
        for offset, content in records:
            if is_filtered and not self.system.is_copied(content):
                continue
            key, value, headers, timestamp_ms = content
            origin = Origin(
                self.source_partition.partition,
                offset,
                timestamp_ms,
                0,
                plan.epoch,
                self.batch_ms,
                self.sequence,
                identity,
            )
            self.sequence += 1
            yield key, value, [*headers, (HEADER, encode(origin))], self.system.unix_ms()

    def _send(self, batch: list[tuple[Any, ...]]) -> None:
        """Give a producer batch to the client, which delivers it in order unless a fault changes
        that.
        """
        schedule, fault = self.system.schedule, self.system.faults.take_producer_fault(self)
        arrival = max(self.last_arrival, schedule.now + schedule.random.uniform(0.0005, 0.02))
        if fault in ("lose", "straggle"):
            # never acknowledged, so Spark does not complete the batch
            self.unacknowledged_batches += 1
            schedule.call_later(
                schedule.random.uniform(*FAIL_DELAY_S),
                lambda: self._fail("TimeoutException: expiring 1 record(s)"),
            )
            if fault == "straggle":
                self._deliver(schedule.now + schedule.random.uniform(1.0, 20.0), batch)
            return
        if fault == "repeat" and not self.next_attempt:
            schedule.start(
                self.query.engine.process, self._start_next_attempt, f"task {self.place}, again"
            )
        self.last_arrival = arrival
        self._deliver(arrival, batch)

    def _deliver(self, arrives_at_s: float, batch: list[tuple[Any, ...]]) -> None:
        self.unacknowledged_batches += 1
        destination = self.system.find_cluster(self.query.plan.settings.destination_cluster)

        def arrive() -> None:
            if destination.is_down:
                self.system.schedule.call_later(0.5, arrive)
                return
            self.unacknowledged_batches -= 1
            if logs.has_partition(destination, self.place):
                destination.append(self.place.topic, self.place.partition, batch)
            else:
                self._fail("UnknownTopicOrPartitionException")

        self.system.schedule.push(arrives_at_s, arrive)

    def _start_next_attempt(self) -> None:
        other = Task(
            self.query,
            self.batch_ms,
            self.place,
            self.source_partition,
            self.begin,
            self.end,
            self.ends_at,
        )
        self.next_attempt = other
        self.system.schedule.call_later(
            self.system.schedule.random.uniform(0.0, 5.0), self._interrupt
        )
        other.read()

    def _interrupt(self) -> None:
        self.is_interrupted = True

    def _fail(self, reason: str) -> None:
        if self.query.engine.process.is_alive:
            self.query.end(f"Job aborted due to stage failure: {reason}")
