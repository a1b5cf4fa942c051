"""Nothing is begun again for ever: what is slow is done in parts that fit in their time, or is
named. Clocks and clients are the tests' own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from common import clock
from common.errors import FilterFailed
from common.liveness import Liveness
from common.partition_mapping import SourceRecord
from common.routes import TopicPartition
from deduplicator.record_filter import FunctionFilter
from deduplicator.transactions import transactional_producer
from deduplicator.transactions.transaction_failures import TransactionFailed
from deduplicator.transactions.transactional_producer import TransactionalProducer
from deduplicator.user_call_timeout import CallLimit

HERE = TopicPartition("orders", 0)
TIMEOUT_S = 120.0
"""Above what the watchdog allows a process to be silent."""
NOT_YET = KafkaError(KafkaError._TIMED_OUT, "not yet", False, True)


class Slow:
    """A client, and its clock: each call lasts as long as it is allowed to, until the work of
    `needs_s` is done.
    """

    def __init__(self, needs_s: float = 0.0) -> None:
        self.now = 0.0
        self.needs_s = needs_s
        self.asked: list[float] = []
        self.aborted = 0

    def __call__(self) -> float:
        """The clock."""
        return self.now

    def _last(self, timeout_s: float) -> None:
        self.asked.append(timeout_s)
        self.now += min(timeout_s, self.needs_s)
        self.needs_s -= timeout_s
        if self.needs_s > 0:
            raise KafkaException(NOT_YET)

    def send_offsets_to_transaction(self, _: object, __: object, timeout_s: float) -> None:
        """As Producer's."""
        self._last(timeout_s)

    def abort_transaction(self, _: float) -> None:
        """As Producer's."""
        self.aborted += 1

    def begin_transaction(self) -> None:
        """As Producer's."""

    def init_transactions(self, _: float) -> None:
        """As Producer's."""

    def purge(self) -> None:
        """As Producer's."""


class Unanswered(Slow):
    """Its commit is answered after three signs of life."""

    def __init__(self) -> None:
        super().__init__()
        self.committing, self.answered = threading.Event(), threading.Event()
        self.beats = 0

    def commit_transaction(self, _: float) -> None:
        """As Producer's."""
        self.committing.set()
        assert self.answered.wait(60)

    def answer_third_beat(self) -> None:
        """Called at each sign of life."""
        self.beats += self.committing.is_set()
        if self.beats == 3:
            self.answered.set()


class Beats(Liveness):
    """Tells of each sign of life."""

    def __init__(self) -> None:
        self.on_beat: Callable[[], None] = lambda: None
        super().__init__("test-livelock")

    def beat(self) -> None:
        """Tell."""
        self.on_beat()


def open_transaction(
    monkeypatch: pytest.MonkeyPatch, client: Slow
) -> tuple[TransactionalProducer, Beats]:
    """With a transaction, by the clock of this client."""
    monkeypatch.setattr(clock, "monotonic", client)
    liveness = Beats()
    producer = TransactionalProducer(lambda: cast(Any, client), TIMEOUT_S, liveness)
    producer.begin()
    return producer, liveness


def test_a_slow_commit_gives_signs_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that is not answered is waited for in parts, said to be waited for, and done: the
    watchdog, which allows 60 s, has nothing to kill.
    """
    monkeypatch.setattr(transactional_producer, "STEP_S", 0.01)
    client = Unanswered()
    producer, liveness = open_transaction(monkeypatch, client)
    liveness.on_beat = client.answer_third_beat
    producer.send_offsets([ClientTopicPartition("t", 0)], None)
    producer.start_commit()
    producer.finish_commit()
    assert client.beats > 3
    assert (producer.state, liveness.reason) == ("ready", "destination")


def test_a_transaction_is_over_before_the_coordinator_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever takes the time: beyond its timeout the producer would be fenced, which ends the
    process, and the next one begins with as much again.
    """
    client = Slow()
    producer, _ = open_transaction(monkeypatch, client)
    client.needs_s = 2 * TIMEOUT_S
    with pytest.raises(TransactionFailed):
        producer.send_offsets([ClientTopicPartition("t", 0)], None)
    assert client.now < TIMEOUT_S
    assert client.asked == [client.now]
    producer, _ = open_transaction(monkeypatch, client)
    producer.check_deadline("writing")
    client.now += 0.95 * TIMEOUT_S
    with pytest.raises(TransactionFailed, match="not over"):
        producer.check_deadline("writing")
    assert (client.aborted, producer.state) == (1, "ready")


def test_offsets_without_an_answer_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has lost a connection may never return: the producer is discarded, long before
    the transaction's time is over. One that has lost none is waited for.
    """
    monkeypatch.setattr(transactional_producer, "STEP_S", 0.01)
    losses, answered, steps = [0], threading.Event(), 0

    def send_offsets(*_: object) -> None:
        assert answered.wait(60)

    def lose_connection() -> None:
        nonlocal steps
        steps += 1
        losses[0] += steps == 3

    client = Slow()
    monkeypatch.setattr(client, "send_offsets_to_transaction", send_offsets)
    liveness = Beats()
    producer = TransactionalProducer(
        lambda: cast(Any, client), 600.0, liveness, lambda _: losses[0]
    )
    producer.begin()
    liveness.on_beat = lose_connection
    with pytest.raises(TransactionFailed, match="no answer"):
        producer.send_offsets([ClientTopicPartition("t", 0)], None)
    answered.set()
    assert steps >= 4
    assert (producer.state, producer.client) == ("new", None)


def slow(record: SourceRecord) -> bool:
    """A user's function that hangs on the third record."""
    time.sleep(60 if record.value == b"2" else 0)
    return True


@pytest.mark.parametrize("park_failures", [False, True])
def test_a_function_that_hangs_is_named(park_failures: bool) -> None:
    """By the record; each record before it was a sign of life. A parked record is put aside, and
    the next is looked at.
    """
    alive: list[int] = []
    record_filter = FunctionFilter(
        {"tests.unit.deduplicator.test_livelock:slow": slow},
        park_failures,
        CallLimit(lambda: alive.append(1), 0.2),
    )
    records: list[Any] = [(None, b"%d" % number, None, 0) for number in range(4)]
    if park_failures:
        result = record_filter.filter_records(HERE, records, range(10, 14))
        assert (result.source_offsets, len(result.parked), len(alive)) == ([10, 11, 13], 1, 4)
    else:
        with pytest.raises(
            FilterFailed,
            match=r"offset 12 of orders-0: TimeoutError: it has not returned within 0\.2 s",
        ):
            record_filter.filter_records(HERE, records, range(10, 14))
        assert len(alive) == 3
