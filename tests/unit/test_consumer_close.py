"""How stage two's consumer is closed: what waits is polled, and a backlog of hours is not read."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from deduplicator.consumer_close import close_dynamic_member, close_static_member


class Backlog:
    """A consumer that always has one more message while it is assigned partitions."""

    def __init__(self, is_fenced: bool = False) -> None:
        self.is_fenced = is_fenced
        self.is_fetching = not is_fenced
        self.calls: list[str] = []

    def poll(self, _: float) -> object:
        """A message, as long as it fetches."""
        self.calls.append("poll")
        assert self.calls.count("poll") < 100, "it reads on"
        return object() if self.is_fetching else None

    def unassign(self) -> None:
        """Fetch no more."""
        self.calls.append("unassign")
        self.is_fetching = False

    def unsubscribe(self) -> None:
        """Fetch no more; an error when the member was fenced."""
        self.calls.append("unsubscribe")
        self.is_fetching = False
        if self.is_fenced:
            raise KafkaException(KafkaError(KafkaError._FATAL))

    def close(self) -> None:
        """The last call."""
        self.calls.append("close")


def as_consumer(backlog: Backlog) -> Consumer:
    """For the functions under test."""
    return cast(Any, backlog)


@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_dynamic_member_leaves(is_fenced: bool) -> None:
    """Its partitions are given up before it polls."""
    backlog = Backlog(is_fenced)
    close_dynamic_member(as_consumer(backlog))
    assert backlog.calls == ["unsubscribe", "poll", "close"]


def test_a_static_member_with_an_assignment_stays() -> None:
    """It does not unsubscribe: that leaves the group, and a restart would be a rebalance."""
    backlog = Backlog()
    close_static_member(as_consumer(backlog), lambda: True)
    assert backlog.calls == ["unassign", "poll", "close"]


def test_a_static_member_without_an_assignment_leaves() -> None:
    """One that its last poll has brought counts."""
    backlog = Backlog()
    close_static_member(as_consumer(backlog), lambda: "poll" not in backlog.calls)
    assert backlog.calls == ["unassign", "poll", "unsubscribe", "poll", "close"]
