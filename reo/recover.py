"""`reo recover`: finds the frontier from the data when the group's commit is lost, was reset, or is
pending for ever.

It recovers each route that is one to one; for the others the data does not tell the frontier
(`reo.compare.comparable_routes`). Without `--apply` it only reads. Per partition it prints what the
group has, how far the copy is by the data (`reo.compare.alignment`), and what would be committed.
With `--apply` it commits that, for all partitions of a route in one request, or for none when a
partition of any route is refused:

1. check that the group has no members (`ServiceRuns`) and no pending offsets
   (`HangingTransaction`);
2. check that the destination has no open transaction, and that its end is the same before and after
   reading: nobody writes to it;
3. commit the frontiers as first frontiers are committed: position at the end of the intermediate
   topic, the highest epoch that the topic's frontiers have, or 0;
4. read them again.

The admin client commits, without a transaction: the request carries metadata, and the broker
refuses it while the group has members. Stage one alone is not a member, and may run: what it writes
is true of the source, whatever the frontier is. A frontier that the data confirms is not changed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from common import source_candidates
from common.errors import (
    ClusterUnreachable,
    CopyDiffers,
    FrontierLost,
    ReoError,
    ServiceRuns,
    StageFailed,
    TopicMissing,
)
from common.frontier import Frontier
from common.kafka import permissions, topic_creation, topics
from common.kafka.clients import create_admin_client
from common.kafka.consumer_group import Commit, Group
from common.kafka.partition_offsets import list_end_offsets
from common.routes import Route
from common.settings import Settings, destination_kind
from deduplicator.frontiers.source_start_offsets import find_first_source_offset
from reo import recovery_report
from reo.compare import alignment
from reo.compare.comparable_routes import select_comparable
from reo.recovery_data import RouteData
from reo.recovery_report import RecoveredPartition


class Recovery:
    """The recovery of one route; `read_data` fills `partitions`."""

    def __init__(self, settings: Settings, route: Route, source: topics.Topic) -> None:
        self.settings = settings
        self.route = route
        self.source = source
        self.data = RouteData(settings, route, source)
        self.destination, self.group = self.data.destination, self.data.group
        self.partitions: list[RecoveredPartition] = []
        self.applied = False
        self.identity = ""
        """The identity of the source in the frontiers."""

    def read_data(self) -> None:
        """Fill `partitions`; changes nothing on the clusters."""
        commits = self._load_commits()
        ends = self.data.list_destination_ends()
        is_compacted = self.data.is_compacted()
        self.partitions = [
            recovery_report.build_row(partition, commits.get(partition))
            for partition in self.data.common_partitions
        ]
        source_partitions = max(
            (row.frontier.source_partitions for row in self.partitions if row.frontier),
            default=len(self.data.common_partitions),
        )
        epoch = max((row.frontier.epoch for row in self.partitions if row.frontier), default=0)
        self.identity = self._find_identity()
        for row in self.partitions:
            try:
                end, last_copied = (
                    ends[row.partition],
                    alignment.find_last_copied(
                        self.data.describe_alignment(row.partition, source_partitions)
                    ),
                )
                row.last_copied = last_copied
                row.source_offset = (
                    self._find_frontier_of_copied(row, last_copied)
                    if last_copied
                    else self._find_frontier_of_empty(row, end, source_partitions)
                )
                if not self._is_confirmed(row, end):
                    known = last_copied.destination_offset if last_copied else end - 1
                    row.new_frontier = Frontier(
                        source_offset=row.source_offset,
                        epoch=epoch,
                        source_identity=self.identity,
                        source_partitions=source_partitions,
                        destination_topic_id=self.destination.topic_id,
                        destination_known=known,
                        sent=0,
                        last_record=self.data.read_last_record(row.partition, last_copied),
                        is_known_written=last_copied is not None,
                    )
            except (CopyDiffers, FrontierLost) as refusal:
                why = (
                    " (a topic with cleanup.policy=compact lost records from its middle: its data"
                    " cannot tell)"
                    if is_compacted
                    else ""
                )
                row.refusal = type(refusal)(f"{refusal}{why}")
        if self.data.list_destination_ends() != ends:
            raise ServiceRuns(
                f"{self.destination.name} grew while it was read: a producer writes to it. Stop the"
                " service, or the other producer, and run `reo recover` again"
            )

    def apply(self) -> None:
        """Commit the frontiers that `read_data` found."""
        frontiers = {
            self.route.get_intermediate(row.partition): row.new_frontier
            for row in self.partitions
            if row.new_frontier
        }
        topic_creation.prepare_topics(self.settings)
        ends = list_end_offsets(self.data.destination_admin, frontiers)
        commits = {tp: Commit(ends[tp], frontier.encode()) for tp, frontier in frontiers.items()}
        self.group.commit(commits)
        if self.group.list_commits(commits) != commits:
            raise StageFailed(
                f"group {self.group.name} does not have the offsets that were committed: another"
                " client commits with it. Run `reo recover` again"
            )
        self.applied = True

    def _load_commits(self) -> Mapping[int, Commit]:
        """The group's commits, by partition."""
        return {
            tp.partition: commit
            for tp, commit in self.group.list_commits(
                map(self.route.get_intermediate, self.data.common_partitions)
            ).items()
        }

    def _find_frontier_of_empty(
        self, row: RecoveredPartition, end: int, source_partitions: int
    ) -> int:
        """The frontier of a partition without a copied record: the group's, or the offset before
        which the copy begins.
        """
        if (
            row.frontier
            and self._is_of_this_copy(row.frontier)
            and row.frontier.sent == 0
            and row.frontier.destination_known < end
        ):
            return row.frontier.source_offset
        added = row.partition >= source_partitions
        if self.settings.start.kind == "latest" and not added:
            raise FrontierLost(
                f"{self.destination.name}-{row.partition} is empty, and source.start=latest does"
                " not tell where the copy began: a record that was written since would be lost."
                " Run `reo recover` with source.start set to a timestamp before the copy began, or"
                " to earliest"
            )
        return (
            find_first_source_offset(
                self.settings, self.data.source_admin, self.route.get_source(row.partition), added
            )
            - 1
        )

    def _find_frontier_of_copied(
        self, row: RecoveredPartition, last_copied: alignment.LastCopiedPair
    ) -> int:
        """The last copied record's offset, or a later one up to which the group's frontier says
        that no record follows.
        """
        frontier = row.frontier if row.frontier and self._is_of_this_copy(row.frontier) else None
        if (
            frontier
            and frontier.last_record
            and frontier.last_record.source_offset == last_copied.source_offset
        ):
            return max(frontier.source_offset, last_copied.source_offset)
        return last_copied.source_offset

    def _find_identity(self) -> str:
        of_this_topic = (
            row.frontier
            for row in self.partitions
            if row.frontier and row.frontier.destination_topic_id == self.destination.topic_id
        )
        return source_candidates.find_copied_identity(self.settings, self.source, of_this_topic)

    def _is_of_this_copy(self, frontier: Frontier) -> bool:
        return (frontier.source_identity, frontier.destination_topic_id) == (
            self.identity,
            self.destination.topic_id,
        )

    def _is_confirmed(self, row: RecoveredPartition, end: int) -> bool:
        """Whether the data confirms the group's frontier."""
        frontier = row.frontier
        return (
            frontier is not None
            and self._is_of_this_copy(frontier)
            and frontier.source_offset == row.source_offset
            and frontier.destination_known < end
        )


