"""`reo cutover back`: undoes what `reo cutover run` has done, or has begun to do.

| found | done |
|---|---|
| the topics have not moved | the DENY is removed |
| they have moved, and nothing was written at the destination since | the record of the move is removed, and the DENY: the copy can go on from where it has ended |
| they have moved, and something was written | failback: the group at the source gets the frontiers of a copy in the other direction, then the DENY is removed |
| nobody can tell, as while the destination does not answer | the DENY stays: without it, both sides could take records. The command that removes it is said |

The frontier has the last copied record of either side. A copy in the other direction has copied
exactly up to there, so its frontier is the old one with its sides exchanged
(`build_reverse_frontier`). Its start compares both records, like any start.
"""  # noqa: E501 - rows of a table

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields

from common import source_pool
from common.errors import FrontierLost, MoveRefused, ReoError
from common.frontier import KEPT, Frontier, LastRecord
from common.kafka import (
    partition_offsets,
    permissions,
    source_topics,
    topic_creation,
    visible_records,
)
from common.kafka.clients import create_admin_client, create_admin_clients, create_reader
from common.kafka.consumer_group import Commit, Group
from common.kafka.topics import Topic
from common.routes import Route, TopicPartition, name_some
from common.settings import Settings
from common.settings.security import Security
from reo.migration.move_record import MoveRecord
from reo.migration.moving_topics import refuse_unmovable
from reo.migration.write_denial import WriteDenial
from reo.progress.progress_snapshot import SnapshotReader
from reo.report import format_table, join_names, print_errors


def run_command(settings: Settings) -> int:
    """The command. Exit code 0, or that of the first thing that was not possible."""
    refuse_unmovable(settings)
    refusals: list[ReoError] = []
    try:
        print(cancel_move(source_pool.select_answering(settings), len(settings.sources)))
    except MoveRefused:
        raise
    except ReoError as unknown:
        refusals.append(type(unknown)(f"whether the topics have moved is not known: {unknown}"))
    is_known = not refusals
    for source in settings.sources:
        try:
            print(_end_denial(settings.select_source(source), is_known))
        except ReoError as refusal:
            refusals.append(refusal)
    return print_errors("cutover", refusals)


def cancel_move(settings: Settings, candidates: int = 1) -> str:
    """Returns what was found and done, as text; MoveRefused when there is no way back without a
    loss, FrontierLost when nothing tells whether the topics have moved.
    """
    snapshot = SnapshotReader(settings).take_snapshot()
    moved = snapshot.find_moved()
    if snapshot.partitions and not snapshot.frontiers:
        raise FrontierLost(
            f"group {settings.application} has no frontiers, in which a move is recorded: they have"
            " expired, or nothing was copied yet",
            "`reo recover` finds frontiers again",
        )
    if not moved:
        return "the topics have not moved"
    grown = [
        str(row.source)
        for row in moved
        if row.frontier and row.source_end != row.frontier.source_offset + 1
    ]
    reverse = ReverseCopy(settings, snapshot.sources, snapshot.frontiers)
    if not reverse.find_written():
        MoveRecord(settings, snapshot.sources).remove()
        return (
            "nothing was written at the destination since the topics moved: the move is undone."
            " Start the service, then producers and consumers at the source"
        )
    if candidates > 1:
        raise MoveRefused(
            "records were written at the destination since the topics moved, and"
            f" source.bootstrap_servers names {candidates} clusters. Give the one to which the"
            " topics are to move back alone, with source.mode=single"
        )
    if not reverse.is_set_up():
        if grown:
            raise MoveRefused(
                f"records were written to {name_some(grown)} at the source after the move, and"
                " others at the destination: neither side has all. Copy those of the source by"
                " hand, or delete the topic there and copy to a new one"
            )
        reverse.set_up()
    return reverse.describe()


