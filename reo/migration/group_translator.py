"""`reo offsets translate`: where a group continues at the destination, after the last record
that it has committed at the source; `--apply` commits it, with the metadata of that commit. Each
partition is translated, and proved, by itself (`reo.migration.partition_translator`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from common import source_pool
from common.errors import (
    CopyDiffers,
    FrontierLost,
    MoveRefused,
    OffsetUntranslatable,
    ReoError,
    TopicMissing,
)
from common.frontier import Frontier
from common.kafka import partition_offsets, permissions, source_topics, topics
from common.kafka.clients import create_admin_clients
from common.kafka.consumer_group import Commit, Group
from common.kafka.coordinator_client import CoordinatorClient
from common.routes import TopicPartition
from common.settings import Settings, destination_kind
from common.suggestions import suggest
from reo.compare.comparable_routes import find_comparable, look_up_copies
from reo.migration.partition_translator import PartitionTranslator, TranslatedPartition
from reo.migration.user_group import UserGroup, list_groups
from reo.report import format_table, print_errors, print_json

TITLES = "source|offset|destination|offset|translated|"
ProvedOffsets = dict[TopicPartition, tuple[int, int]]
"""By source partition: a source offset of one group, and the destination offset that was proved to
be the same place.
"""


class GroupTranslator:
    """Translates the offsets of any group on all routes. `on_progress` is called again and again
    while it reads.
    """

    def __init__(self, settings: Settings, on_progress: Callable[[], None] = lambda: None) -> None:
        self.settings = settings
        self.source_admin, self.destination_admin = create_admin_clients(settings)
        self.group = Group(settings)
        self.source_coordinator = CoordinatorClient(settings.source_cluster, settings)
        self.partition_translator = PartitionTranslator(
            settings, self.destination_admin, self._load_frontiers, on_progress
        )
        self.look_up_topics()

    def look_up_topics(self) -> None:
        """Find the routes, and the topics as they are now; TopicMissing when one that the settings
        name does not exist at the source.
        """
        self.sources, self.not_comparable = find_comparable(self.settings, self.source_admin)
        names = [route.destination_topic for route in self.sources]
        self.destinations, self.missing = look_up_copies(
            self.settings, self.destination_admin, names
        )

    def open_source_group(self, name: str) -> UserGroup:
        """The group at the source."""
        return UserGroup(self.source_coordinator, name)

    def open_destination_group(self, name: str) -> UserGroup:
        """The group at the destination."""
        return UserGroup(self.group.coordinator, name)

    def explain_no_groups(self, pattern: str) -> str:
        """Why there is nothing to translate, with the name that a mistyped one may mean."""
        names = {*list_groups(self.settings.source_cluster, self.source_admin)} - {pattern}
        return (
            f"no consumer group of the source that matches {pattern!r} has an offset on the copied"
            f" topics{suggest(pattern, sorted(names))}"
        )

    def translate(
        self, group: str, proved: ProvedOffsets | None = None
    ) -> list[TranslatedPartition]:
        """A row for each partition; changes nothing on the clusters.

        `proved` has what was translated before: then only what the group has read since is read and
        compared. The new translations are added to it.
        """
        pairs = [
            (route.get_source(partition), route.get_destination(partition))
            for route, source in self.sources.items()
            for partition in range(source.partitions)
        ]
        commits = self.open_source_group(group).list_commits([source for source, _ in pairs])
        if not commits:
            return [TranslatedPartition(source, copy) for source, copy in pairs]
        committed = self.open_destination_group(group).fetch_offsets(
            [copy for _, copy in pairs if self._is_present(copy)]
        )
        frontiers = self._load_frontiers()
        begins, stable_ends = partition_offsets.list_bounds(
            self.source_admin, commits, committed_only=True
        )
        ends = partition_offsets.list_end_offsets(self.source_admin, commits)
        proved = {} if proved is None else proved
        rows = []
        for source, copy in pairs:
            row = TranslatedPartition(source, copy, committed_offset=committed.get(copy))
            rows.append(row)
            if source not in commits:
                continue
            row.source_offset, row.metadata = commits[source]
            bounds = begins[source], stable_ends[source], ends[source]
            try:
                if copy.topic in self.missing:
                    raise self.missing[copy.topic]
                if not self._is_present(copy):
                    raise OffsetUntranslatable(
                        f"{source}: the group is at offset {row.source_offset}, and the destination"
                        f" does not have {copy} yet: the source got partitions since the service"
                        " ran. Start the service, which adds them, then translate again"
                    )
                row.destination_offset = self.partition_translator.translate(
                    row, row.source_offset, bounds, frontiers.get(source), proved.get(source)
                )
                proved[source] = row.source_offset, row.destination_offset
            except (CopyDiffers, FrontierLost, OffsetUntranslatable, TopicMissing) as refusal:
                row.refusal = refusal
                proved.pop(source, None)
        return rows

    def commit(self, group: str, rows: Sequence[TranslatedPartition]) -> None:
        """Commit the translated offsets that move the group forward at the destination, with the
        metadata of the source, in one request; GroupBusy when it has members there,
        OffsetUntranslatable when a topic is no longer the one whose offsets these are.
        """
        commits = {
            row.destination: Commit(row.destination_offset, row.metadata)
            for row in rows
            if row.moves and row.destination_offset is not None
        }
        if commits:
            self._check_same_topics({tp.topic for tp in commits})
            self.open_destination_group(group).commit_forward(commits)

    def _is_present(self, destination: TopicPartition) -> bool:
        copy = self.destinations.get(destination.topic)
        return copy is not None and destination.partition < copy.partitions

    def _check_same_topics(self, names: Collection[str]) -> None:
        """OffsetUntranslatable when a destination topic was deleted since `look_up_topics`, and
        perhaps recreated.
        """
        cluster, timeout_s = self.settings.destination_cluster, self.settings.connect_timeout_s
        now = topics.look_up(cluster, self.destination_admin, names, timeout_s)
        for name in sorted(names):
            if name not in now or now[name].identity != self.destinations[name].identity:
                raise OffsetUntranslatable(
                    f"the destination topic {name} was deleted, or deleted and recreated, while the"
                    " group was translated: its offsets there are of the old topic, and nothing was"
                    " committed. Translate again when the new topic is copied"
                )

    def _load_frontiers(self, require_stable: bool = False) -> dict[TopicPartition, Frontier]:
        """By source partition; only frontiers of these topics. As of before any open transaction,
        or HangingTransaction while there is one.
        """
        routes = {route.intermediate_topic: route for route in self.sources}
        commits = self.group.read_commits(
            source_topics.list_intermediate_partitions(self.sources), require_stable
        )
        frontiers = {}
        for tp, commit in commits.items():
            route, frontier = routes[tp.topic], commit.frontier
            # with failover any candidate may answer, and what it has is compared instead
            if not self.settings.failover:
                source_topics.check_identity(frontier.source_identity, self.sources[route])
            copy = self.destinations.get(route.destination_topic)
            if copy is not None and frontier.destination_topic_id == copy.topic_id:
                frontiers[route.get_source(tp.partition)] = frontier
        return frontiers


def refuse_tables(settings: Settings) -> None:
    """SettingsInvalid without a destination topic."""
    destination_kind.refuse_command(
        settings, "reo offsets", "its records have the source's own offsets, and no consumer groups"
    )


def run_command(settings: Settings, group: str, apply: bool, as_json: bool) -> int:
    """The command: exit code 0 when nothing was refused."""
    refuse_tables(settings)
    settings = source_pool.select_answering(settings)
    permissions.check_permissions(
        settings, "offsets translate --apply" if apply else "offsets translate", group=group
    )
    translator = GroupTranslator(settings)
    rows = translator.translate(group)
    if not translator.not_comparable and all(row.source_offset is None for row in rows):
        raise MoveRefused(translator.explain_no_groups(group))
    refusals: list[ReoError] = [row.refusal for row in rows if row.refusal]
    is_applied = apply and not refusals
    if is_applied:
        translator.commit(group, rows)
    if as_json:
        partitions = [row.to_dict() for row in rows]
        print_json({"group": group, "applied": is_applied, "partitions": partitions})
    else:
        print(format_text(group, rows, is_applied))
    return print_errors("offsets", [*refusals, *translator.not_comparable])


def format_text(group: str, rows: Sequence[TranslatedPartition], applied: bool) -> str:
    """A table, and what to do next."""
    titles = TITLES + ("committed" if applied else "to be committed")
    if any(row.refusal for row in rows):
        conclusion = "nothing was committed: a partition was refused"
    elif not any(row.moves for row in rows):
        conclusion = "there is nothing to commit"
    elif applied:
        conclusion = "committed; start the consumers at the destination"
    else:
        conclusion = "nothing was changed; run it again with --apply to commit this"
    table = format_table(titles, [row.list_cells() for row in rows])
    return f"group {group}\n{table}\n{conclusion}"
