"""What the clusters tell about topics that are to be moved: their partitions and ends, whether
somebody writes to them, the consumer groups that read them, and whether the service copies them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from common import source_pool
from common.errors import MoveRefused, SettingsInvalid
from common.kafka import needed_acls, partition_offsets, permissions, source_topics
from common.kafka.coordinator_client import CoordinatorClient
from common.route_states import describe_halted
from common.routes import TopicPartition
from common.settings import Settings, destination_kind
from reo.commands import ALL_GROUPS
from reo.migration.user_group import UserGroup, list_groups
from reo.migration.write_denial import WriteDenial
from reo.progress.progress_snapshot import Snapshot, SnapshotReader
from reo.report import join_names, print_json

Ends = Mapping[TopicPartition, int]
"""The end of each source partition."""


@dataclass(frozen=True, slots=True)
class MovingGroup:
    """A consumer group of the source that reads the topics."""

    name: str
    partitions: int
    """How many partitions it has an offset of."""
    unread: int
    """How many source offsets it has not read yet."""
    readers_at_source: list[str] | None
    """Members that have partitions of the topics, None while the group rebalances."""
    is_active_at_destination: bool

    @property
    def has_stopped(self) -> bool:
        """Whether nobody reads the topics at the source in its name."""
        return self.readers_at_source == []

    def describe_readers(self) -> str:
        """As text for a person."""
        if self.readers_at_source is None:
            return "rebalancing"
        return join_names(self.readers_at_source) or "none"


def prepare_settings(
    settings: Settings, commands: Sequence[needed_acls.Command], deny_writes: bool
) -> Settings:
    """With the source that answers; an error when the topics cannot be moved with these settings,
    or when an ACL is missing that these commands need.
    """
    refuse_unmovable(settings)
    if deny_writes and len(settings.sources) > 1:
        raise MoveRefused(
            "--deny-writes denies writes at one cluster, and source.bootstrap_servers names"
            f" {len(settings.sources)}: producers could go on at another one. Give the cluster to"
            " which they write alone, with source.mode=single"
        )
    settings = source_pool.select_answering(settings)
    permissions.check_permissions(settings, *commands)
    return settings


def refuse_unmovable(settings: Settings) -> None:
    """SettingsInvalid without a destination topic, or with a part of a topic."""
    destination_kind.refuse_command(
        settings, "reo cutover", "its consumers are not consumer groups"
    )
    for rule in settings.rules:
        if not rule.partitions.is_whole:
            raise SettingsInvalid(
                f"{rule}: `reo cutover` moves a topic with its producers and consumers, and this is"
                " a part of one. Stop the producers, wait until `reo lag` of each service is 0, and"
                " move the consumers with `reo offsets translate` of each"
            )


class MovingTopics:
    """The topics of these settings, and the groups that match the pattern."""

    def __init__(self, settings: Settings, groups: str) -> None:
        self.settings = settings
        self.pattern = re.compile(groups)
        self.snapshot_reader = SnapshotReader(settings)
        self.source_admin = self.snapshot_reader.clients.source_admin
        self.source_coordinator = CoordinatorClient(settings.source_cluster, settings)
        self.destination_coordinator = self.snapshot_reader.group.coordinator
        self.write_denial = WriteDenial(settings.source_cluster, self.source_admin)
        self._found: set[str] = set()

    def take_snapshot(self) -> Snapshot:
        """The partitions; MoveRefused when there are none, or a topic is halted."""
        snapshot = self.snapshot_reader.take_snapshot()
        if not snapshot.sources:
            raise MoveRefused(
                "no source topic matches what is to be moved. Correct source.topic, topics or"
                " --topic"
            )
        if snapshot.halted and not snapshot.find_moved():
            raise MoveRefused(
                f"{describe_halted(snapshot.halted)}: its end is not copied",
                f"`reo resume {' '.join(sorted(snapshot.halted))}`, or leave it out (--topic)",
            )
        return snapshot

    def read_ends(self) -> Ends:
        """The end of every partition at the source."""
        sources = source_topics.describe_sources(self.settings, self.source_admin)
        return partition_offsets.list_end_offsets(
            self.source_admin, source_topics.list_source_partitions(sources)
        )

    def find_open(self, ends: Ends) -> list[TopicPartition]:
        """The source partitions that have an open transaction."""
        return sorted(partition_offsets.find_open_transactions(self.source_admin, ends))

    def find_written(self, ends: Ends) -> list[TopicPartition]:
        """The source partitions whose end has moved, or that have an open transaction."""
        current_ends = self.read_ends()
        moved = {tp for tp, end in current_ends.items() if end != ends.get(tp)}
        return sorted(moved.union(self.find_open(current_ends)))

    def find_groups(self, ends: Ends) -> list[MovingGroup]:
        """The groups that match the pattern, and have an offset on these source partitions or read
        them. One that was found stays, also when its consumers stop and it has no offset.
        """
        names = self._found.union(filter(self.pattern.fullmatch, self._list_groups()))
        groups = self._describe_groups(ends, sorted(names))
        self._found.update(group.name for group in groups)
        return groups

    def find_left_out(self, ends: Ends, groups: Sequence[MovingGroup]) -> list[MovingGroup]:
        """The other groups that have an offset on these source partitions or read them; MoveRefused
        when a pattern was given and `groups`, those that match it, are none.
        """
        left_out = self._describe_groups(
            ends, [name for name in self._list_groups() if not self.pattern.fullmatch(name)]
        )
        if not groups and self.pattern.pattern != ALL_GROUPS:
            names = join_names(group.name for group in left_out)
            who = f"these read them: {names}" if names else "none reads them"
            raise MoveRefused(
                "no consumer group that reads these topics matches --groups"
                f" {self.pattern.pattern!r}; {who}. Correct --groups, or leave it out to move"
                " every group that reads them"
            )
        return left_out

    def _list_groups(self) -> list[str]:
        return [
            name
            for name in list_groups(self.settings.source_cluster, self.source_admin)
            if name != self.settings.application
        ]

    def _describe_groups(self, ends: Ends, names: Iterable[str]) -> list[MovingGroup]:
        names_of_topics = {tp.topic for tp in ends}
        groups = []
        for name in names:
            group = UserGroup(self.source_coordinator, name)
            offsets, readers = group.fetch_offsets(ends), group.list_readers(names_of_topics)
            if offsets or readers or name in self._found:
                # the ends were read before the offsets
                unread = sum(max(0, ends[tp] - offset) for tp, offset in offsets.items())
                active = UserGroup(self.destination_coordinator, name).has_members()
                groups.append(MovingGroup(name, len(offsets), unread, readers, active))
        return groups

    def is_copying(self, snapshot: Snapshot) -> bool:
        """Whether a member of the service's group has, or may get, the intermediate partitions of
        these topics.
        """
        if not self.snapshot_reader.group.describe_members().partitions:
            return False
        assigned = self.snapshot_reader.group.list_assigned()
        return assigned is None or any(row.intermediate in assigned for row in snapshot.partitions)

    def report_moved(self, as_json: bool) -> bool:
        """Print when and where the topics have moved, and what the source has got since; False when
        they have not.
        """
        rows = []
        for row in self.take_snapshot().find_moved():
            assert row.frontier
            assert row.move
            copied_end = row.frontier.source_offset + 1
            rows.append(
                row.source._asdict()
                | {"source_offset": copied_end, "source_end": row.source_end}
                | row.move._asdict()
            )
            if not as_json:
                since = f"; the source has {row.source_end - copied_end} offsets more since, which"
                more = f"{since} are not copied" if row.source_end > copied_end else ""
                print(f"{row.source} {row.frontier.describe_move()}{more}")
        if rows and as_json:
            print_json({"moved": rows})
        elif rows:
            print(
                "there is nothing left to move. A group that was left out: `reo offsets translate"
                " --apply`. To go back: `reo cutover back`"
            )
        return bool(rows)
