"""Detects that an intermediate topic was deleted and created again while a worker reads it.

The group's offsets, with the frontiers, are deleted with the old topic, and records that nobody had
read are lost. (The coordinator deletes them when it learns of the topic's deletion: that can be
after a new frontier is committed. So it is also looked, less often, whether the group still has
them all.) A run of stage one that goes on does not write them again: so the epoch has to be
raised, as wherever unread records are lost (`deduplicator.frontiers.gone_positions`). The worker
knows the frontiers still, because nobody else moves those of its partitions.

A message does not have its topic's id. Where the new topic has offsets that the worker has not read
yet, its records look as if they followed. At offset 0, where that is likely, the id is asked before
the first records are decided; elsewhere once a second, and the start tells whether records of both
topics can have been read (`deduplicator.frontiers.gone_positions`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from common import runtime
from common.errors import ClusterUnreachable, HangingTransaction
from common.routes import TopicPartition
from deduplicator.frontiers.gone_positions import find_recreated
from deduplicator.frontiers.start import PartitionStarter
from deduplicator.partitions import Partitions
from deduplicator.position_errors import PositionGone

log = logging.getLogger(__name__)
CHECK_INTERVAL_S = 1.0
CHECK_COMMITS_INTERVAL_S = 60.0


class IntermediateWatch:
    """Compares the ids of the intermediate topics with those in the frontiers."""

    def __init__(self, starter: PartitionStarter, partitions: Partitions) -> None:
        self.starter = starter
        self.partitions = partitions
        self.due = 0.0
        self.commits_due = runtime.monotonic() + CHECK_COMMITS_INTERVAL_S

    def check(self) -> None:
        """Check, if it is time, between two rounds, while no commit is unfinished."""
        now = runtime.monotonic()
        if now < self.due or not self.partitions.assigned:
            return
        self.due = now + CHECK_INTERVAL_S
        recreated = self._find_recreated(self.partitions.assigned)
        self._start_again(recreated, "the topic was deleted and created again")
        if now >= self.commits_due and recreated == []:
            self.commits_due = now + CHECK_COMMITS_INTERVAL_S
            self._start_again(self._find_uncommitted(), "the group has lost them")

    def _start_again(self, topic_partitions: Collection[TopicPartition] | None, why: str) -> None:
        if topic_partitions:
            names = ", ".join(map(str, topic_partitions))
            log.warning("reading the frontiers of %s again: %s", names, why)
            self.partitions.start_again(topic_partitions, is_committed=True)

    def _find_uncommitted(self) -> list[TopicPartition] | None:
        """The assigned partitions of topics that exist without an offset of the group; None while
        there is no answer.
        """
        consumer_group, assigned = self.starter.consumer_group, self.partitions.assigned
        try:
            commits = consumer_group.group.list_commits(assigned, require_stable=False)
            missing = sorted(assigned.keys() - commits.keys())
            topics = consumer_group.describe_topics({tp.topic for tp in missing})
        except (ClusterUnreachable, HangingTransaction) as unreadable:
            log.debug("the group's offsets cannot be read now: %s", unreadable)
            return None
        return [tp for tp in missing if tp.topic in topics]

    def check_first_records(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Before the first records of these intermediate partitions are decided: PositionGone when
        they can be those of another topic. Nothing is asked for those that go on elsewhere than at
        offset 0.
        """
        first = [
            tp
            for tp in topic_partitions
            if (state := self.partitions.assigned.get(tp)) and state.next_offset == 0
        ]
        recreated = self._find_recreated(first)
        if recreated is None:
            raise PositionGone("the ids of the intermediate topics cannot be read now")
        if recreated:
            names = ", ".join(map(str, recreated))
            raise PositionGone(f"the topic of {names} was deleted and created again")

    def _find_recreated(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> list[TopicPartition] | None:
        """Those whose topic has not the id that their frontier has; None while there is no answer.
        Nothing is asked where no frontier has an id.
        """
        states = {
            tp: state
            for tp in topic_partitions
            if (state := self.partitions.assigned[tp]).frontier.intermediate_topic_id
        }
        if not states:
            return []
        try:
            topics = self.starter.consumer_group.describe_topics({tp.topic for tp in states})
        except ClusterUnreachable as unreachable:
            log.debug("the intermediate topics cannot be described now: %s", unreachable)
            return None
        return sorted(find_recreated(states, topics))
