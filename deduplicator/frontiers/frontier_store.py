"""Where the frontiers are stored, and which records the destination has: all that a start asks of
the destination.

`FrontierStore` is the only interface that `deduplicator.frontiers.start` uses, as
`deduplicator.destination.Destination` is the only one that the loop uses. For topics, the group's
commits are the frontiers, and the records are read from the topic (`KafkaFrontierStore`). A store
outside of Kafka has both (`deduplicator.frontiers.stored_frontiers`), and the group's commits
repeat the frontiers.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple, Protocol

from common.errors import ClusterUnreachable, DestinationTruncated
from common.frontier import Frontier
from common.kafka import partition_offsets, topics
from common.kafka.partition_offsets import GroupCommit
from common.routes import Route, TopicPartition, name_some
from deduplicator.destination import Output
from deduplicator.frontiers.committed_frontiers import WorkerGroup
from deduplicator.frontiers.frontier_check import Surplus, check_destination

log = logging.getLogger(__name__)
CheckedOutputs = tuple[dict[TopicPartition, Output], dict[TopicPartition, Surplus]]
"""By destination partition: the state of the output, and the records beyond the frontier."""


class LoadedFrontiers(NamedTuple):
    """The frontiers of some intermediate topics."""

    commits: dict[TopicPartition, GroupCommit]
    """Of all partitions of these topics that have a commit."""
    to_commit_again: AbstractSet[TopicPartition]
    """Those of the requested partitions that have to be committed again unchanged, before anything
    else.
    """


class FrontierStore(Protocol):
    """Waits while the destination does not answer; TransactionUndecided while a transaction is open
    there; a Stop when the copy cannot continue from what the destination has.
    """

    def list_started_topics(self) -> set[str]:
        """The intermediate topics of which this service has a frontier for any partition."""

    def load_frontiers(self, partitions: Collection[TopicPartition]) -> LoadedFrontiers:
        """The committed frontiers; from now on this worker owns these intermediate partitions."""

    def describe_destinations(self, routes: Collection[Route]) -> dict[str, topics.Topic] | None:
        """The destination topic of each intermediate topic; None when a topic has to be created
        first.
        """

    def get_end_offsets(self, outputs: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end offset of each destination partition; 0 for one that never had a record."""

    def check_outputs(self, frontiers: Mapping[TopicPartition, Frontier]) -> CheckedOutputs:
        """Compare the frontiers of destination partitions with their records."""


class KafkaFrontierStore:
    """For destination topics."""

    def __init__(self, consumer_group: WorkerGroup) -> None:
        self.consumer_group = consumer_group

    def list_started_topics(self) -> set[str]:
        """From the group's commits."""
        return self.consumer_group.list_started_topics()

    def load_frontiers(self, partitions: Collection[TopicPartition]) -> LoadedFrontiers:
        """The group's commits."""
        return LoadedFrontiers(
            self.consumer_group.load_commits({tp.topic for tp in partitions}, partitions),
            frozenset(),
        )

    def describe_destinations(self, routes: Collection[Route]) -> dict[str, topics.Topic] | None:
        """The destination topics."""
        names = {
            name for route in routes for name in (route.intermediate_topic, route.destination_topic)
        }
        described = self.consumer_group.describe_topics(names)
        return (
            None
            if len(described) < len(names)
            else {route.intermediate_topic: described[route.destination_topic] for route in routes}
        )

    def get_end_offsets(self, outputs: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """From the brokers."""
        return partition_offsets.list_end_offsets(self.consumer_group.admin, outputs)

    def check_outputs(self, frontiers: Mapping[TopicPartition, Frontier]) -> CheckedOutputs:
        """No record is called missing, or deleted by compaction, while a transaction is undecided.

        A coordinator writes the markers of a transaction one after the other, so right after a
        commit the frontier can be readable while its records are not. And none is on one broker's
        word: a leader that was replaced, and does not know it yet, has fewer.
        """
        client = self.consumer_group.admin
        names = {tp.topic for tp in frontiers}
        compacted = {
            name
            for name in names
            if topics.is_compacted(client, self.consumer_group.settings.destination_cluster, name)
        }
        has_asked_again = False
        while True:
            self.consumer_group.liveness.beat()
            undecided: set[TopicPartition] = set()
            try:
                beginnings = partition_offsets.list_beginning_offsets(client, frontiers)
                ends = partition_offsets.list_end_offsets(client, frontiers)
                undecided = set(partition_offsets.find_open_transactions(client, ends))
                return check_destination(
                    self.consumer_group.reader,
                    reset_uncounted(frontiers, ends),
                    beginnings,
                    ends,
                    compacted,
                    undecided,
                    self.consumer_group.liveness.beat,
                )
            except ClusterUnreachable as unreachable:
                if not undecided:
                    log.warning(
                        "the destination cannot be compared with the frontier yet: %s", unreachable
                    )
                    self.consumer_group.liveness.report_waiting("destination")
                    self.consumer_group.undecided_since = None
                    continue
                # a consumer gets no record and no end of partition beyond an open transaction
                missing = str(unreachable)
            except DestinationTruncated as truncated:
                if not undecided:
                    if has_asked_again:
                        raise
                    has_asked_again = True
                    self._wait_before_asking_again(names, truncated)
                    continue
                missing = str(truncated)
            raise self.consumer_group.build_undecided_error(
                f"a transaction on {name_some(sorted(names))} is open, and with it: {missing}. If"
                " it stays open, `reo recover` names the command that aborts it; then start again"
            )

    def _wait_before_asking_again(
        self, names: Collection[str], error: DestinationTruncated
    ) -> None:
        log.warning("asking the destination again: %s", error)
        partition_offsets.wait_before_asking_again(self.consumer_group.admin, names)


def reset_uncounted(
    frontiers: Mapping[TopicPartition, Frontier], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Frontier]:
    """A route that was not one to one before has not counted its output: accept the existing
    records once, unchecked.
    """
    counted = dict(frontiers)
    for tp, frontier in frontiers.items():
        if frontier.sent < 0:
            log.warning(
                "%s was not written by this route alone before: its records cannot be checked, and"
                " are counted from now on",
                tp,
            )
            counted[tp] = replace(
                frontier, destination_known=ends[tp] - 1, sent=0, last_written=None
            )
    return counted
