"""`reo recover`: the frontier found from the data, when the group's commit is gone, was reset, or is pending for ever.

Each route that is one to one is recovered; of the others the data says nothing (`reo.comparable`). Without `--apply` it only reads. Per partition
it says what the group has, how far the copy is by the data (`reo.alignment`), and what would be committed. With `--apply` it commits that, for
all partitions of a route in one request or, when one partition of any route is refused, for none:

1. the group has no members (`ServiceRuns`), none of its offsets is undecided (`HangingTransaction`);
2. the destination is decided to its end, and its end is the same before and after it was read: nobody writes to it;
3. the frontiers are committed as the first ones are: no link, position at the end of the intermediate topic, a raised epoch;
4. they are read again.

The commit is the admin client's, and not a transaction: it carries metadata, is one request, and the broker refuses it while the group has members.
Stage one alone is no member. A run that it plans before it sees the new frontier must not be believed, so the epoch is not only
above the clock, but an hour above it (`common.epochs`). A frontier that the data confirms is left as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from common import epochs, machine, permissions, positions, source_candidates, tables, topics
from common import frontier as frontiers
from common.errors import CopyDiffers, FrontierLost, HangingTransaction, ReoError, ServiceRuns, StageFailed, TopicMissing
from common.frontier import Frontier, LastRecord, RuleState
from common.group import Commit, Group
from common.kafka_clients import admin, reader
from common.records import message_checksum
from common.routes import Route
from common.settings import Settings
from deduplicator.start import anchored, first_source_offset
from reo import alignment, recovered
from reo.alignment import Sides
from reo.comparable import divided
from reo.recovered import Partition


class Recovery:
    """The copy of one route, looked at; `partitions` is filled by `look`."""

    def __init__(self, settings: Settings, route: Route, source: topics.Topic) -> None:
        self.settings = settings
        self.route = route
        self.source = source
        self.partitions: list[Partition] = []
        self.applied = False
        self.identity = ""
        """What the frontiers call the source."""
        self.source_admin, self.destination_admin = (admin(cluster, self.settings) for cluster in (self.settings.source, self.settings.destination))
        self.source_reader, self.destination_reader = (reader(cluster, self.settings) for cluster in (self.settings.source, self.settings.destination))
        self.group = Group(self.settings, self.destination_admin)
        name = route.destination_topic
        found = topics.look_up(self.settings.destination, self.destination_admin, [name], self.settings.number("connect_timeout_s"))
        if name not in found:
            raise TopicMissing(f"the destination topic {name} does not exist: nothing was copied, nothing is to be recovered. Start the service")
        self.destination = found[name]
        self.common = range(min(self.source.partitions, self.destination.partitions))

    def look(self) -> None:
        """Fill `partitions`; changes nothing."""
        commits = self._commits()
        ends = self._destination_ends()
        compacted = (topics.compacted(self.source_admin, self.settings.source, self.source.name)
                     or topics.compacted(self.destination_admin, self.settings.destination, self.destination.name))
        self.partitions = [_read(partition, commits.get(partition)) for partition in self.common]
        counted = max((row.frontier.source_partitions for row in self.partitions if row.frontier), default=len(self.common))
        self.identity = self._copied_identity()
        for row in self.partitions:
            try:
                row.found = alignment.how_far(self._sides(row.partition, counted))
                row.source_offset = self._copied_up_to(row, row.found) if row.found else self._nothing_copied(row, ends[row.partition], counted)
                if not self._confirmed(row, ends[row.partition]):
                    known = row.found.destination_offset if row.found else ends[row.partition] - 1
                    row.write = Frontier(RuleState(row.source_offset, 0, None), self.identity, counted, self.destination.topic_id, known, 0,
                                         self._last_record(row))
            except (CopyDiffers, FrontierLost) as refused:
                why = " (a topic with cleanup.policy=compact lost records from its middle: its data cannot tell)" if compacted else ""
                row.refused = type(refused)(f"{refused}{why}")
        if self._destination_ends() != ends:
            raise ServiceRuns(f"{self.destination.name} grew while it was read: somebody writes to it. Stop the service, or whoever it is, "
                              "and run `reo recover` again")

    def apply(self) -> None:
        """Commit what `look` found."""
        rows = {self.route.intermediate(row.partition): row for row in self.partitions if row.write}
        topics.prepare(self.settings)
        begins, ends = (ask(self.destination_admin, rows) for ask in (positions.beginnings, positions.ends))
        newest = positions.newest_origins(self.destination_reader, {place: (begins[place], ends[place]) for place in rows})
        committed = [row.frontier.rule.epoch for row in self.partitions if row.frontier]
        epoch = epochs.raised(int(machine.time() * 1000), [*committed, *(origin.epoch for origin in newest.values())])
        for row in rows.values():
            assert row.write is not None
            row.write = anchored(row.write, epoch)
        wanted = {place: Commit(ends[place], row.write.encode()) for place, row in rows.items() if row.write}
        self.group.commit(wanted)
        if self.group.commits(wanted) != wanted:
            raise StageFailed(f"group {self.group.name} does not have what was committed: somebody else commits with it. Run `reo recover` again")
        self.applied = True

    def _commits(self) -> Mapping[int, Commit]:
        """What the group has, by partition."""
        return {place.partition: commit for place, commit in self.group.commits(map(self.route.intermediate, self.common)).items()}

    def _destination_ends(self) -> Mapping[int, int]:
        """Where the partitions end; HangingTransaction while a transaction there is undecided: what it wrote could still become visible."""
        places = list(map(self.route.destination, self.common))
        ends = positions.ends(self.destination_admin, places)
        stable = positions.ends(self.destination_admin, places, committed_only=True)
        for place in places:
            if stable[place] < ends[place]:
                raise HangingTransaction(f"a transaction on {place} is undecided from offset {stable[place]} on. {self.group.describe_abort(place)}")
        return {place.partition: end for place, end in ends.items()}

    def _sides(self, partition: int, counted: int) -> Sides:
        """Every reading begins at the same offset: when retention takes that meanwhile, it is an error, and not another alignment."""
        source, destination = self.route.source(partition), self.route.destination(partition)
        source_begin = positions.beginnings(self.source_admin, [source])
        destination_begin = positions.beginnings(self.destination_admin, [destination])
        return Sides(
            str(destination),
            lambda: positions.read_visible(self.source_reader, source_begin),
            lambda: positions.read_visible(self.destination_reader, destination_begin),
            source_begin[source] == 0, destination_begin[destination] == 0, self.settings.start.from_beginning(partition, added=partition >= counted),
            tables.zero_timestamp_ms(self.settings) or 0)

    def _nothing_copied(self, row: Partition, end: int, counted: int) -> int:
        """The frontier of a partition without a copied record: what the group says, or where the copy begins."""
        if row.frontier and self._speaks_of_this_copy(row.frontier) and row.frontier.sent == 0 and row.frontier.destination_known < end:
            return row.frontier.rule.frontier
        added = row.partition >= counted
        if self.settings.start.kind == "latest" and not added:
            raise FrontierLost(f"{self.destination.name}-{row.partition} is empty, and source.start=latest does not tell where the copy began: "
                               "a record that came since would be lost. Run `reo recover` with source.start set to a timestamp at which the copy had not "
                               "begun yet, or to earliest")
        return first_source_offset(self.settings, self.source_admin, self.route.source(row.partition), added) - 1

    def _copied_up_to(self, row: Partition, found: alignment.Found) -> int:
        """The last copied record's offset, or how far the group's frontier says that nothing follows it."""
        kept = row.frontier if row.frontier and self._speaks_of_this_copy(row.frontier) else None
        if kept and kept.last_record and kept.last_record.source_offset == found.source_offset:
            return max(kept.rule.frontier, found.source_offset)
        return found.source_offset

    def _last_record(self, row: Partition) -> LastRecord | None:
        """What the source has where the frontier will be; None where nothing was copied, or nothing is there any more."""
        if row.found is None:
            return None
        place, offset = self.route.source(row.partition), row.found.source_offset
        record = positions.read_first_records(self.source_reader, {place: offset}).get(place)
        if record is None or record.offset() != offset:
            return None
        return LastRecord(record.offset(), message_checksum(record))

    def _copied_identity(self) -> str:
        kept = (row.frontier for row in self.partitions if row.frontier and row.frontier.destination_topic_id == self.destination.topic_id)
        return source_candidates.find_copied_identity(self.settings, self.source, kept)

    def _speaks_of_this_copy(self, frontier: Frontier) -> bool:
        return (frontier.source_identity, frontier.destination_topic_id) == (self.identity, self.destination.topic_id)

    def _confirmed(self, row: Partition, end: int) -> bool:
        """Whether the group's frontier is what the data says."""
        frontier = row.frontier
        return (frontier is not None and self._speaks_of_this_copy(frontier) and frontier.rule.frontier == row.source_offset
                and frontier.destination_known < end)