def _select_copied(
    settings: Settings, sources: Mapping[Route, topics.Topic]
) -> tuple[list[Recovery], list[TopicMissing]]:
    """The recoveries of the routes that have a destination topic, and why there is none of the
    others; TopicMissing when no route has one.
    """
    recoveries, never_copied = [], []
    for route, source in sources.items():
        try:
            recoveries.append(Recovery(settings, route, source))
        except TopicMissing as missing:
            never_copied.append(missing)
    if never_copied and not recoveries:
        raise never_copied[0]
    return recoveries, never_copied


def run_command(settings: Settings, apply: bool, as_json: bool) -> int:
    """The sub-command: exit code 0 when nothing was refused."""
    try:
        destination_kind.refuse_command(
            settings,
            "reo recover",
            "the frontiers are in the database, and the group's commits are copies of them: "
            "when these were lost or reset, stop the service, delete the group, and start again",
        )
        settings, silent_candidates = source_candidates.find_furthest(settings)
        permissions.check_permissions(settings, "recover --apply" if apply else "recover")
        sources, not_comparable = select_comparable(
            settings,
            topics.describe_sources(
                settings,
                create_admin_client(settings.source_cluster, settings),
                settings.connect_timeout_s,
            ),
        )
        routes, never_copied = _select_copied(settings, sources)
        if apply:
            Group(settings).check_stopped()
        for recovery in routes:
            recovery.read_data()
        refused = [row.refusal for recovery in routes for row in recovery.partitions if row.refusal]
        if refused and silent_candidates:
            raise ClusterUnreachable(
                f"{refused[0]}. But a candidate that can have these records does not answer:"
                f" {silent_candidates[0]}. Run `reo recover` again when it does"
            )
        for recovery in routes:
            if apply and not refused and any(row.new_frontier for row in recovery.partitions):
                recovery.apply()
    except ReoError as error:
        print(f"reo recover: {error}", file=sys.stderr)
        return error.exit_code
    for recovery in routes:
        print(
            (recovery_report.format_json if as_json else recovery_report.format_text)(
                settings.application, recovery.route, recovery.partitions, recovery.applied
            )
        )
    refusals = [*refused, *not_comparable]
    for said in (*refusals, *never_copied):
        print(f"reo recover: {said}", file=sys.stderr)
    return refusals[0].exit_code if refusals else 0
