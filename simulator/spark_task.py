"""A task of the simulated Spark query: reads a partition's records and writes them to the
intermediate topic.

It reads committed records and gives producer batches to its client, which delivers them in order,
each after a delay. The faults change this:

- `lose`: the client gives up a producer batch and delivers the next one; the attempt fails some
  time later;
- `straggle`: a producer batch arrives much later, when the query may have ended long ago;
- `repeat`: Spark starts a second attempt of a task on another host, from the beginning of its batch
  and with sequences from 0, while the first attempt goes on writing, slowly.

When an attempt fails, Spark starts another (`spark.task.maxFailures`), or the query fails. When an
attempt fails that was already replaced, the query goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from common.origin import HEADER, Origin, encode
from common.routes import TopicPartition
from simulator import log_reader
from simulator.schedule import Signal

if TYPE_CHECKING:
    from simulator.kafka.cluster import Cluster
    from simulator.spark_query import Query

POLL_S = 0.05
"""A task asks its source again this often: a change is seen up to this time later."""
IDLE_S = 1.0
"""A task whose partition does not change asks again this often."""
POLL_TIMEOUT_S = 120.0
"""A task of a batch with an end fails when it gets nothing for so long: `spark.network.timeout`, as
`kafkaConsumer.pollTimeoutMs` is not set (`tests/e2e/test_lost_batch_end.py`).
"""
RESEND_S = 0.5
FAIL_DELAY_S = (0.01, 3.0)
"""An attempt fails this long after its producer batch was lost."""
INTERRUPTED_MAX_S = (0.5, 5.0)
"""An attempt that was replaced is interrupted before one of these times."""
REPLACED_DELAY_S = (0.0, 0.5)
"""How long an attempt that was replaced waits before it reads on."""


class Task:
    """One attempt of the task for one partition of one batch."""

    def __init__(
        self,
        query: Query,
        tp: TopicPartition,
        source_partition: TopicPartition,
        begin: int,
        end: int | None,
        ends_at: float,
    ) -> None:
        self.query, self.system = query, query.system
        self.attempt = next(self.system.attempt_numbers)
        self.tp, self.source_partition = tp, source_partition
        self.begin = self.position = begin
        self.end, self.ends_at = end, ends_at
        self.sequence = 0
        self.unacknowledged_batches = 0
        self.in_flight: deque[list[tuple[Any, ...]]] = deque()
        """Producer batches on their way, in the order in which they were sent."""
        self.last_arrival = 0.0
        self.progressed_at = self.system.schedule.now
        """When the last offset was read, or the task began."""
        self.is_interrupted = False
        self.next_attempt: Task | None = None
        """The attempt that replaces this one."""
        self.is_read = False
        self.source_changed = Signal(self.system.schedule)

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
                schedule.wait(source.up, IDLE_S)
                continue
            if self.end is not None and self.position >= self.end:
                break
            read_result = log_reader.read_committed(
                source,
                self.source_partition,
                self.position,
                schedule.random.randint(1, 4),
                self._find_end(source),
            )
            if read_result is None:  # out of range
                if self.query.plan.settings.stop_at_end or schedule.random.random() < 0.5:
                    self._fail("OffsetOutOfRangeException")
                    return
                schedule.sleep(1.0)
                continue
            records, next_offset = read_result
            self._accept(records, next_offset)
            if not records:
                if self.end is None and schedule.now >= self.ends_at:
                    break
                if self._is_timed_out():
                    self._fail("KafkaIllegalStateException: Some data may have been lost")
                    return
                self._wait_for_records(source)
            else:
                schedule.sleep(schedule.random.uniform(0.0005, 0.01))
            if self.next_attempt and schedule.random.random() < 0.5:
                schedule.sleep(schedule.random.uniform(*REPLACED_DELAY_S))
        self.is_read = True
        self.query.progressed.notify()

    def _accept(self, records: list[tuple[int, Any]], next_offset: int) -> None:
        """Send what was read, up to this offset of the source."""
        if wrapped_records := list(self._wrap_records(records)):
            self._send(wrapped_records)
        if next_offset > self.position:
            self.progressed_at = self.system.schedule.now
        self.position = next_offset
        self.system.spark_read_to[self.source_partition] = max(
            next_offset, self.system.spark_read_to.get(self.source_partition, 0)
        )

    def _is_timed_out(self) -> bool:
        """Whether the batch has an end, and nothing has come for POLL_TIMEOUT_S."""
        return (
            self.end is not None and self.system.schedule.now - self.progressed_at >= POLL_TIMEOUT_S
        )

    def _find_end(self, source: Cluster) -> int | None:
        """Where the read ends: at the end of the batch, or of the broker that answers."""
        log = source.find_log(*self.source_partition)
        if log is None or log.fetch_end is None:
            return self.end
        return log.fetched_end if self.end is None else min(self.end, log.fetched_end)

    def _wait_for_records(self, source: Cluster) -> None:
        """Wait until the partition changes, or until the batch ends, but not longer than IDLE_S. A
        change is seen some time later, since Spark polls.
        """
        schedule, log = self.system.schedule, source.find_log(*self.source_partition)
        if log:
            log.watchers[self.source_changed] = None
        if schedule.wait(self.source_changed, min(IDLE_S, max(0.0, self.ends_at - schedule.now))):
            schedule.sleep(schedule.random.uniform(0.0, POLL_S))
        if log:
            log.watchers.pop(self.source_changed, None)

    def _wrap_records(self, records: list[tuple[int, Any]]) -> Iterator[tuple[Any, ...]]:
        plan = self.query.plan
        identity = next(
            identity
            for route, identity in plan.identities.items()
            if route.intermediate_topic == self.tp.topic
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
                self.attempt,
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
                lambda: self._fail_attempt("TimeoutException: expiring 1 record(s)"),
            )
            if fault == "straggle":
                self._deliver_alone(schedule.now + schedule.random.uniform(1.0, 20.0), batch)
            return
        if fault == "repeat" and not self.next_attempt:
            schedule.start(
                self.query.engine.process, self._start_next_attempt, f"task {self.tp}, again"
            )
        self.last_arrival = arrival
        self.unacknowledged_batches += 1
        self.in_flight.append(batch)
        schedule.push(arrival, self._deliver_next)

    def _deliver_next(self) -> None:
        """Deliver the oldest batch: an idempotent producer keeps the order, also when it has to
        send again.
        """
        if self._is_destination_down():
            self.system.schedule.call_later(RESEND_S, self._deliver_next)
        else:
            self._append(self.in_flight.popleft())

    def _deliver_alone(self, arrives_at_s: float, batch: list[tuple[Any, ...]]) -> None:
        """Deliver a batch that the producer has given up, whenever it arrives."""
        self.unacknowledged_batches += 1

        def arrive() -> None:
            if self._is_destination_down():
                self.system.schedule.call_later(RESEND_S, arrive)
            else:
                self._append(batch)

        self.system.schedule.push(arrives_at_s, arrive)

    def _is_destination_down(self) -> bool:
        return self._find_destination().is_down

    def _find_destination(self) -> Cluster:
        return self.system.find_cluster(self.query.plan.settings.destination_cluster)

    def _append(self, batch: list[tuple[Any, ...]]) -> None:
        self.unacknowledged_batches -= 1
        self.query.progressed.notify()
        destination = self._find_destination()
        if log_reader.has_partition(destination, self.tp):
            destination.append(self.tp.topic, self.tp.partition, batch)
        else:
            self._fail("UnknownTopicOrPartitionException")

    def _start_next_attempt(self) -> None:
        other = Task(
            self.query,
            self.tp,
            self.source_partition,
            self.begin,
            self.end,
            self.ends_at,
        )
        self.next_attempt = other
        generator = self.system.schedule.random
        self.system.schedule.call_later(
            generator.uniform(0.0, generator.choice(INTERRUPTED_MAX_S)), self._interrupt
        )
        other.read()

    def _fail_attempt(self, reason: str) -> None:
        if self.next_attempt:
            self._interrupt()
        elif self.system.schedule.random.random() < 0.5:
            self._fail(reason)
        elif not self.query.is_over and self.query.engine.process.is_alive:
            self._interrupt()
            self.system.schedule.start(
                self.query.engine.process, self._start_next_attempt, f"task {self.tp}, again"
            )

    def _interrupt(self) -> None:
        self.is_interrupted = True

    def _fail(self, reason: str) -> None:
        if self.query.engine.process.is_alive:
            self.query.end(f"Job aborted due to stage failure: {reason}")
