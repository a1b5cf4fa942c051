"""The simulated Spark query: what stage one's JVM writes to the intermediate topics, with everything that can go wrong there.

A query is batches, one after the other; a batch is one task per partition with sequences from 0; a task reads what is committed
and hands producer batches to its client, which delivers them in order, each after a while. Spark starts a batch only when the one
before it is wholly written. What the faults do to it:

- `lose`: a producer batch is given up and the next one is delivered; the task fails, and the query with it, some time later;
- `straggle`: a producer batch arrives much later, when the query may be long dead;
- `repeat`: a task is begun again on another host, from the beginning of its batch and with its sequences from 0, while the older
  attempt goes on writing;
- the JVM is a process of its own: it can be frozen, and it can go on writing after its driver was killed.
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
FAILS_AFTER_S = (0.01, 3.0)
"""How long after the loss of a producer batch its task fails."""
LINGERS_S = (0.0, 8.0)
"""How long a JVM goes on after its driver was killed."""


class JvmGone(OSError):
    """What py4j raises when nobody answers at its port."""


class QueryFailed(Exception):
    """What Spark says of a failed query."""


class Engine:
    """Stage one's JVM; ends some time after its driver."""

    def __init__(self, system: System, driver: Process) -> None:
        self.system = system
        self.process = Process(f"jvm of {driver.name}", driver.clock_offset_s)
        system.schedule.start(self.process, lambda: system.schedule.sleep(FOREVER_S))

    def slots(self) -> int:
        """One for each partition and more."""
        try:
            self.reach()
        except JvmGone as gone:
            raise StageFailed(str(gone)) from None
        return 64

    def start(self, plan: Plan) -> Query:
        """Begin the run's query."""
        self.reach()
        return Query(self, plan)

    def close(self) -> None:
        """Killed with its driver's end."""
        self.system.schedule.kill(self.process)

    def reach(self) -> None:
        """A call from Python into the JVM: waits while that is frozen."""
        self.system.schedule.sleep(0.001)
        while self.process.is_frozen and self.process.is_alive:
            self.system.schedule.sleep(0.1)
        if not self.process.is_alive:
            raise JvmGone("the JVM does not answer")

    def driver_died(self) -> None:
        """It notices that its standard input is closed."""
        self.system.schedule.after(self.system.schedule.random.uniform(*LINGERS_S), lambda: self.system.schedule.kill(self.process))


