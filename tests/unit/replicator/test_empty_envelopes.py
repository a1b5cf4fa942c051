"""When an envelope without records is written again (`replicator.runs.empty_envelopes`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from common import clock
from common.envelope import Head, parse_head
from common.partition_range import PartitionRange
from common.routes import Route, TopicPartition
from replicator.runs import empty_envelopes
from replicator.runs.empty_envelopes import STATE_AGAIN_S, EmptyEnvelopes, build_empty_heads

TP = TopicPartition("orders-proxy", 3)
IDENTITIES = {Route("orders", "orders", "orders-proxy"): "1d" * 8}
HEAD = Head("1d" * 8, 5, 3, 9, 19)


class Notes:
    """The producers that a writer creates, and what each was given; the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.values: list[list[bytes]] = []
        self.asked: list[tuple[object, ...]] = []
        self.next_poll: Callable[[], None] = lambda: None
        self.next_error: Exception | None = None
        self.on_delivery: Callable[[KafkaError | None, object], None]
        monkeypatch.setattr(clock, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(empty_envelopes, "create_idempotent_producer", self.create)
        self.writer = EmptyEnvelopes(cast(Any, SimpleNamespace(destination_cluster=None)))

    def create(self, *_: object) -> Any:
        """A new producer."""
        number = len(self.values)
        self.values.append([])

        def produce(topic: str, value: bytes, partition: int, on_delivery: Any) -> None:
            assert (topic, partition) == TP
            if self.next_error is not None:
                raise self.next_error
            self.values[number].append(value)
            self.on_delivery = on_delivery

        return SimpleNamespace(
            produce=produce,
            poll=lambda _: self.next_poll(),
            list_topics=lambda *asked: self.asked.append(asked),
        )

    def write(self, head: Head = HEAD) -> int:
        """Offer an envelope; how many were written in all."""
        self.writer.write({TP: head}, STATE_AGAIN_S)
        return sum(map(len, self.values))


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    """One for each test."""
    return Notes(monkeypatch)


def test_a_statement_is_about_what_follows_the_frontier(notes: Notes) -> None:
    """From the offset after the frontier on, 10, up to the one before the end, 20; of the run and
    the topic, without records. What is not above the frontier says nothing.
    """
    assert build_empty_heads(5, IDENTITIES, {TP: (10, 20)}) == {TP: HEAD}
    assert build_empty_heads(5, IDENTITIES, {TP: (10, 10)}) == {}
    assert build_empty_heads(5, IDENTITIES, {TP: (10, 0)}) == {}
    with_range = replace(next(iter(IDENTITIES)), partitions=PartitionRange(4))
    assert build_empty_heads(5, {with_range: "1d" * 8}, {TP: (10, 20)}) == {
        TP: HEAD._replace(source_partition=7)
    }
    notes.write()
    assert [parse_head(value) for value in notes.values[0]] == [HEAD]


def test_an_envelope_without_effect_is_written_again_after_a_while(notes: Notes) -> None:
    """The intermediate topic may have lost it, unread. Another one is written at once."""
    for now_s in (0.0, 1.0, STATE_AGAIN_S - 1):
        notes.now_s = now_s
        assert notes.write() == 1
    for now_s in (STATE_AGAIN_S, STATE_AGAIN_S + 1):
        notes.now_s = now_s
        assert notes.write() == 2
    assert notes.write(HEAD._replace(epoch=6)) == 3


def test_what_is_not_delivered_is_written_again(notes: Notes) -> None:
    """And is known as such until one is."""
    notes.write()
    notes.on_delivery(KafkaError(KafkaError._MSG_TIMED_OUT), None)
    assert notes.writer.undelivered == {TP}
    assert notes.write() == 2
    notes.on_delivery(None, None)
    assert not notes.writer.undelivered
    assert notes.write() == 2


def test_what_the_client_refuses_is_written_later(notes: Notes) -> None:
    """A partition that is new, and not known to the producer yet, which then asks for its topic."""
    notes.next_error = KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
    assert notes.write() == 0
    assert notes.writer.undelivered == {TP}
    assert [name for name, _ in notes.asked] == [TP.topic]
    notes.next_error = None
    assert notes.write() == 1


@pytest.mark.parametrize("hides_it", [False, True], ids=["KafkaException", "SystemError"])
def test_a_producer_with_a_fatal_error_is_replaced(notes: Notes, hides_it: bool) -> None:
    """The process goes on, and the next call writes with a new one. confluent-kafka 2.16 raises a
    SystemError when there is a delivery report as well.
    """

    def fail() -> None:
        fatal = KafkaException(KafkaError(KafkaError._FATAL, "out of sequence", fatal=True))
        if hides_it:
            raise SystemError from fatal
        raise fatal

    notes.next_poll = fail
    notes.write()
    notes.next_poll = lambda: None
    notes.write()
    assert list(map(len, notes.values)) == [1, 1]


def test_an_error_that_is_not_the_clients_is_raised(notes: Notes) -> None:
    """It is a defect."""

    def fail() -> None:
        raise SystemError("of the interpreter")

    notes.next_poll = fail
    with pytest.raises(SystemError, match="of the interpreter"):
        notes.write()
