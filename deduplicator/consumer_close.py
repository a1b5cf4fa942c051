"""Closes the consumer of a member of the group, so that no callback of the group runs in the
client's own `close`.

That runs the callback of an assignment that was not polled, while the client's part for the group
ends. A request in the callback then fails, or never returns (librdkafka 2.16, #4884), and
confluent-kafka makes one even for a callback that makes none.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException


def close_consumer(consumer: Consumer, can_be_assigned: Callable[[], bool]) -> None:
    """Close the consumer. It leaves the group, unless this is a static member of the classic
    protocol that no assignment can reach (`can_be_assigned`).
    """
    _poll_callbacks(consumer)
    if can_be_assigned():
        with suppress(KafkaException):  # a member that was fenced has no partitions
            consumer.unsubscribe()
        _poll_callbacks(consumer)
    consumer.close()


def _poll_callbacks(consumer: Consumer) -> None:
    """Run the callbacks that wait; messages and errors are of no use any more."""
    while consumer.poll(0) is not None:
        pass
