"""Where the frontiers are stored, and which records the destination has: all that a start asks of
the destination.

`FrontierStore` is the only interface that `deduplicator.start` uses, as
`deduplicator.destination.Destination` is the only one that the loop uses. For topics, the group's
commits are the frontiers, and the records are read from the topic (`KafkaFrontierStore`). For
tables, the database has both (`deduplicator.tables.table_frontier_store`), and the group's commits
repeat the frontiers.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple, Protocol

from common import frontier as frontiers
from common import runtime
from common.errors import (
    ClusterUnreachable,
    DestinationTruncated,
    FrontierUnreadable,
    HangingTransaction,
)
from common.frontier import Frontier
from common.kafka import positions, topics
from common.kafka.clients import admin, reader
from common.kafka.consumer_group import Group, commit_reader
from common.kafka.positions import GroupCommit
from common.pulse import Pulse
from common.routes import Place, Route
from common.settings import Settings
from deduplicator.destination import Output
from deduplicator.destination_check import Surplus, check_destination

log = logging.getLogger(__name__)
BEYOND_TIMEOUT_S = 20
"""How long offsets may stay undecided after the transaction time-out: the coordinator looks for
expired transactions every 10 s.
"""
UNSEEN_S = 15
"""A worker that has not looked for so long stood still: what it finds now can be another
transaction, also of a worker that has its partitions now.
"""
CheckedOutputs = tuple[dict[Place, Output], dict[Place, Surplus]]
"""By destination partition: the state of the output, and the records beyond the frontier."""


class TransactionUndecided(Exception):
    """A start has met another producer's transaction. It is tried again after a poll: the worker
    may have lost these partitions to who writes it.
    """


class LoadedFrontiers(NamedTuple):
    """The frontiers of some intermediate topics."""

    commits: dict[Place, GroupCommit]
    """Of all partitions of these topics that have a commit."""
    to_commit_again: AbstractSet[Place]
    """Those of the requested partitions that have to be committed again unchanged, before anything
    else.
    """


class FrontierStore(Protocol):
    """Waits while the destination does not answer; TransactionUndecided while a transaction is open
    there; a Stop when the copy cannot continue from what the destination has.
    """

    def list_started_topics(self) -> set[str]:
        """The intermediate topics of which this service has a frontier for any partition."""

    def load_frontiers(self, partitions: Collection[Place]) -> LoadedFrontiers:
        """The committed frontiers; from now on this worker owns these intermediate partitions."""

    def describe_destinations(self, routes: Collection[Route]) -> dict[str, topics.Topic] | None:
        """The destination topic of each intermediate topic; None when a topic has to be created
        first.
        """

    def get_end_offsets(self, outputs: Iterable[Place]) -> dict[Place, int]:
        """The end offset of each destination partition; 0 for one that never had a record."""

    def check_outputs(self, frontiers: Mapping[Place, Frontier]) -> CheckedOutputs:
        """Compare the frontiers of destination partitions with their records."""


class ConsumerGroup:
    """The frontiers in the group's commits, and the clients of the destination cluster."""

    def __init__(self, settings: Settings, pulse: Pulse) -> None:
        self.settings = settings
        self.pulse = pulse
        self.reader = reader(settings.destination_cluster, settings)
        self.commit_reader = commit_reader(settings.destination_cluster, settings)
        self.admin = admin(settings.destination_cluster, settings)
        self.group = Group(settings, self.admin)
        self.undecided_since: float | None = None
        """When the starts that wait for a transaction began, on the monotonic clock."""
        self.undecided_at = 0.0
        """When the last one found it undecided."""
        self.undecided_s = settings.deduplicator.transaction_timeout_ms / 1000 + BEYOND_TIMEOUT_S

    def describe_topics(self, names: Collection[str]) -> dict[str, topics.Topic]:
        """Those of these topics that exist on the destination cluster."""
        return topics.look_up(self.settings.destination_cluster, self.admin, names)

    def list_partitions(self, names: Collection[str]) -> list[Place]:
        """The partitions of these topics."""
        return [
            Place(name, partition)
            for name, topic in self.describe_topics(names).items()
            for partition in range(topic.partitions)
        ]

    def list_started_topics(self) -> set[str]:
        """The topics of which the group has a frontier for any partition."""
        while True:
            self.pulse.beat()
            try:
                return {place.topic for place in self.group.frontiers()}
            except ClusterUnreachable as unreachable:
                self.pulse.wait("destination")
                log.warning("which frontiers the group has cannot be read yet: %s", unreachable)
                runtime.sleep(0.2)

    def load_commits(
        self, names: Collection[str], own: Collection[Place] = ()
    ) -> dict[Place, GroupCommit]:
        """Every commit of the group on these intermediate topics.

        TransactionUndecided while a transaction with a commit for one of its `own` partitions is
        open, which this worker takes over. The commits of other partitions are those before any
        open transaction: their workers always have one open under load.
        """
        while True:
            self.pulse.beat()
            try:
                places = self.list_partitions(names)
                try:
                    return positions.read_commits(
                        self.commit_reader, places
                    ) | positions.read_commits(self.reader, own)
                except (ClusterUnreachable, HangingTransaction):
                    # a consumer cannot tell undecided offsets from a cluster that does not answer:
                    # both time out
                    self.group.commits(own)
                    self.undecided_since = None
                    raise
            except HangingTransaction as hanging:
                raise self.on_undecided(str(hanging)) from None
            except ClusterUnreachable as unreachable:
                self.undecided_since = None
                log.warning("the frontier cannot be read yet: %s", unreachable)
                self.pulse.wait("destination")
            runtime.sleep(0.2)

    def on_undecided(self, what: str) -> TransactionUndecided | HangingTransaction:
        """The error to raise: HangingTransaction when that is so for longer than any transaction of
        this service lasts.
        """
        now = runtime.monotonic()
        if self.undecided_since is None or now > self.undecided_at + UNSEEN_S:
            self.undecided_since = now
        self.undecided_at = now
        if now > self.undecided_since + self.undecided_s:
            return HangingTransaction(f"{what} (undecided for {self.undecided_s:.0f} s)")
        self.pulse.wait("transaction")
        return TransactionUndecided(what)


