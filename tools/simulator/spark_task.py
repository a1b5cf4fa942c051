"""A task of the simulated Spark query: one attempt reads a partition's records and gives them to
its writer (`envelope_writer`).

It reads committed records. The faults of envelopes concern it too:

- `lose`, `straggle`: the attempt fails some time after its envelope was lost;
- `repeat`: Spark starts a second attempt of a task on another host, from the beginning of its batch
  and with the same `after`, while the first attempt goes on writing, slowly;
- `freeze`: its executor stands still, with what it has in flight, and goes on when another attempt
  has taken over, or when the run has ended.

When an attempt fails, Spark starts another (`spark.task.maxFailures`), or the query fails. When an
attempt fails that was already replaced, the query goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.routes import TopicPartition
from tools.simulator import log_reader
from tools.simulator.envelope_writer import EnvelopeWriter
from tools.simulator.schedule import Signal

if TYPE_CHECKING:
    from tools.simulator.kafka.cluster import Cluster
    from tools.simulator.spark_query import Query

POLL_S = 0.05
"""A task asks its source again this often: a change is seen up to this time later."""
IDLE_S = 1.0
"""A task whose partition does not change asks again this often."""
POLL_TIMEOUT_S = 120.0
"""A task of a batch with an end fails when it gets nothing for so long: `spark.network.timeout`, as
`kafkaConsumer.pollTimeoutMs` is not set (`tests/e2e/test_lost_batch_end.py`).
"""
INTERRUPTED_MAX_S = (0.5, 5.0)
"""An attempt that was replaced is interrupted before one of these times."""
REPLACED_DELAY_S = (0.0, 0.5)
"""How long an attempt that was replaced waits before it reads on."""
FROZEN_S = (1.0, 30.0)
"""How long an executor stands still."""
FROZEN_STEP_S = 0.5


class Task:
    """One attempt of the task for one partition of one batch."""

    def __init__(
        self,
        query: Query,
        tp: TopicPartition,
        source_partition: TopicPartition,
        begin: int,
        after: int,
        end: int | None,
        ends_at: float,
    ) -> None:
        self.query, self.system = query, query.system
        self.tp, self.source_partition = tp, source_partition
        self.begin = self.position = begin
        self.after = after
        """Of the first envelope: the same for every attempt of a task."""
        self.end, self.ends_at = end, ends_at
        self.filter_sql = query.plan.settings.filter.sql
        self.progressed_at = self.system.schedule.now
        """When the last offset was read, or the task began."""
        self.is_interrupted = False
        self.thaws_at = 0.0
        self.held_until_s = 0.0
        """Until then its producer does not reach the destination, while it reads on."""
        self.next_attempt: Task | None = None
        """The attempt that replaces this one."""
        self.is_read = False
        self.source_changed = Signal(self.system.schedule)
        self.writer = EnvelopeWriter(self, query.find_identity(tp), query.plan.epoch, after)
        query.attempts.append(self)

    @property
    def last_attempt(self) -> Task:
        """The attempt whose result Spark uses."""
        return self.next_attempt.last_attempt if self.next_attempt else self

    @property
    def is_done(self) -> bool:
        """Whether the last attempt has read its part of the batch, and all that it has written is
        acknowledged.
        """
        last_attempt = self.last_attempt
        return last_attempt.is_read and last_attempt.writer.is_done

    @property
    def is_standing_still(self) -> bool:
        """Whether its executor, or the JVM of all of them, stands still now."""
        jvm = self.query.engine.process
        return self.system.schedule.now < self.thaws_at or (jvm.is_frozen and jvm.is_alive)

    @property
    def is_held(self) -> bool:
        """Whether nothing of it arrives now."""
        held_until_s = max(self.held_until_s, self.query.held_until_s)
        return self.is_standing_still or self.system.schedule.now < held_until_s

    def can_read(self) -> bool:
        """Whether this attempt may still read its source."""
        return not (self.is_interrupted or self.is_read) and self.query.can_read

    def read(self) -> None:
        """Read records and give them to the writer until the batch ends."""
        schedule, source = (
            self.system.schedule,
            self.system.find_cluster(self.query.plan.settings.source_cluster),
        )
        while not self.is_interrupted and not self.query.is_over:
            if self._wait_while_away(source):
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
            if read_result is None:
                self._retry_or_fail()
                continue
            if self._accept(*read_result):
                schedule.sleep(schedule.random.uniform(0.0005, 0.01))
            elif self.end is None and schedule.now >= self.ends_at:
                break
            elif self._is_timed_out():
                self._fail("KafkaIllegalStateException: Some data may have been lost")
            else:
                self._wait_for_records(source)
            if self.next_attempt and schedule.random.random() < 0.5:
                schedule.sleep(schedule.random.uniform(*REPLACED_DELAY_S))
        if not self.is_interrupted and not self.query.is_over:
            self.writer.close()
        self.is_read = True
        self.query.progressed.notify()

    def _retry_or_fail(self) -> None:
        """The position is out of range: Real-Time Mode may ask again for ever."""
        if self.query.plan.settings.stop_at_end or self.system.schedule.random.random() < 0.5:
            self._fail("OffsetOutOfRangeException")
        else:
            self.system.schedule.sleep(1.0)

    def _wait_while_away(self, source: Cluster) -> bool:
        """Wait a little if the executor stands still or the source is down; whether it was so."""
        schedule = self.system.schedule
        if schedule.now < self.thaws_at:
            schedule.sleep(min(FROZEN_STEP_S, self.thaws_at - schedule.now))
            return True
        if source.is_down:
            schedule.wait(source.up, IDLE_S)
            return True
        return False

    def _accept(self, records: list[tuple[int, log_reader.Content]], next_offset: int) -> bool:
        """Write what was read, up to this offset of the source. Returns whether there were
        records.
        """
        self.writer.append(records)
        if next_offset > self.position:
            self.progressed_at = self.system.schedule.now
        self.position = next_offset
        return bool(records)

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

    # ---- attempts

    def replace(self) -> None:
        """Spark starts another attempt, and kills this one some time later."""
        if not self.next_attempt:
            generator = self.system.schedule.random
            self._start_next_attempt()
            self.system.schedule.call_later(
                generator.uniform(0.0, generator.choice(INTERRUPTED_MAX_S)), self._interrupt
            )

    def freeze(self) -> None:
        """Its executor stands still. If that takes long, Spark starts another attempt, and kills
        this one when it is heard of again.
        """
        schedule = self.system.schedule
        seconds = schedule.random.uniform(*FROZEN_S) * schedule.random.random()
        self.thaws_at = schedule.now + seconds
        lost_after_s = schedule.random.uniform(0.5, FROZEN_S[1])
        if lost_after_s < seconds:
            schedule.call_later(lost_after_s, self._start_next_attempt)
            schedule.call_later(
                seconds + schedule.random.uniform(0.0, INTERRUPTED_MAX_S[0]), self._interrupt
            )
        self.system.faults.schedule_end(seconds, lambda: None)

    def _start_next_attempt(self) -> None:
        if self.next_attempt or self.is_interrupted or not self.query.can_read:
            return
        self.next_attempt = Task(
            self.query,
            self.tp,
            self.source_partition,
            self.begin,
            self.after,
            self.end,
            self.ends_at,
        )
        self.system.schedule.start(
            self.query.engine.process, self.next_attempt.read, f"task {self.tp}, again"
        )

    def fail_attempt(self, reason: str) -> None:
        """The attempt fails: another one takes over, or the query fails too."""
        if self.next_attempt:
            self._interrupt()
        elif self.system.schedule.random.random() < 0.5:
            self._fail(reason)
        else:
            self._start_next_attempt()
            self._interrupt()

    def _interrupt(self) -> None:
        self.is_interrupted = True

    def _fail(self, reason: str) -> None:
        if self.query.engine.process.is_alive:
            self.query.end(f"Job aborted due to stage failure: {reason}")