class ReverseCopy:
    """The copy in the other direction of topics that have moved; `settings` and `frontiers` are
    those of the copy that has ended.
    """

    def __init__(
        self,
        settings: Settings,
        sources: Mapping[Route, Topic],
        frontiers: Mapping[TopicPartition, Frontier],
    ) -> None:
        self.settings = settings
        self.sources = sources
        self.reverse = build_reverse_settings(settings, sources)
        self.source_admin, self.destination_admin = create_admin_clients(settings)
        self.group = Group(self.reverse)
        by_intermediate = {route.intermediate_topic: route for route in sources}
        self.ended = {
            by_intermediate[tp.topic].get_destination(tp.partition): frontier
            for tp, frontier in frontiers.items()
        }
        """The frontiers by destination partition, which is the new source partition."""

    def find_written(self) -> list[TopicPartition]:
        """The destination partitions to which somebody has written since the move."""
        reader = create_reader(self.settings.destination_cluster, self.settings)
        begins, ends = partition_offsets.list_bounds(self.destination_admin, self.ended)
        open_at = partition_offsets.find_open_transactions(self.destination_admin, ends)

        def is_written(tp: TopicPartition, end: int) -> bool:
            # what retention has deleted since was written, too
            if tp in open_at or begins[tp] > end:
                return True
            return visible_records.find_first_visible(reader, tp, end, ends[tp]) is not None

        return [
            tp
            for tp, frontier in self.ended.items()
            if frontier.move and is_written(tp, frontier.move.destination_end)
        ]

    def is_set_up(self) -> bool:
        """Whether the group has all the frontiers already, or later ones; MoveRefused when it has
        those of another copy, or the topics have moved back.
        """
        new = self._build_frontiers()
        set_up = set()
        # beside a copy that runs: what it is about to commit is later than what it has committed
        commits = self.group.read_commits(new)
        for tp, commit in commits.items():
            if commit.frontier.destination_topic_id != new[tp].destination_topic_id:
                continue  # of a topic that was deleted
            if commit.frontier.source_identity != new[tp].source_identity:
                raise MoveRefused(
                    f"group {self.group.name} of the cluster at"
                    f" {self.settings.source_cluster.bootstrap_servers} has the frontiers of"
                    f" another copy to {tp.topic}. Set application to another name, for both"
                    " directions"
                )
            if commit.frontier.source_offset >= new[tp].source_offset:
                if commit.frontier.move:
                    raise MoveRefused(
                        f"these topics have moved back: {tp} {commit.frontier.describe_move()}. To"
                        " move them again, run `reo cutover back` with the settings of the copy"
                        " that has moved them back"
                    )
                set_up.add(tp)
        return set_up == new.keys()

    def set_up(self) -> None:
        """Commit the frontiers; ServiceRuns when the group has members."""
        permissions.check_permissions(self.reverse, "recover --apply")
        topic_creation.prepare_topics(self.reverse)
        frontiers = self._build_frontiers()
        ends = partition_offsets.list_end_offsets(self.source_admin, frontiers)
        self.group.list_commits(frontiers)  # HangingTransaction for one that could replace them
        self.group.commit(
            {tp: Commit(ends[tp], frontier.encode()) for tp, frontier in frontiers.items()}
        )

    def describe(self) -> str:
        """Where the copy begins, and how it is started."""
        rows = [
            (tp, frontier.move.destination_end, frontier.source_offset + 1)
            for tp, frontier in self.ended.items()
            if frontier.move
        ]
        return (
            f"{format_table('partition|copied back from|to', rows, numbers_from=1)}\n"
            "records were written at the destination since the topics moved: the copy in the other"
            " direction begins with the first of them. Start a service with the settings of source"
            f" and destination exchanged (from {self.reverse.source_cluster.bootstrap_servers} to"
            f" {self.reverse.destination_cluster.bootstrap_servers}, application"
            f" {self.reverse.application}); `reo cutover run` with these settings moves the topics"
            " back"
        )

    def _build_frontiers(self) -> dict[TopicPartition, Frontier]:
        """By the intermediate partition of the other direction. The epoch is above that of an
        earlier copy: what is on the intermediate topic is not of this one.
        """
        reverse_sources = source_topics.describe_sources(self.reverse, self.destination_admin)
        new_sources = {
            route.source_topic: (route, topic) for route, topic in reverse_sources.items()
        }
        frontiers = {}
        for route, source in self.sources.items():
            reverse_route, new_source = new_sources[route.destination_topic]
            intermediates = list(map(reverse_route.get_intermediate, range(source.partitions)))
            earlier = self.group.read_commits(intermediates)
            epoch = 1 + max((commit.frontier.epoch for commit in earlier.values()), default=-1)
            for tp in intermediates:
                ended = self.ended[reverse_route.get_source(tp.partition)]
                source_topics.check_identity(ended.source_identity, source)
                frontiers[tp] = build_reverse_frontier(
                    ended, new_source.identity, source.topic_id, epoch
                )
        return frontiers


