"""The frontiers in a store outside of Kafka (`deduplicator.own_destination`): its partitions are
taken over, its positions compared with the group's commits, and with the last records that are
stored.

With `destination.guarantee=at-least-once` the store keeps no positions: the group's commits are the
frontiers, and nothing can be compared.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from common import frontier as frontiers
from common.errors import DestinationTruncated, ForeignWriter, FrontierUnreadable
from common.frontier import Frontier
from common.kafka import topics
from common.kafka.partition_offsets import GroupCommit
from common.routes import Route, TopicPartition
from common.settings import Settings
from deduplicator.destination import Output
from deduplicator.frontiers.committed_frontiers import WorkerGroup
from deduplicator.frontiers.frontier_store import CheckedOutputs, LoadedFrontiers
from deduplicator.own_destination import Position, StoreClient

log = logging.getLogger(__name__)


class StoredFrontiers:
    """The positions in a store, and who owns them. A store that is read only is not taken over."""

    def __init__(
        self,
        settings: Settings,
        client: StoreClient,
        routes: Mapping[str, Route],
        consumer_group: WorkerGroup,
    ) -> None:
        self.client = client
        self.routes = routes
        """By intermediate topic; routes are added while the worker runs."""
        self.consumer_group = consumer_group
        self.has_positions = settings.destination.guarantee == "exactly-once"

    def list_started_topics(self) -> set[str]:
        """From the group's commits, and from the store, whose positions they repeat: the commits
        may have expired.
        """
        started = self.consumer_group.list_started_topics()
        if self.has_positions:
            self._prepare(self.routes)
            started |= {tp.topic for tp in self.read_positions(set(self.routes))}
        return started

    def load_frontiers(self, partitions: Collection[TopicPartition]) -> LoadedFrontiers:
        """Take these over, and return their positions, compared with the group's commits."""
        names = {tp.topic for tp in partitions}
        group_commits = self.consumer_group.load_commits(names, partitions)
        self._prepare(names)
        if not self.has_positions:
            return LoadedFrontiers(group_commits, frozenset())
        if not self.client.read_only:
            store = self.client.store
            self.client.ask("taking partitions over", lambda: store.take_over(sorted(partitions)))
        return merge_group_commits(
            group_commits, self.read_positions(names), partitions, self.client.identity
        )

    def read_positions(self, topics: Collection[str]) -> Mapping[TopicPartition, Position]:
        """The store's positions of these intermediate topics."""
        store = self.client.store
        return self.client.ask("reading positions", lambda: store.read_positions(topics))

    def _prepare(self, names: Iterable[str]) -> None:
        if self.client.has("prepare"):
            store, routes = self.client.store, [self.routes[name] for name in sorted(names)]
            self.client.ask("preparing it", lambda: store.prepare(routes))

    def describe_destinations(self, routes: Collection[Route]) -> dict[str, topics.Topic] | None:
        """The destinations; they have as many partitions as the intermediate topics."""
        return self.consumer_group.describe_stored_destinations(routes, self.client.identity)

    def get_end_offsets(self, outputs: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """One more than the last source offset of each partition."""
        return {tp: self._get_last_source_offset(tp) + 1 for tp in outputs}

    def check_outputs(self, frontiers: Mapping[TopicPartition, Frontier]) -> CheckedOutputs:
        """The last record of a partition has to be the one that the frontier names."""
        for tp, frontier in frontiers.items() if self.has_positions else ():
            last = self._get_last_source_offset(tp)
            check_last_offset(self.client.identity, tp, frontier.destination_known, last)
        return {tp: Output(frontier.destination_known, 0) for tp, frontier in frontiers.items()}, {}

    def _get_last_source_offset(self, tp: TopicPartition) -> int:
        store = self.client.store
        return (
            self.client.ask("reading the last record", lambda: store.last_source_offset(tp))
            if self.has_positions
            else -1
        )


def check_last_offset(identity: str, tp: TopicPartition, known: int, last: int) -> None:
    """ForeignWriter or DestinationTruncated when the last record in the store is not the one that
    was written last; deleting all records is the owner's decision.
    """
    if last > known:
        raise ForeignWriter(
            f"{identity} has a record of {tp} with source offset {last}, which this copy did not"
            f" write: its own last one has {known}. Stop the other writer; then copy to a new"
            " destination.topic, or delete that record"
        )
    if 0 <= last < known:
        raise DestinationTruncated(
            f"{identity} lacks records of {tp} that were committed: the last one had source offset"
            f" {known}, now it is {last}. Copy to a new destination.topic, or restore this one"
        )
    if last < known:
        log.warning("%s: all records were deleted; what was copied is not copied again", tp)


def merge_group_commits(
    group_commits: Mapping[TopicPartition, GroupCommit],
    stored: Mapping[TopicPartition, Position],
    partitions: Collection[TopicPartition],
    identity: str,
) -> LoadedFrontiers:
    """The positions that are stored with the records, compared with the group's commits, which
    repeat them. `identity` stands for the destination's topic id in their frontiers.
    """
    own, to_commit_again = set(partitions), set[TopicPartition]()
    commits = dict(group_commits)
    for tp, (next_offset, text) in stored.items():
        committed = GroupCommit(next_offset, _decode(tp, text))
        in_group = group_commits.get(tp)
        if in_group is not None and tp in own:
            _check_not_set_back(tp, committed.frontier, in_group.frontier, identity)
        if in_group != committed:
            to_commit_again.add(tp)
        commits[tp] = committed
    # of deleted records, or of an earlier destination: they only show that there was a copy
    for tp in commits.keys() - stored.keys():
        commits[tp] = GroupCommit(-1, replace(commits[tp].frontier, destination_topic_id=""))
    return LoadedFrontiers(commits, to_commit_again & own)


def _decode(tp: TopicPartition, text: str) -> Frontier:
    try:
        return frontiers.decode(text)
    except ValueError as reason:
        raise FrontierUnreadable(
            f"the frontier of {tp} in the store is not one that this version of reo can read"
            f" ({reason})"
        ) from None


def _check_not_set_back(
    tp: TopicPartition, stored: Frontier, in_group: Frontier, identity: str
) -> None:
    """DestinationTruncated when the group's frontier is ahead: stage one would go on from there,
    and the records in between would be missing.

    Not when the stored one has the higher epoch: then it is a first frontier, after the records
    were deleted as a whole, which the group has not repeated yet. A store that was set back knows
    no epoch that the group does not know.
    """
    if (
        in_group.destination_topic_id == identity
        and in_group.source_offset > stored.source_offset
        and in_group.epoch >= stored.epoch
    ):
        raise DestinationTruncated(
            f"{identity} was set back: by the group's commit on {tp} it had records up to source"
            f" offset {in_group.source_offset}, now its frontier is at {stored.source_offset}. If"
            " it is the right one (restored from a backup, or a standby that lacked the newest"
            " transactions), stop the service, delete the group (kafka-consumer-groups.sh --delete"
            " --group) and start again: the copy goes on from the stored frontier"
        )