def _read(partition: int, commit: Commit | None) -> Partition:
    row = Partition(partition, commit)
    if commit is not None:
        try:
            row.frontier = frontiers.decode(commit.metadata)
        except ValueError as reason:
            row.unreadable = str(reason)
    return row


def command(settings: Settings, apply: bool, as_json: bool) -> int:
    """The sub-command: exit code 0 when nothing was refused."""
    try:
        tables.refuse(settings, "reo recover", "the frontiers are in the database, and what the group has is "
                      "repeated from there: when that was lost or reset, stop the service, delete the group, and start again")
        settings = source_candidates.select_answering(settings)
        permissions.check_permissions(settings, "recover --apply" if apply else "recover")
        sources, hidden = divided(settings, topics.sources(settings, admin(settings.source, settings), settings.number("connect_timeout_s")))
        routes = [Recovery(settings, route, source) for route, source in sources.items()]
        if apply:
            Group(settings, admin(settings.destination, settings)).check_stopped()
        for recovery in routes:
            recovery.look()
        refused = [row.refused for recovery in routes for row in recovery.partitions if row.refused]
        for recovery in routes:
            if apply and not refused and any(row.write for row in recovery.partitions):
                recovery.apply()
    except ReoError as error:
        print(f"reo recover: {error}", file=sys.stderr)
        return error.exit_code
    for recovery in routes:
        print((recovered.as_json if as_json else recovered.as_text)(settings.application, recovery.route, recovery.partitions, recovery.applied))
    refusals = [*refused, *hidden]
    for refusal in refusals:
        print(f"reo recover: {refusal}", file=sys.stderr)
    return refusals[0].exit_code if refusals else 0
