"""Up to where committed records of the intermediate topics are deleted (`deduplicator.purge`)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import TopicPartition as ClientTopicPartition

from common import clock
from common.routes import TopicPartition
from deduplicator.purge import PURGE_INTERVAL_S, Purge

TP = TopicPartition("t-proxy", 0)


class Client:
    """Answers at once."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def delete_records(
        self, before_offsets: Sequence[ClientTopicPartition]
    ) -> dict[ClientTopicPartition, Future[None]]:
        """Done."""
        self.asked += [tp.offset for tp in before_offsets]
        done: Future[None] = Future()
        done.set_result(None)
        return dict.fromkeys(before_offsets, done)


def test_a_lower_offset_is_one_of_another_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic was deleted and created again: its records are deleted too. Nothing is asked where
    nothing was committed since.
    """
    now_s = 0.0
    monkeypatch.setattr(clock, "monotonic", lambda: now_s)
    client = Client()
    purge = Purge(cast(Any, client))
    for committed in (1000, 1000, 1005, 5, 5, 9):
        now_s += PURGE_INTERVAL_S
        purge.delete_committed({TP: committed})
    assert client.asked == [1000, 1005, 5, 9]
