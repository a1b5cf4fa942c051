"""A client for requests to a group's coordinator is replaced before it can wait in vain
(`common.kafka.coordinator_client`); on real brokers:
`tests/e2e/test_faults.py::test_a_worker_outlives_its_destination_broker`.
"""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from common import clock
from common.errors import AccessRefused, ClusterUnreachable
from common.kafka import coordinator_client
from common.kafka.coordinator_client import IDLE_S, CoordinatorClient

TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)
REFUSED = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)


class Stand:
    """A coordinator client whose clients are numbers, and its clock; each request lasts until its
    time is over.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.created = 0
        monkeypatch.setattr(clock, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(coordinator_client, "create_admin_client", self.create)
        self.coordinator = CoordinatorClient(cast(Any, None), cast(Any, None))

    def create(self, *_: object) -> Any:
        """The number of a new client."""
        self.created += 1
        return self.created

    def ask(self, error: KafkaError | None = None) -> int:
        """The number of the client that is asked, unless it gets this error."""

        def ask(client: Any) -> int:
            if error is not None:
                self.now_s += 60.0
                raise KafkaException(error)
            return cast(int, client)

        return self.coordinator.ask("describing", ask)


def test_a_client_without_an_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may wait for a coordinator that it has forgotten. One that is refused is answered."""
    stand = Stand(monkeypatch)
    assert stand.ask() == 1
    with pytest.raises(AccessRefused):
        stand.ask(REFUSED)
    assert stand.created == 1
    stand.now_s -= 60.0
    with pytest.raises(ClusterUnreachable):
        stand.ask(TIMED_OUT)
    assert stand.created == 2


def test_an_idle_client_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """It can have lost its connection unseen; one that is asked all the time would have noticed."""
    stand = Stand(monkeypatch)
    for _ in range(10):
        stand.now_s += IDLE_S
        assert stand.ask() == 1
    stand.now_s += IDLE_S + 1
    assert stand.ask() == 2
