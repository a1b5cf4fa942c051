"""Closes the consumer of a member of the group, so that no callback of the group runs in the
client's own `close`.

That runs the callback of an assignment that was not polled, while the client's part for the group
ends. A request in the callback then fails, or never returns (librdkafka 2.16, #4884), and
confluent-kafka makes one even for a callback that makes none. So the callbacks run before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException


def close_static_member(consumer: Consumer, has_assignment: Callable[[], bool]) -> None:
    """Close the consumer of a static member of the classic protocol. It stays in the group with the
    assignment that it has (KIP-345). One without leaves, or it could be given one meanwhile.
    """
    consumer.unassign()  # or the polls would read on
    _poll_callbacks(consumer)
    if has_assignment():
        consumer.close()
    else:
        close_dynamic_member(consumer)


def close_dynamic_member(consumer: Consumer) -> None:
    """Close the consumer; the member leaves the group, whatever it is assigned."""
    with suppress(KafkaException):  # a member that was fenced has no partitions
        consumer.unsubscribe()
    _poll_callbacks(consumer)
    consumer.close()


def _poll_callbacks(consumer: Consumer) -> None:
    """Run the callbacks that wait; messages and errors are of no use any more."""
    while consumer.poll(0) is not None:
        pass