def build_reverse_frontier(
    ended: Frontier, source_identity: str, destination_topic_id: str, epoch: int
) -> Frontier:
    """The frontier of a copy in the other direction that has copied what the one that has `ended`
    has copied. The last record is the same on both sides, and so is its checksum.
    """
    assert ended.move is not None
    last, checksum = ended.last_record, ended.last_written_checksum
    kept = KEPT if (ended.last_written or "").endswith(KEPT) else ""
    return Frontier(
        source_offset=ended.move.destination_end - 1,
        epoch=epoch,
        source_identity=source_identity,
        # those that the destination has beyond it are new to the source
        source_partitions=ended.source_partitions,
        destination_topic_id=destination_topic_id,
        destination_known=last.source_offset if last else ended.source_offset,
        sent=0,
        last_record=(
            LastRecord(ended.destination_known, checksum)
            if checksum and ended.is_known_written
            else None
        ),
        last_written=last.checksum + kept if last else None,
        is_known_written=last is not None,
    )


def build_reverse_settings(settings: Settings, routes: Iterable[Route]) -> Settings:
    """The settings of the copy in the other direction."""
    sides = [
        (f"source.{name}", f"destination.{name}")
        for name in ("bootstrap_servers", *(field.name for field in fields(Security)))
    ]
    values = settings.values | {"source.mode": "single", "source.start": "earliest"}
    for left, right in sides:
        values[left], values[right] = settings.values[right], settings.values[left]
    if settings.topics_:
        values["topics"] = ",".join(
            f"{route.destination_topic}={route.source_topic}" for route in routes
        )
    else:
        values["source.topic"] = settings.destination_topic
        values["destination.topic"] = settings.source_topic
    return Settings.build(values)


def _end_denial(settings: Settings, is_known: bool) -> str:
    """Remove the DENY at the only source of these settings, if it `is_known` where the topics are;
    returns what was done.
    """
    client = create_admin_client(settings.source_cluster, settings)
    routes = source_topics.list_routes(settings, client, settings.connect_timeout_s)
    names = sorted({route.source_topic for route in routes})
    denial = WriteDenial(settings.source_cluster, client)
    denied = denial.find_denied(names)
    servers = settings.source_cluster.bootstrap_servers
    if not denied:
        done = f"writes are not denied: {join_names(names)}. There is nothing to remove"
    elif is_known:
        denial.remove(denied)
        done = f"producers may write to {join_names(denied)} at the source again"
    else:
        options = " ".join(f"--topic {name}" for name in denied)
        done = (
            f"writes to {join_names(denied)} at the source stay denied: had the topics moved, both"
            " sides would take records. If they have not: kafka-acls.sh --bootstrap-server"
            f" {servers} --remove --deny-principal 'User:*' --operation Write {options}"
        )
    return f"{servers}: {done}"
