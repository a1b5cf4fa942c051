"""What is consumed of the intermediate topics, and what an error that comes instead means."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Message

from common.errors import AccessRefused, Fenced, StageFailed
from deduplicator.intermediate_consumer import ENVELOPES_MAX, Intermediate
from deduplicator.partitions import Partitions
from tests.harness.intermediate_records import build_envelopes


class Consumer:
    """Has these messages; `waits` are the times that it was asked to wait."""

    def __init__(self, messages: list[Any]) -> None:
        self.messages = messages
        self.waits: list[float] = []

    def poll(self, wait_s: float) -> Any:
        """As Consumer.poll."""
        self.waits.append(wait_s)
        return self.messages.pop(0) if self.messages else None

    def consume(self, count: int, wait_s: float) -> list[Any]:
        """As Consumer.consume."""
        self.waits.append(wait_s)
        found, self.messages = self.messages[:count], self.messages[count:]
        return found


def open_intermediate(messages: list[Any]) -> tuple[Intermediate, Consumer, list[KafkaError]]:
    """And the errors that are noted."""
    consumer, noted = Consumer(messages), list[KafkaError]()
    return (
        Intermediate(cast(Any, consumer), Partitions(), noted.append),
        consumer,
        noted,
    )


def build_error(code: int | tuple[int, str]) -> Message:
    """A message that is an error, with or without its own text."""
    error = KafkaError(*code) if isinstance(code, tuple) else KafkaError(code, "as the test says")
    return Message(topic="t-proxy", partition=0, error=error)


def test_it_waits_for_the_first_message_only() -> None:
    """A single envelope is not delayed. With no message there, one poll is enough."""
    messages = build_envelopes(*range(20))
    intermediate, consumer, _ = open_intermediate(list(messages))
    assert intermediate.consume(0.2) == messages[:ENVELOPES_MAX]
    assert consumer.waits == [0.2, 0]
    assert intermediate.consume(0, 1) == messages[ENVELOPES_MAX : ENVELOPES_MAX + 1]
    assert consumer.waits == [0.2, 0, 0]
    consumer.messages = []
    assert intermediate.consume(0.2) == []
    assert consumer.waits == [0.2, 0, 0, 0.2]


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
    ],
)
def test_a_topic_that_is_not_known_is_noted(code: int) -> None:
    """It may be about to be created again. What came with the error is not lost."""
    messages = build_envelopes(3, 5)
    intermediate, _, noted = open_intermediate([messages[0], build_error(code), messages[1]])
    assert intermediate.consume(0) == messages
    assert [error.code() for error in noted] == [code]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (KafkaError._MAX_POLL_EXCEEDED, StageFailed),
        (KafkaError.OFFSET_OUT_OF_RANGE, StageFailed),
        (KafkaError.FENCED_INSTANCE_ID, Fenced),
        ((KafkaError._FATAL, "as the test says: Static consumer fenced by other consumer"), Fenced),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AccessRefused),
    ],
)
def test_any_other_error_ends_the_worker(
    code: int | tuple[int, str], error: type[Exception]
) -> None:
    """It begins again; two of them are stops, with their own exit code."""
    intermediate, _, noted = open_intermediate([build_error(code)])
    with pytest.raises(error, match=r"consuming an intermediate topic|as the test says"):
        intermediate.consume(0)
    assert noted == []
