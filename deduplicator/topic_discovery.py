"""Topics that appear while a worker runs: a pattern may fit them.

The source cluster is asked by a thread of its own, with clients of its own: it can be silent for long, and the loop must not wait for it. What the
thread finds is prepared (`common.topics`) before the loop hears of it, because a group's member must not subscribe to a topic that is not there.
Preparing takes some requests for each topic, looking takes two for all of them: so it is looked first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from common import machine, topics
from common.errors import ClusterUnreachable
from common.kafka_clients import admin
from common.routes import Route
from common.settings import Settings

log = logging.getLogger(__name__)
EVERY_S = 3.0


class TopicDiscovery:
    """Asks again and again, if a rule has a pattern; `new` is for the loop."""

    def __init__(self, settings: Settings, known: Iterable[Route]) -> None:
        self.settings = settings
        self.routes = set(known)
        self.error: Exception | None = None
        self.stopped = machine.event()
        if any(rule.is_pattern for rule in settings.rules):
            machine.background(self._work, "follower")

    def find_new_routes(self, known: Iterable[Route]) -> set[Route]:
        """The routes that have come since; raises what the thread has met."""
        if self.error is not None:
            raise self.error
        return self.routes - set(known)

    def close(self) -> None:
        """Ask no more."""
        self.stopped.set()

    def _work(self) -> None:
        client = admin(self.settings.source, self.settings)
        while not self.stopped.wait(EVERY_S):
            try:
                if not self.routes.issuperset(topics.sources(self.settings, client)):
                    self.routes.update(topics.prepare(self.settings))
            except ClusterUnreachable as silent:
                log.warning("topics that a pattern could fit cannot be looked for now: %s", silent)
            except Exception as failed:  # the loop raises it: without this thread it would follow nothing, in silence
                self.error = failed
                return
