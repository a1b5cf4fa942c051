"""`reo recover`: finds the frontier from the data when the group's commit is lost, was reset, or is
pending for ever.

It recovers each route that is one to one. Per partition it prints what the group has, how far the
copy is by the data (`reo.compare.alignment`), and what would be committed. With `--apply` it
commits that, for all partitions of a route in one request, or for none when a partition of any
route is refused:

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

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from common import frontier as frontiers
from common import source_pool
from common.errors import (
    ClusterUnreachable,
    CopyDiffers,
    FrontierLost,
    HangingTransaction,
    ReoError,
    ServiceRuns,
    StageFailed,
    TopicMissing,
)
from common.frontier import Frontier, LastRecord
from common.kafka import partition_offsets, permissions, topic_creation, topics
from common.kafka.clients import create_admin_client, create_admin_clients, create_readers
from common.kafka.consumer_group import Commit, Group
from common.kafka.topics import Topic
from common.kafka.visible_records import read_first_records, read_visible
from common.records import compute_message_checksum
from common.routes import Route
from common.settings import Settings, destination_kind
from deduplicator.frontiers.source_start_offsets import find_first_source_offsets
from reo.compare.alignment import AlignmentInput, LastCopiedPair, find_last_copied
from reo.compare.comparable_routes import find_comparable, look_up_copies
from reo.report import convert_error_to_dict, format_table, print_errors, print_json


@dataclass(slots=True)
class RecoveredPartition:
    """One partition: what the group and the data have, and what follows from it."""

    partition: int
    """Of the intermediate topic."""
    number: int
    """Of the source and the destination topic."""
    commit: Commit | None
    frontier: Frontier | None = None
    """In the commit, when reo wrote it."""
    unreadable: str = ""
    """Why the commit has no frontier."""
    last_copied: LastCopiedPair | None = None
    """None when nothing was copied, or when `refusal` says why the data does not tell."""
    source_offset: int | None = None
    """The frontier that follows from the data."""
    new_frontier: Frontier | None = None
    refusal: CopyDiffers | FrontierLost | None = None

    def __post_init__(self) -> None:
        if self.commit is not None:
            try:
                self.frontier = frontiers.decode(self.commit.metadata)
            except ValueError as reason:
                self.unreadable = str(reason)

    def describe_group(self) -> str:
        """As text for a person."""
        if self.commit is None:
            return "no offset"
        if self.frontier is None:
            return f"offset {self.commit.offset} without a frontier ({self.unreadable})"
        return describe_frontier(self.frontier)

    def describe_data(self) -> str:
        """As text for a person."""
        if self.refusal:
            return f"refused ({type(self.refusal).__name__})"
        last = self.last_copied
        if last is None:
            return f"nothing copied, frontier {self.source_offset}"
        return (
            f"source offset {last.source_offset} ({last.compared} of {last.records} records"
            " compared)"
        )

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        last = self.last_copied
        group = self.commit and {
            "intermediate_offset": self.commit.offset,
            "unreadable": self.unreadable or None,
            "source_offset": self.frontier and self.frontier.source_offset,
            "epoch": self.frontier and self.frontier.epoch,
        }
        data = {
            "source_offset": self.source_offset,
            "destination_offset": last and last.destination_offset,
            "records": last.records if last else 0,
            "compared": last.compared if last else 0,
        }
        return {
            "partition": self.number,
            "group": group,
            "data": None if self.refusal else data,
            "write": self.new_frontier and orjson.loads(self.new_frontier.encode()),
            "refused": convert_error_to_dict(self.refusal),
        }


def describe_frontier(frontier: Frontier) -> str:
    """As text for a person."""
    return f"source offset {frontier.source_offset}, epoch {frontier.epoch}"


class Recovery:
    """The recovery of one route; `read_data` fills `partitions`. TopicMissing without a destination
    topic.
    """

    def __init__(self, settings: Settings, route: Route, source: Topic) -> None:
        self.settings = settings
        self.route = route
        self.source = source
        self.source_admin, self.destination_admin = create_admin_clients(settings)
        self.source_reader, self.destination_reader = create_readers(settings)
        self.group = Group(settings)
        name = route.destination_topic
        copies, missing = look_up_copies(settings, self.destination_admin, [name])
        if missing:
            raise missing[name]
        self.destination = copies[name]
        self.common_partitions = range(
            min(source.partitions, route.partitions.count_in(self.destination.partitions))
        )
        self.partitions: list[RecoveredPartition] = []
        self.applied = False
        self.source_partitions = 0
        """How many the source had when the copy began; those beyond were added later."""
        self.identity = ""
        """The identity of the source in the frontiers."""

    def read_data(self) -> None:
        """Fill `partitions`; changes nothing on the clusters."""
        commits = self.group.list_commits(map(self.route.get_intermediate, self.common_partitions))
        ends = self._list_destination_ends()
        self.partitions = [
            RecoveredPartition(
                partition,
                self.route.get_source(partition).partition,
                commits.get(self.route.get_intermediate(partition)),
            )
            for partition in self.common_partitions
        ]
        known = [row.frontier for row in self.partitions if row.frontier]
        self.source_partitions = max(
            (frontier.source_partitions for frontier in known),
            default=len(self.common_partitions),
        )
        epoch = max((frontier.epoch for frontier in known), default=0)
        topic_id = self.destination.topic_id
        own = [frontier for frontier in known if frontier.destination_topic_id == topic_id]
        self.identity = source_pool.find_copied_identity(self.settings, self.source, own)
        for row in self.partitions:
            try:
                self._recover_partition(row, ends[row.number], epoch)
            except (CopyDiffers, FrontierLost) as refusal:
                why = " (a topic with cleanup.policy=compact lost records from its middle)"
                row.refusal = type(refusal)(f"{refusal}{why if self._is_compacted() else ''}")
        if self._list_destination_ends() != ends:
            raise ServiceRuns(
                f"{self.destination.name} grew while it was read: a producer writes to it. Stop the"
                " service, or the other producer, and run `reo recover` again"
            )

    def apply(self) -> None:
        """Commit the frontiers that `read_data` found."""
        found = {
            self.route.get_intermediate(row.partition): row.new_frontier
            for row in self.partitions
            if row.new_frontier
        }
        topic_creation.prepare_topics(self.settings)
        ends = partition_offsets.list_end_offsets(self.destination_admin, found)
        commits = {tp: Commit(ends[tp], frontier.encode()) for tp, frontier in found.items()}
        self.group.commit(commits)
        if self.group.list_commits(commits) != commits:
            raise StageFailed(
                f"group {self.group.name} does not have the offsets that were committed: another"
                " client commits with it. Run `reo recover` again"
            )
        self.applied = True

    def format_text(self) -> str:
        """A table, and what to do next."""
        column = "committed" if self.applied else "to be committed"
        rows = [
            (
                row.number,
                row.describe_group(),
                row.describe_data(),
                describe_frontier(row.new_frontier) if row.new_frontier else "nothing",
            )
            for row in self.partitions
        ]
        if any(row.refusal for row in self.partitions):
            conclusion = "nothing was committed: a partition was refused"
        elif not any(row.new_frontier for row in self.partitions):
            conclusion = "the data confirms the group's frontiers: there is nothing to recover"
        elif self.applied:
            conclusion = "committed; start the service"
        else:
            conclusion = (
                "nothing was changed; stop the service and run it again with --apply to commit this"
            )
        table = format_table(f"partition|the group says|the data says|{column}", rows)
        return (
            f"group {self.group.name} on {self.route.intermediate_topic}: {self.route}\n{table}"
            f"\n{conclusion}"
        )

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "group": self.group.name,
            "intermediate_topic": self.route.intermediate_topic,
            "source_topic": self.route.source_topic,
            "destination_topic": self.route.destination_topic,
            "applied": self.applied,
            "partitions": [row.to_dict() for row in self.partitions],
        }

    def _recover_partition(self, row: RecoveredPartition, end: int, epoch: int) -> None:
        row.last_copied = find_last_copied(self._describe_alignment(row.partition))
        own = row.frontier
        if own and (own.source_identity, own.destination_topic_id) != (
            self.identity,
            self.destination.topic_id,
        ):
            own = None
        if row.last_copied:
            row.source_offset, known = row.last_copied[:2]
            # the group's frontier may say that no record follows up to a later offset
            if own and own.last_record and own.last_record.source_offset == row.source_offset:
                row.source_offset = max(own.source_offset, row.source_offset)
        elif own and own.sent == 0 and own.destination_known < end:
            row.source_offset, known = own.source_offset, end - 1
        else:
            row.source_offset, known = self._find_first_frontier(row.partition), end - 1
        is_confirmed = own and own.source_offset == row.source_offset
        if not (is_confirmed and own and own.destination_known < end):
            row.new_frontier = Frontier(
                source_offset=row.source_offset,
                epoch=epoch,
                source_identity=self.identity,
                source_partitions=self.source_partitions,
                destination_topic_id=self.destination.topic_id,
                destination_known=known,
                sent=0,
                last_record=self._read_last_record(row),
                is_known_written=row.last_copied is not None,
            )

    def _is_compacted(self) -> bool:
        """Whether compaction may have removed records of either topic."""
        return topics.is_compacted(
            self.source_admin, self.settings.source_cluster, self.source.name
        ) or topics.is_compacted(
            self.destination_admin, self.settings.destination_cluster, self.destination.name
        )

    def _list_destination_ends(self) -> Mapping[int, int]:
        """The end offsets of the destination's partitions; HangingTransaction while a transaction
        there is open: its records could still become visible.
        """
        outputs = map(self.route.get_destination, self.common_partitions)
        ends = partition_offsets.list_end_offsets(self.destination_admin, outputs)
        open_at = partition_offsets.find_open_transactions(self.destination_admin, ends)
        for tp, offset in open_at.items():
            raise HangingTransaction(
                f"a transaction on {tp} is open from offset {offset} on."
                f" {self.group.describe_abort(tp)}"
            )
        return {tp.partition: end for tp, end in ends.items()}

    def _describe_alignment(self, partition: int) -> AlignmentInput:
        """What alignment needs of a partition. Each reader begins at the same offset: when
        retention deletes it meanwhile, that is an error, and not another alignment.
        """
        source = self.route.get_source(partition)
        destination = self.route.get_destination(partition)
        source_begin, source_end = partition_offsets.list_bounds(
            self.source_admin, [source], committed_only=True
        )
        destination_begin, destination_end = partition_offsets.list_bounds(
            self.destination_admin, [destination], committed_only=True
        )
        return AlignmentInput(
            str(destination),
            partial(read_visible, self.source_reader, source_begin, ends=source_end),
            partial(read_visible, self.destination_reader, destination_begin, ends=destination_end),
            source_begin[source] == 0,
            destination_begin[destination] == 0,
            self.settings.start.is_from_beginning(
                source.partition, added=partition >= self.source_partitions
            ),
            destination_kind.get_zero_timestamp_ms(self.settings) or 0,
        )

    def _read_last_record(self, row: RecoveredPartition) -> LastRecord | None:
        """The source's record that was copied last; None when nothing was copied, or the source has
        deleted it.
        """
        if row.last_copied is None:
            return None
        tp, offset = self.route.get_source(row.partition), row.last_copied.source_offset
        record = read_first_records(self.source_reader, {tp: offset}).get(tp)
        if record is None or record.offset() != offset:
            return None
        return LastRecord(record.offset(), compute_message_checksum(record))

    def _find_first_frontier(self, partition: int) -> int:
        """Of a partition without a copied record: the offset before which the copy begins."""
        added = partition >= self.source_partitions
        if self.settings.start.kind == "latest" and not added:
            raise FrontierLost(
                f"{self.route.get_destination(partition)} is empty, and source.start=latest does"
                " not tell where the copy began: a record that was written since would be lost. Run"
                " `reo recover` with source.start set to a timestamp before the copy began, or to"
                " earliest"
            )
        source = self.route.get_source(partition)
        return (
            find_first_source_offsets(self.settings, self.source_admin, {source: added})[source] - 1
        )


def _select_copied(
    settings: Settings, sources: Mapping[Route, Topic]
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
    """The command: exit code 0 when nothing was refused."""
    destination_kind.refuse_command(
        settings,
        "reo recover",
        "the frontiers are in its store, and the group's commits repeat them: when these were lost"
        " or reset, stop the service, delete the group, and start again",
    )
    settings, silent_candidates = source_pool.find_furthest(settings)
    permissions.check_permissions(settings, "recover --apply" if apply else "recover")
    sources, not_comparable = find_comparable(
        settings, create_admin_client(settings.source_cluster, settings)
    )
    recoveries, never_copied = _select_copied(settings, sources)
    if apply:
        Group(settings).check_stopped()
    for recovery in recoveries:
        recovery.read_data()
    refused: list[ReoError] = [
        row.refusal for recovery in recoveries for row in recovery.partitions if row.refusal
    ]
    if refused and silent_candidates:
        raise ClusterUnreachable(
            f"{refused[0]}. But a candidate that can have these records does not answer:"
            f" {silent_candidates[0]}. Run `reo recover` again when it does"
        )
    for recovery in recoveries:
        if apply and not refused and any(row.new_frontier for row in recovery.partitions):
            recovery.apply()
    for recovery in recoveries:
        if as_json:
            print_json(recovery.to_dict())
        else:
            print(recovery.format_text())
    exit_code = print_errors("recover", [*refused, *not_comparable])
    print_errors("recover", never_copied)
    return exit_code
