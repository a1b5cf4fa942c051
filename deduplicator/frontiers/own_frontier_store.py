"""The positions in a user's own destination (`deduplicator.own_destination`), as the frontiers of a
start: taken over, compared with the group's commits, and with the last records that are stored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from common import runtime
from common.errors import DestinationTruncated, ForeignWriter
from common.frontier import Frontier
from common.kafka import topics
from common.routes import Route, TopicPartition
from common.settings import Settings
from deduplicator.destination import Output
from deduplicator.frontiers.committed_frontiers import WorkerGroup
from deduplicator.frontiers.frontier_store import (
    CheckedOutputs,
    LoadedFrontiers,
    merge_group_commits,
)
from deduplicator.own_destination import Unavailable, load_store

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
RETRY_INTERVAL_S = 0.5


class OwnFrontierStore:
    """The positions in the user's store, and who owns them."""

    def __init__(
        self, settings: Settings, routes: Mapping[str, Route], consumer_group: WorkerGroup
    ) -> None:
        self.settings = settings
        self.routes = routes
        """By intermediate topic; routes are added while the worker runs."""
        self.consumer_group = consumer_group
        self.identity = settings.destination.class_
        """Stands for the destination's topic id in a frontier."""
        self.answers = True
        self.store = self.call_with_retries("opening it", lambda: load_store(settings))

    def call_with_retries(self, operation: str, call: Callable[[], Answer]) -> Answer:
        """Call the store again until it answers."""
        while True:
            self.consumer_group.liveness.beat()
            try:
                answer = call()
            except Unavailable as error:
                self.answers = False
                log.warning("%s of %s: it does not answer: %s", operation, self.identity, error)
                self.consumer_group.liveness.report_waiting("database")
                runtime.sleep(RETRY_INTERVAL_S)
            else:
                self.answers = True
                return answer

    def list_started_topics(self) -> set[str]:
        """From the group's commits, which repeat the store's positions, and from the store: the
        commits may have expired. Only `source.start=latest` asks for them.
        """
        started = self.consumer_group.list_started_topics()
        if self.settings.start.kind == "latest":
            described = self.describe_destinations(list(self.routes.values())) or {}
            started |= {
                topic
                for topic, destination in described.items()
                for partition in range(destination.partitions)
                if self._get_last_source_offset(self.routes[topic].get_destination(partition)) >= 0
            }
        return started

    def load_frontiers(self, partitions: Collection[TopicPartition]) -> LoadedFrontiers:
        """Take these partitions over, and return their positions, compared with the group's
        commits.
        """
        group_commits = self.consumer_group.load_commits(
            {tp.topic for tp in partitions}, partitions
        )
        positions = self.call_with_retries(
            "taking partitions over", lambda: self.store.take_over(sorted(partitions))
        )
        return merge_group_commits(
            group_commits,
            {tp: (position.next_offset, position.frontier) for tp, position in positions.items()},
            partitions,
            self.identity,
        )

    def describe_destinations(self, routes: Collection[Route]) -> dict[str, topics.Topic] | None:
        """The destinations; they have as many partitions as the intermediate topics."""
        return self.consumer_group.describe_stored_destinations(routes, self.identity)

    def get_end_offsets(self, outputs: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """One more than the last source offset of each partition."""
        return {tp: self._get_last_source_offset(tp) + 1 for tp in outputs}

    def check_outputs(self, frontiers: Mapping[TopicPartition, Frontier]) -> CheckedOutputs:
        """The last record of a partition has to be the one that the frontier names."""
        for tp, frontier in frontiers.items():
            known, last = frontier.destination_known, self._get_last_source_offset(tp)
            if last > known:
                raise ForeignWriter(
                    f"{self.identity} has a record of {tp} with source offset {last}, which this"
                    f" copy did not write: its own last one has {known}. Stop the other writer;"
                    " then copy to a new destination.topic, or delete that record"
                )
            if last < known:
                raise DestinationTruncated(
                    f"{self.identity} lacks records of {tp} that were committed: the last one"
                    f" had source offset {known}, now it is {last}. Copy to a new"
                    " destination.topic, or restore this one"
                )
        return {tp: Output(frontier.destination_known, 0) for tp, frontier in frontiers.items()}, {}

    def _get_last_source_offset(self, tp: TopicPartition) -> int:
        return self.call_with_retries(
            "reading the last record", lambda: self.store.last_source_offset(tp)
        )
