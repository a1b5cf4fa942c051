"""Ends a stage's process in which a client has forgotten every broker of its cluster; the
supervisor starts it again.

When an answer names no broker, librdkafka (2.16) forgets every broker that it knows, and does not
go back to `bootstrap.servers`: it sends nothing more, for ever, and reports nothing. A cluster in
KRaft mode answers so while none of its brokers is registered, as after a pause of the only broker.
So the watch regularly sends a Metadata request with each client, and if there is no answer, with a
new client that has the same options.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import confluent_kafka
from confluent_kafka import KafkaException

from common import clock
from common.errors import StageFailed
from common.kafka.cluster_metadata import MetadataClient, read_metadata

log = logging.getLogger(__name__)
CHECK_INTERVAL_S = 10.0
ANSWER_S = 3.0
Options = dict[str, Any]
RealClient = TypeVar("RealClient", bound=MetadataClient)

_factories: WeakKeyDictionary[MetadataClient, Callable[[], MetadataClient]] = WeakKeyDictionary()
"""By client of this process, what creates another one with the same options."""
_factories_lock = threading.Lock()
_request_lock = threading.Lock()
"""Held while the watch uses a client: it must not be closed meanwhile."""


class Consumer(confluent_kafka.Consumer):
    """A consumer that the watch does not use once it is closed; a class of its own also has weak
    references.
    """

    def close(self) -> None:
        """Leave the group."""
        with _request_lock, _factories_lock:
            _factories.pop(self, None)
        super().close()


class Producer(confluent_kafka.Producer):
    """A producer to which there are weak references."""


def create_watched(kind: Callable[[Options], RealClient], options: Options) -> RealClient:
    """A client of one of the classes here, or an admin client, that is watched."""
    client = kind(options)
    register(client, lambda: kind(options))
    return client


def register(client: MetadataClient, factory: Callable[[], MetadataClient]) -> None:
    """Watch a client from now on."""
    with _factories_lock:
        _factories[client] = factory


def find_lost_clients() -> set[MetadataClient]:
    """The clients that get no answer although a new client gets one."""
    with _factories_lock:
        factories = dict(_factories)
    return {client for client, factory in factories.items() if _is_lost(client, factory)}


def _is_lost(client: MetadataClient, factory: Callable[[], MetadataClient]) -> bool:
    with _request_lock:
        is_closed = client not in _factories
        if is_closed or _is_answered(client):
            return False
    try:
        new_client = factory()
    except KafkaException as failed:  # no thread or descriptor is left, or a certificate is gone
        log.warning("a client gets no answer, and a new one cannot be created: %s", failed)
        return False
    return _is_answered(new_client)


def _is_answered(client: MetadataClient) -> bool:
    try:
        read_metadata(client, ANSWER_S)
    except KafkaException:
        return False
    return True


def start() -> None:
    """Check from now on, in a thread: exit code 1 when a client is lost in two checks in a row."""
    clock.start_thread(_run, "client watch")


def _run() -> None:
    lost: Collection[MetadataClient] = ()
    while True:
        clock.sleep(CHECK_INTERVAL_S)
        lost, before = find_lost_clients(), lost
        if lost.intersection(before):
            log.error(
                "a client gets no answer, although a new one does: librdkafka has lost the brokers"
                " of its cluster for good. This process starts again"
            )
            os._exit(StageFailed.exit_code)
