"""An admin client for a group's coordinator, replaced when it was idle or gets no answer.

librdkafka (2.16, issue 5511) remembers which broker coordinates a group. An answer that does not
name this broker, as right after its restart, makes it forget the broker, but not that it is the
coordinator: then every request to this coordinator waits for a connection that nobody opens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from confluent_kafka.admin import AdminClient

from common import clock
from common.errors import ClusterUnreachable, ReoError
from common.kafka.clients import create_admin_client
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S, ask_with_retries
from common.settings import Settings
from common.settings.clusters import Cluster

log = logging.getLogger(__name__)
Result = TypeVar("Result")


IDLE_S = 5.0
"""A client that was not asked for so long may have lost its connection meanwhile."""


class CoordinatorClient:
    """An admin client that is replaced when it has been idle, or gets no answer."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self.cluster = cluster
        self._create = partial(create_admin_client, cluster, settings)
        self.client = self._create()
        self.asked_at = clock.monotonic()

    def ask(
        self,
        doing: str,
        ask: Callable[[AdminClient], Result],
        later: tuple[type[ReoError], ...] = (ClusterUnreachable,),
    ) -> Result:
        """See `ask_with_retries`; `ask` gets the client to ask with."""
        if clock.monotonic() > self.asked_at + IDLE_S:
            self.client = self._create()
        self.asked_at = clock.monotonic()
        try:
            return ask_with_retries(doing, REQUEST_TIMEOUT_S, lambda: ask(self.client), later)
        except ClusterUnreachable as silent:
            log.debug("the next request has a new client: %s", silent)
            self.client = self._create()
            raise
