"""What ends `reo heartbeat`: one clear error; on real brokers: `tests/broker/test_heartbeat.py`."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from common.errors import SettingsInvalid, TopicMissing
from common.settings import load
from reo.progress import heartbeat
from reo.progress.heartbeat import Path
from tests.unit.common.settings.test_settings import GOOD


def test_a_port_that_is_taken_is_named() -> None:
    """As metrics.port is."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            SettingsInvalid, match=rf"^--port {port} of 127\.0\.0\.1 cannot be opened"
        ):
            heartbeat.serve_age(port, "127.0.0.1")


@pytest.mark.parametrize("is_told_later", [False, True])
def test_a_topic_that_was_deleted_meanwhile_is_named(is_told_later: bool) -> None:
    """The client knows it when it is to write, or the broker says it of a heartbeat before."""
    path: Any = object.__new__(Path)
    gone = KafkaError(KafkaError._UNKNOWN_TOPIC)

    def produce(*_: object, **__: object) -> None:
        assert not is_told_later
        raise KafkaException(gone)

    path.route, path.sender = next(iter(load(GOOD).build_routes())), "ab"
    path.refused = gone if is_told_later else None
    path.producer = SimpleNamespace(produce=produce)
    with pytest.raises(TopicMissing, match=r"^writing topic orders of the source cluster: "):
        path.write()