class KafkaFrontierStore:
    """For destination topics."""

    def __init__(self, consumer_group: ConsumerGroup) -> None:
        self.consumer_group = consumer_group

    def list_started_topics(self) -> set[str]:
        """From the group's commits."""
        return self.consumer_group.list_started_topics()

    def load_frontiers(self, partitions: Collection[Place]) -> LoadedFrontiers:
        """The group's commits."""
        return LoadedFrontiers(
            self.consumer_group.load_commits({place.topic for place in partitions}, partitions),
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

    def get_end_offsets(self, outputs: Iterable[Place]) -> dict[Place, int]:
        """From the brokers."""
        return positions.list_end_offsets(self.consumer_group.admin, outputs)

    def check_outputs(self, frontiers: Mapping[Place, Frontier]) -> CheckedOutputs:
        """No record is called missing while a transaction is undecided.

        A coordinator writes the markers of a transaction one after the other, so right after a
        commit the frontier can be readable while its records are not.
        """
        client = self.consumer_group.admin
        names = {place.topic for place in frontiers}
        compacted = {
            name
            for name in names
            if topics.is_compacted(client, self.consumer_group.settings.destination_cluster, name)
        }
        while True:
            self.consumer_group.pulse.beat()
            decided = True
            try:
                beginnings, ends = (
                    list_offsets(client, frontiers)
                    for list_offsets in (
                        positions.list_beginning_offsets,
                        positions.list_end_offsets,
                    )
                )
                decided = positions.list_end_offsets(client, frontiers, committed_only=True) == ends
                return check_destination(
                    self.consumer_group.reader,
                    reset_uncounted(frontiers, ends),
                    beginnings,
                    ends,
                    compacted,
                    self.consumer_group.pulse.beat,
                )
            except ClusterUnreachable as unreachable:
                if decided:
                    log.warning(
                        "the destination cannot be compared with the frontier yet: %s", unreachable
                    )
                    self.consumer_group.pulse.wait("destination")
                    self.consumer_group.undecided_since = None
                    continue
                # a consumer gets no record and no end of partition beyond an open transaction
                missing = str(unreachable)
            except DestinationTruncated as truncated:
                if decided:
                    raise
                missing = str(truncated)
            raise self.consumer_group.on_undecided(
                f"a transaction on {', '.join(sorted(names))} is open, and with it: {missing}. If"
                " it stays open, `reo recover` names the command that aborts it; then start again"
            )


def reset_uncounted(
    frontiers: Mapping[Place, Frontier], ends: Mapping[Place, int]
) -> dict[Place, Frontier]:
    """A route that was not one to one before has not counted its output: accept the existing
    records once, unchecked.
    """
    counted = dict(frontiers)
    for place, frontier in frontiers.items():
        if frontier.sent < 0:
            log.warning(
                "%s was not written by this route alone before: its records cannot be checked, and"
                " are counted from now on",
                place,
            )
            counted[place] = replace(
                frontier, destination_known=ends[place] - 1, sent=0, last_written=None
            )
    return counted


def merge_group_commits(
    group_commits: Mapping[Place, GroupCommit],
    stored: Mapping[Place, tuple[int, str]],
    partitions: Collection[Place],
    identity: str,
) -> LoadedFrontiers:
    """The frontiers that are stored with the records outside of Kafka, by intermediate partition,
    compared with the group's commits, which repeat them.

    `identity` stands for the destination's topic id in these frontiers.
    """
    commits, to_commit_again = dict(group_commits), set[Place]()
    for place, (next_offset, text) in stored.items():
        committed = GroupCommit(next_offset, _decode(place, text))
        in_group = group_commits.get(place)
        # commits are deleted with their topic: the stored offset may be one of a deleted topic
        if in_group is None:
            committed = GroupCommit(-1, committed.frontier)
        elif place in partitions:
            _check_not_set_back(place, committed.frontier, in_group.frontier, identity)
        if in_group != committed:
            to_commit_again.add(place)
        commits[place] = committed
    # of deleted tables, or of an earlier destination: they only show that there was a copy
    for place in commits.keys() - stored.keys():
        commits[place] = GroupCommit(-1, replace(commits[place].frontier, destination_topic_id=""))
    return LoadedFrontiers(commits, to_commit_again & set(partitions))


def _decode(place: Place, text: str) -> Frontier:
    try:
        return frontiers.decode(text)
    except ValueError as reason:
        raise FrontierUnreadable(
            f"the frontier of {place} in the database is not one that this version of reo can read"
            f" ({reason})"
        ) from None


def _check_not_set_back(place: Place, stored: Frontier, in_group: Frontier, identity: str) -> None:
    """DestinationTruncated when the group's frontier is ahead: stage one would go on from there,
    and the records in between would be missing.
    """
    if in_group.destination_topic_id == identity and in_group.rule.frontier > stored.rule.frontier:
        raise DestinationTruncated(
            f"the database was set back: by the group's commit on {place} it had records up to"
            f" source offset {in_group.rule.frontier}, now its frontier is at"
            f" {stored.rule.frontier}. If this database is the right one (restored from a backup,"
            " or a standby that lacked the newest transactions), stop the service, delete the"
            " group (kafka-consumer-groups.sh --delete --group) and start again: the copy goes on"
            " from the database's frontier"
        )