class Query:
    """What `replicator.run` and `replicator.stage` use of a StreamingQuery."""

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self.engine = engine
        self.system = engine.system
        self.plan = plan
        self.failure: QueryFailed | None = None
        self.is_over = False
        self.changed = Signal(self.system.schedule)
        self.ends: dict[Place, int] = {}
        """By source partition, how far the batches that are done have read."""
        self.system.queries.append(self)
        self.system.schedule.start(engine.process, self._batches, "query")

    @property
    def can_read(self) -> bool:
        """Whether it reads its source, or may again."""
        return not self.is_over and self.engine.process.is_alive

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether it runs."""
        self.engine.reach()
        return not self.is_over

    @property
    def lastProgress(self) -> Mapping[str, Any] | None:  # noqa: N802
        """Of the last batch that is done."""
        self.engine.reach()
        if not self.ends:
            return None
        offsets: dict[str, dict[str, int]] = {}
        for place, end in self.ends.items():
            offsets.setdefault(place.topic, {})[str(place.partition)] = end
        return {"sources": [{"endOffset": orjson.dumps(offsets).decode()}]}

    def exception(self) -> QueryFailed | None:
        """Why it ended."""
        self.engine.reach()
        return self.failure

    def awaitTermination(self, seconds: float) -> bool:  # noqa: N802
        """Wait for the end, so long."""
        if not self.is_over:
            self.system.schedule.wait(self.changed, seconds)
        self.engine.reach()
        return self.is_over

    def stop(self) -> None:
        """Interrupt its tasks."""
        self.engine.reach()
        self.end(None)

    def end(self, failure: str | None) -> None:
        """No task begins anything any more; what is on its way arrives."""
        if not self.is_over:
            self.is_over = True
            self.failure = QueryFailed(failure) if failure else None
            self.changed.notify()

    def _batches(self) -> None:
        settings, at_source = self.plan.settings, self.plan.source_partitions()
        schedule, positions = self.system.schedule, dict(self.plan.starts)
        source = self.system.cluster_of(settings.source)
        last_end = {place: source.log(*at_source[place]).last_stable_offset for place in positions} if settings.stop_at_end else {}
        number = 0
        while not self.is_over:
            number += 1
            batch_ms = int((START_UNIX_S + schedule.now + self.engine.process.clock_offset_s) * 1000) + number
            over_at = schedule.now + (1e9 if settings.stop_at_end else settings.number("replicator.batch_s"))
            tasks = [Task(self, batch_ms, place, at_source[place], begin, last_end.get(place), over_at) for place, begin in positions.items()]
            for task in tasks:
                schedule.start(self.engine.process, task.read, f"task {task.place}")
            while not self.is_over and not all(task.is_done for task in tasks):
                schedule.sleep(POLL_S)
            if self.is_over:
                return
            positions = {task.place: task.last_attempt.position for task in tasks}
            self.ends = {at_source[place]: position for place, position in positions.items()}
            if settings.stop_at_end:
                self.end(None)


class Task:
    """One attempt at one partition of one batch."""

    def __init__(self, query: Query, batch_ms: int, place: Place, there: Place, begin: int, end: int | None, over_at: float) -> None:
        self.query, self.system, self.batch_ms = query, query.system, batch_ms
        self.place, self.there = place, there
        self.begin = self.position = begin
        self.end, self.over_at = end, over_at
        self.sequence = 0
        self.outstanding = 0
        self.last_arrival = 0.0
        self.is_interrupted = False
        self.repeated: Task | None = None
        """The attempt that was begun in this one's place."""
        self.is_read = False

    @property
    def last_attempt(self) -> Task:
        """The one that Spark takes the result of."""
        return self.repeated.last_attempt if self.repeated else self

    @property
    def is_done(self) -> bool:
        """Whether the last attempt has read all of its part of the batch, and all that it wrote is acknowledged."""
        last = self.last_attempt
        return last.is_read and last.outstanding == 0

    def read(self) -> None:
        """Read, wrap and send until the batch is over."""
        schedule, source = self.system.schedule, self.system.cluster_of(self.query.plan.settings.source)
        while not self.is_interrupted and not self.query.is_over:
            if source.is_down:
                schedule.sleep(POLL_S)
                continue
            if self.end is not None and self.position >= self.end:
                break
            found = logs.committed(source, self.there, self.position, schedule.random.randint(1, 4), self.end)
            if found is None:  # out of range
                if self.query.plan.settings.stop_at_end or schedule.random.random() < 0.5:
                    self._fail("OffsetOutOfRangeException")
                    return
                schedule.sleep(1.0)
                continue
            records, next_offset = found
            if wrapped := list(self._wrapped(records)):
                self._send(wrapped)
            self.position = next_offset
            self.system.read_to[self.there] = max(next_offset, self.system.read_to.get(self.there, 0))
            if not records:
                if self.end is None and schedule.now >= self.over_at:
                    break
                schedule.sleep(POLL_S)
            else:
                schedule.sleep(schedule.random.uniform(0.0005, 0.01))
        self.is_read = True

    def _wrapped(self, records: list[tuple[int, Any]]) -> Iterator[tuple[Any, ...]]:
        plan = self.query.plan
        identity = next(identity for route, identity in plan.identities.items() if route.intermediate_topic == self.place.topic)
        is_filtered = plan.settings.text("filter.sql") != ""
        for offset, content in records:
            if is_filtered and not self.system.passes(content):
                continue
            key, value, headers, timestamp_ms = content
            origin = Origin(self.there.partition, offset, timestamp_ms, 0, plan.epoch, self.batch_ms, self.sequence, identity)
            self.sequence += 1
            yield key, value, [*headers, (HEADER, encode(origin))], self.system.unix_ms()

    def _send(self, batch: list[tuple[Any, ...]]) -> None:
        """Hand a producer batch to the client: in order, unless a fault says otherwise."""
        schedule, fault = self.system.schedule, self.system.faults.of_producer(self)
        arrival = max(self.last_arrival, schedule.now + schedule.random.uniform(0.0005, 0.02))
        if fault in ("lose", "straggle"):
            self.outstanding += 1  # it is never acknowledged: Spark does not take the batch for written
            schedule.after(schedule.random.uniform(*FAILS_AFTER_S), lambda: self._fail("TimeoutException: expiring 1 record(s)"))
            if fault == "straggle":
                self._deliver(schedule.now + schedule.random.uniform(1.0, 20.0), batch)
            return
        if fault == "repeat" and not self.repeated:
            schedule.start(self.query.engine.process, self._repeat, f"task {self.place}, again")
        self.last_arrival = arrival
        self._deliver(arrival, batch)

    def _deliver(self, when: float, batch: list[tuple[Any, ...]]) -> None:
        self.outstanding += 1
        destination = self.system.cluster_of(self.query.plan.settings.destination)

        def arrive() -> None:
            if destination.is_down:
                self.system.schedule.after(0.5, arrive)
                return
            self.outstanding -= 1
            if logs.has(destination, self.place):
                destination.append(self.place.topic, self.place.partition, batch)
            else:
                self._fail("UnknownTopicOrPartitionException")
        self.system.schedule.push(when, arrive)

    def _repeat(self) -> None:
        other = Task(self.query, self.batch_ms, self.place, self.there, self.begin, self.end, self.over_at)
        self.repeated = other
        self.system.schedule.after(self.system.schedule.random.uniform(0.0, 5.0), self._interrupt)
        other.read()

    def _interrupt(self) -> None:
        self.is_interrupted = True

    def _fail(self, why: str) -> None:
        if self.query.engine.process.is_alive:
            self.query.end(f"Job aborted due to stage failure: {why}")
