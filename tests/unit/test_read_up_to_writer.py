"""When a read-up-to record is written again (`replicator.read_up_to_writer`)."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from common import runtime
from common.routes import Route, TopicPartition
from replicator import read_up_to_writer
from replicator.read_up_to_writer import REWRITE_S, EmptyRange, ReadUpToWriter

TP = TopicPartition("orders-proxy", 0)
IDENTITIES = {Route("orders", "orders", "orders-proxy"): "1d" * 8}
RANGE = {TP: EmptyRange(9, 20)}


class Notes:
    """The producers that a writer creates, and how many records each was given; the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.records: list[int] = []
        self.next_poll: Callable[[], None] = lambda: None
        monkeypatch.setattr(runtime, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(read_up_to_writer, "create_idempotent_producer", self.create)
        settings = SimpleNamespace(destination_cluster=None, filter=SimpleNamespace(sql=""))
        self.writer = ReadUpToWriter(cast(Any, settings))

    def create(self, *_: object) -> Any:
        """A new producer."""
        number = len(self.records)
        self.records.append(0)

        def produce(*_: object, **__: object) -> None:
            self.records[number] += 1

        return SimpleNamespace(produce=produce, poll=lambda _: self.next_poll())

    def write(self) -> None:
        """Offer the same range again."""
        self.writer.write(5, IDENTITIES, RANGE)


def test_a_range_without_effect_is_written_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have been lost, unread, with a leader of the intermediate topic."""
    notes = Notes(monkeypatch)
    for now_s in (0.0, 1.0, REWRITE_S - 1):
        notes.now_s = now_s
        notes.write()
    assert notes.records == [1]
    for now_s in (REWRITE_S, REWRITE_S + 1):
        notes.now_s = now_s
        notes.write()
    assert notes.records == [2]


@pytest.mark.parametrize("hides_it", [False, True], ids=["KafkaException", "SystemError"])
def test_a_producer_with_a_fatal_error_is_replaced(
    monkeypatch: pytest.MonkeyPatch, hides_it: bool
) -> None:
    """The process goes on, and the next call writes with a new one. confluent-kafka 2.16 raises a
    SystemError when there is a delivery report as well.
    """
    notes = Notes(monkeypatch)

    def fail() -> None:
        fatal = KafkaException(KafkaError(KafkaError._FATAL, "out of sequence", fatal=True))
        if hides_it:
            raise SystemError from fatal
        raise fatal

    notes.next_poll = fail
    notes.write()
    notes.next_poll = lambda: None
    notes.write()
    assert notes.records == [1, 1]


def test_an_error_that_is_not_the_clients_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a defect."""
    notes = Notes(monkeypatch)

    def fail() -> None:
        raise SystemError("of the interpreter")

    notes.next_poll = fail
    with pytest.raises(SystemError, match="of the interpreter"):
        notes.write()
