"""Discovers source topics that a pattern matches, and creates what their copies need.

A thread of its own, with clients of its own, asks the source cluster: it may not answer for long,
and the loop must not wait for it. The thread prepares the topics (`topic_creation`) before the
loop learns of them, because a group's member must not subscribe to a topic that does not exist. To
prepare takes some requests for each topic; to list takes two for all of them. So it lists first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from common import clock
from common.errors import ClusterUnreachable
from common.kafka import source_topics, topic_creation
from common.kafka.clients import create_admin_client
from common.kafka.route_topics import load_route_topics
from common.route_states import HaltedRoutes
from common.routes import Route
from common.settings import Settings

log = logging.getLogger(__name__)
INTERVAL_S = 3.0


class TopicDiscovery:
    """Asks regularly, if a rule has a pattern; the loop calls `find_new_routes`."""

    def __init__(self, settings: Settings, known: Iterable[Route], halted: HaltedRoutes) -> None:
        self.settings = settings
        self.halted = halted
        self.routes = set(known)
        self.described: Iterable[Route] = ()
        """The routes as they were described last, also those that cannot be prepared."""
        self.error: Exception | None = None
        self.stopped = clock.create_event()
        if any(rule.is_pattern for rule in settings.rules):
            clock.start_thread(self._run, "topic discovery")

    def find_new_routes(self, known: Iterable[Route]) -> set[Route]:
        """The routes that are not known yet; raises the error that the thread has met, once."""
        self.halted.add(self.described)  # a new one can stop alone, too
        error, self.error = self.error, None
        if error is not None:
            raise error
        return self.routes - set(known)

    def close(self) -> None:
        """End the thread."""
        self.stopped.set()

    def _run(self) -> None:
        client = create_admin_client(self.settings.source_cluster, self.settings)
        while not self.stopped.wait(INTERVAL_S):
            try:
                settings = self.settings.leave_out(self.halted.topics)
                self.described = source_topics.describe_sources(settings, client)
                if not self.routes.issuperset(self.described):
                    state = load_route_topics(settings)
                    self.routes.update(topic_creation.create_missing(state, known=self.routes))
            except ClusterUnreachable as unreachable:
                log.warning("topics that match a pattern cannot be discovered now: %s", unreachable)
            except Exception as failed:  # the loop raises it
                self.error = failed
