"""Which clients have lost their cluster (`common.kafka.client_watch`); on a real broker:
`tests/broker/test_unregistered_broker.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from common.kafka import client_watch


class Client:
    """A client that gets an answer, or none."""

    def __init__(self, is_answered: bool) -> None:
        self.is_answered = is_answered

    def list_topics(self, *_: object, **__: object) -> Any:
        """As of all clients."""
        if not self.is_answered:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return object()


def fail() -> Client:
    """As librdkafka without a thread, a descriptor or a certificate."""
    raise KafkaException(KafkaError(KafkaError._CRIT_SYS_RESOURCE))


@pytest.mark.parametrize(
    ("is_answered", "create_another", "is_lost"),
    [
        pytest.param(True, lambda: Client(True), False, id="answered"),
        pytest.param(False, lambda: Client(True), True, id="only a new one is answered"),
        pytest.param(False, lambda: Client(False), False, id="the cluster is away"),
        pytest.param(False, fail, False, id="no new one can be created"),
    ],
)
def test_a_client_is_lost_when_only_a_new_one_is_answered(
    is_answered: bool, create_another: Callable[[], Client], is_lost: bool
) -> None:
    """The watch goes on whatever happens to the new one."""
    client = cast(Any, Client(is_answered))
    client_watch.register(client, create_another)
    assert (client in client_watch.find_lost_clients()) == is_lost
