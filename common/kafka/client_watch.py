"""Ends a stage's process in which a client has lost its cluster for good; the supervisor starts it
again.

When an answer names no broker, librdkafka (2.16) forgets every broker that it knows, and does not
go back to `bootstrap.servers`: it sends nothing more, for ever, and reports nothing. A cluster in
KRaft mode answers so while none of its brokers is registered, as after a pause of the only broker.
So every client is asked regularly, and a new one with the same options if it does not answer.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from common.errors import StageFailed
from common.kafka.cluster_metadata import OFFSETS_TOPIC

log = logging.getLogger(__name__)
CHECK_INTERVAL_S = 10.0
ANSWER_S = 3.0
Options = dict[str, Any]


class Client(Protocol):
    """What all clients have."""

    def list_topics(self, topic: str, timeout: float) -> object:
        """A Metadata request."""


_new_clients: WeakKeyDictionary[Client, Callable[[], Client]] = WeakKeyDictionary()
"""The clients of this process, and what creates another one with the same options."""
_noting, _asking = threading.Lock(), threading.Lock()
"""The first is held while that table is used, the second while a client is asked: it must not be
closed meanwhile.
"""


class Consumer(confluent_kafka.Consumer):
    """A consumer that is not asked while it is closed; a class of its own also has weak
    references.
    """

    def close(self) -> None:
        """Leave the group."""
        with _asking, _noting:
            _new_clients.pop(self, None)
        super().close()


class Producer(confluent_kafka.Producer):
    """A producer to which there are weak references."""


def create_consumer(options: Options) -> Consumer:
    """A consumer that is asked."""
    client = Consumer(options)
    _note(client, partial(confluent_kafka.Consumer, options))
    return client


def create_producer(options: Options) -> Producer:
    """A producer that is asked."""
    client = Producer(options)
    _note(client, partial(confluent_kafka.Producer, options))
    return client


def create_admin_client(options: Options) -> AdminClient:
    """An admin client that is asked."""
    client = AdminClient(options)
    _note(client, partial(AdminClient, options))
    return client


def _note(client: Client, create_another: Callable[[], Client]) -> None:
    with _noting:
        _new_clients[client] = create_another


def find_lost_clients() -> set[Client]:
    """The clients that get no answer although a new client gets one."""
    with _noting:
        clients = dict(_new_clients)
    return {
        client
        for client, create_another in clients.items()
        if not _is_answered(client) and _is_answered(create_another(), is_noted=False)
    }


def _is_answered(client: Client, is_noted: bool = True) -> bool:
    with _asking:
        if is_noted and client not in _new_clients:  # it was closed
            return True
        try:
            client.list_topics(OFFSETS_TOPIC, ANSWER_S)
        except KafkaException:
            return False
        return True


def start() -> None:
    """Check from now on, in a thread: exit code 1 when a client is lost in two checks in a row."""
    threading.Thread(target=_run, name="client watch", daemon=True).start()


def _run() -> None:
    lost: Collection[Client] = ()
    while True:
        time.sleep(CHECK_INTERVAL_S)
        lost, before = find_lost_clients(), lost
        if lost.intersection(before):
            log.error(
                "a client gets no answer, although a new one does: librdkafka has lost the brokers"
                " of its cluster for good. This process starts again"
            )
            os._exit(StageFailed.exit_code)
