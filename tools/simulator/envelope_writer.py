"""The writer of one attempt of a simulated task: it puts rows into envelopes, and its producer
delivers these in order. This is the contract of stage one's sink (`replicator/spark/sink/`):

- rows come in ascending source offsets; one that `filter.sql` leaves out moves `through` only;
- the first envelope begins where the batches before have ended, the next one where this one ends;
- an envelope is sent when nothing is in flight, or when it is full, or when the last one in flight
  is acknowledged; how full one is, and when the sender looks, is drawn;
- after an envelope that is lost or unanswered, no further one is sent. (One that the producer has
  already can still be delivered: it then has the lost one's place.)

Whatever was sent can arrive long after the attempt, its batch and its run have ended.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from common.envelope import EnvelopeRecord, Head
from tools.envelope_encoder import encode
from tools.simulator.kafka.errors import BrokerError
from tools.simulator.record_filter import is_row_copied

if TYPE_CHECKING:
    from tools.simulator.log_reader import Content
    from tools.simulator.spark_task import Task

CREATE_TIME = 0
RESEND_S = 0.5
HELD_S = 0.1
"""How often a producer that does not reach the destination is looked at again."""
FAIL_DELAY_S = (0.01, 3.0)
"""An attempt fails this long after its envelope was lost."""
LATE_S = (1.0, 20.0)
FULL_RECORDS = (1, 2, 2, 3, 4, 6)
"""An envelope of an attempt is full with one of these numbers of records."""
SEND_AT_ONCE_SHARE = 0.5
"""How often the sender looks before the next row comes."""


class EnvelopeWriter:
    """What one attempt has written, and what is in its buffer."""

    def __init__(self, task: Task, source_identity: str, epoch: int, after: int) -> None:
        self.task = task
        self.system = task.system
        self.random = task.system.schedule.random
        self.source_identity, self.epoch = source_identity, epoch
        self.records_max = self.random.choice(FULL_RECORDS)
        self.records: list[EnvelopeRecord] = []
        """The buffer."""
        self.after = self.through = after
        """The stretch of the envelope that is being filled."""
        self.has_left_out = False
        self.in_flight: deque[bytes] = deque()
        """In the order in which they were sent."""
        self.unacknowledged = 0
        self.last_arrival = 0.0
        self.is_closed = False
        self.is_broken = False
        """Whether one was lost, or is not answered: the attempt fails."""
        self.sends_after_loss = 0
        """How many more its producer has got by the time when the loss is known."""

    @property
    def is_done(self) -> bool:
        """Whether every row is in an envelope that is acknowledged."""
        return self.is_closed and self.unacknowledged == 0 and self.after == self.through

    # ---- rows

    def append(self, rows: list[tuple[int, Content]]) -> None:
        """The rows of one read."""
        for offset, content in rows:
            self.through = offset
            if is_row_copied(self.task.filter_sql, content[1]):
                self.records.append(_convert(offset, content))
            else:
                self.has_left_out = True
            is_full = len(self.records) >= self.records_max
            if is_full or (not self.unacknowledged and self.random.random() < SEND_AT_ONCE_SHARE):
                self.flush()
        if not self.unacknowledged and self.records:
            self.flush()
        source, read_through = self.task.source_partition, self.system.read_through
        read_through[source] = max(self.through, read_through.get(source, -1))

    def close(self) -> None:
        """No more rows come: send what is left, also when rows were left out and none follows."""
        self.is_closed = True
        self.flush()

    def flush(self) -> None:
        """Send the buffer as an envelope."""
        if self.through == self.after:
            return
        head = Head(
            self.source_identity,
            self.epoch,
            self.task.source_partition.partition,
            self.after,
            self.through,
            has_left_out=self.has_left_out,
        )
        value = encode(head, self.records)
        self.records, self.has_left_out, self.after = [], False, self.through
        if self.is_broken:
            self.sends_after_loss -= 1
            if self.sends_after_loss >= 0:
                self._deliver_in_order(value)
            return
        self._send(value)

    # ---- the producer

    def _send(self, value: bytes) -> None:
        schedule, fault = self.system.schedule, self.system.faults.take_envelope_fault(self.task)
        if fault in ("lose", "straggle"):
            # never acknowledged, so Spark does not complete the batch
            self.unacknowledged += 1
            self.is_broken = True
            self.sends_after_loss = self.random.choice((0, 0, 1, 3))
            schedule.call_later(
                self.random.uniform(*FAIL_DELAY_S),
                lambda: self.task.fail_attempt("TimeoutException: expiring 1 record(s)"),
            )
            if fault == "straggle":
                schedule.call_later(self.random.uniform(*LATE_S), lambda: self._arrive_late(value))
            return
        if fault == "repeat":
            self.task.replace()
        elif fault == "freeze":
            self.task.freeze()
        self._deliver_in_order(value)

    def _deliver_in_order(self, value: bytes) -> None:
        schedule = self.system.schedule
        self.last_arrival = max(self.last_arrival, schedule.now + self.random.uniform(0.0005, 0.02))
        self.unacknowledged += 1
        self.in_flight.append(value)
        schedule.call_at(self.last_arrival, self._deliver_next)

    def _deliver_next(self) -> None:
        """Deliver the oldest one: an idempotent producer keeps the order, also when it has to send
        again.
        """
        schedule = self.system.schedule
        if self.task.is_held:
            schedule.call_later(HELD_S, self._deliver_next)
        elif self.system.destination.is_down:
            schedule.call_later(RESEND_S, self._deliver_next)
        else:
            self._write(self.in_flight.popleft())
            self.unacknowledged -= 1
            if not self.unacknowledged and (self.records or self.is_closed):
                self._on_all_acknowledged()
            self.task.query.progressed.notify()

    def _on_all_acknowledged(self) -> None:
        """A task that was killed meanwhile drops its buffer, unless its sender was faster."""
        is_alive = not self.task.is_interrupted and self.task.query.engine.process.is_alive
        if is_alive or self.random.random() < SEND_AT_ONCE_SHARE:
            self.flush()

    def _arrive_late(self, value: bytes) -> None:
        """One that the producer has given up arrives by itself."""
        if self.system.destination.is_down:
            self.system.schedule.call_later(RESEND_S, lambda: self._arrive_late(value))
        else:
            self._write(value)

    def _write(self, value: bytes) -> None:
        try:
            self.system.destination.append(
                *self.task.tp, [(None, value, None, self.system.unix_ms())]
            )
        except BrokerError as error:  # there is no such topic, or it takes no records without a key
            if not self.is_broken:
                self.is_broken = True
                self.task.fail_attempt(str(error))


def _convert(offset: int, content: Content) -> EnvelopeRecord:
    key, value, headers, timestamp_ms = content
    return EnvelopeRecord(
        offset,
        timestamp_ms,
        CREATE_TIME,
        key,
        value,
        tuple((name.encode(), own) for name, own in headers),
    )
