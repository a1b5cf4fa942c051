"""`reo offsets translate`: where a consumer group goes on at the destination, exactly behind the last record that it has committed at the source.

No map of offsets is kept anywhere. The frontier says where both sides stand alike: source offset `f`, and the destination's record `sent` records behind
`destination_known`. By invariant 1 of the design the destination is, up to there, the source's visible records in order; so the n-th visible record before
that place on one side is the n-th on the other. Per partition:

1. the group's committed offset at the source: the next record it would read;
2. how many visible records the source has from there to the frontier;
3. as many visible records back from the frontier at the destination, that is where the group goes on;
4. both are read in step from there to the frontier and compared, record by record.

Step 4 is the proof: what a reader sees from the translated offset on is what the group has not seen yet, whatever retention or compaction have done
before it. Where it does not hold, or the records are not there (any more, or yet), the partition is refused, never guessed, and nothing is committed for any.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import closing
from itertools import islice, zip_longest

from confluent_kafka import Consumer

from common import permissions, positions, source_candidates, tables, topics
from common.errors import ClusterUnreachable, CopyDiffers, FrontierLost, HangingTransaction, OffsetUntranslatable, ReoError, TopicMissing
from common.frontier import Frontier
from common.group import Group
from common.kafka_clients import admin, reader
from common.records import Consumed, content
from common.routes import Place
from common.settings import Settings
from reo import translated
from reo.comparable import divided
from reo.compared import different
from reo.other_group import OtherGroup
from reo.translated import Row

SEGMENT_MIN = 1000
"""How far back at least the destination is read at a time, in offsets."""


class Translation:
    """One group's offsets on all routes; `rows` is filled by `look`."""

    def __init__(self, settings: Settings, group: str) -> None:
        self.settings = settings
        self.rows: list[Row] = []
        self.applied = False
        self.source_admin, self.destination_admin = (admin(cluster, settings) for cluster in (settings.source, settings.destination))
        self.source_reader, self.destination_reader = (reader(cluster, settings) for cluster in (settings.source, settings.destination))
        self.sources, self.hidden = divided(settings, topics.sources(settings, self.source_admin, settings.number("connect_timeout_s")))
        names = [route.destination_topic for route in self.sources]
        self.destinations = topics.look_up(settings.destination, self.destination_admin, names, settings.number("connect_timeout_s"))
        for name in names:
            if name not in self.destinations:
                raise TopicMissing(f"the destination topic {name} does not exist: nothing was copied to it yet. Start the service")
        self.there = OtherGroup(settings.source, self.source_admin, group)
        self.here = OtherGroup(settings.destination, self.destination_admin, group)
        self.zero_timestamp_ms = tables.zero_timestamp_ms(settings) or 0

    def look(self) -> None:
        """Fill `rows`; changes nothing."""
        pairs = [(route.source(partition), route.destination(partition)) for route, source in self.sources.items()
                 for partition in range(min(source.partitions, self.destinations[route.destination_topic].partitions))]
        committed = self.there.offsets([source for source, _ in pairs])
        now = self.here.offsets([destination for _, destination in pairs])
        frontiers = self._frontiers()
        begins, ends = (ask(self.source_admin, committed) for ask in (positions.beginnings, positions.ends))
        self.rows = [Row(source, destination, committed.get(source), now.get(destination)) for source, destination in pairs]
        for row in self.rows:
            if row.source_offset is not None:
                try:
                    row.destination_offset = self._translated(row, row.source_offset, (begins[row.source], ends[row.source]), frontiers.get(row.source))
                except (CopyDiffers, FrontierLost, OffsetUntranslatable) as refused:
                    row.refused = refused

    def apply(self) -> None:
        """Commit what is further than what the group has at the destination; its broker takes it for a group without members only."""
        wanted = {row.destination: row.destination_offset for row in self.rows if row.moves and row.destination_offset is not None}
        if wanted:
            self.here.commit(wanted)
        self.applied = True

    def _frontiers(self) -> dict[Place, Frontier]:
        """By source partition; of those that have one and speak of these topics."""
        routes = {route.intermediate_topic: route for route in self.sources}
        places = topics.intermediates(self.sources)
        try:
            commits = positions.read_commits(self.destination_reader, places)
        except (ClusterUnreachable, HangingTransaction):
            Group(self.settings, self.destination_admin).commits(places)  # says what a consumer does not: that offsets are undecided
            raise
        found = {}
        for place, commit in commits.items():
            route = routes[place.topic]
            topics.check_identity(commit.frontier.source_identity, self.sources[route])
            if commit.frontier.destination_topic_id == self.destinations[route.destination_topic].topic_id:
                found[route.source(place.partition)] = commit.frontier
        return found

    def _translated(self, row: Row, offset: int, bounds: tuple[int, int], frontier: Frontier | None) -> int:
        """The four steps; an error when one of them is not possible."""
        if frontier is None:
            raise FrontierLost(f"{row.source}: the copy has no frontier for this partition. Start the service, or run `reo recover` where it is lost")
        if not bounds[0] <= offset <= bounds[1]:
            raise OffsetUntranslatable(f"{row.source}: the group stands at offset {offset}, the source has {bounds[0]} to {bounds[1]}: what it would read next "
                                       "is not there (any more). Reset it at the source (kafka-consumer-groups.sh --reset-offsets), then translate again")
        copied = frontier.rule.frontier + 1
        if positions.find_first_visible(self.source_reader, row.source, copied, offset) is not None:
            raise OffsetUntranslatable(f"{row.source}: the group stands at offset {offset}, the copy at {copied}: it has read records that are not copied yet. "
                                       "Let the service catch up, then translate again")
        behind = sum(1 for _ in self._records(self.source_reader, row.source, offset, copied))
        begin, skip, next_there = self._back(row, frontier, behind)
        return self._compared(row, (offset, copied), (begin, next_there), skip) if behind else next_there

    def _back(self, row: Row, frontier: Frontier, behind: int) -> tuple[int, int, int]:
        """From which destination offset on, after skipping how many visible records, `behind` of them lead to the frontier; and the offset after it."""
        place = row.destination
        first = positions.beginnings(self.destination_admin, [place])[place]
        begin = max(first, frontier.destination_known + 1)
        sent = [message.offset() for message in islice(self._records(self.destination_reader, place, begin), frontier.sent)]
        if (begin > frontier.destination_known + 1 or len(sent) < frontier.sent) and not self._rests(row, frontier):
            raise OffsetUntranslatable(f"{place}: retention or compaction took records behind offset {frontier.destination_known}, and the copy moves: "
                                       "where it stands cannot be told now. Translate again when the service is stopped")
        next_there, total = sent[-1] + 1 if sent else begin, len(sent)
        while total < behind and begin > first:
            end, begin = begin, max(first, begin - max(SEGMENT_MIN, 2 * (behind - total)))
            total += sum(1 for _ in self._records(self.destination_reader, place, begin, end))
        if total < behind:
            raise OffsetUntranslatable(f"{place} has {total} records up to the frontier, and the group has {behind} to read there: retention or "
                                       "compaction took the others, or the copy began behind them. What is gone cannot be read at the destination")
        return begin, total - behind, next_there

    def _rests(self, row: Row, frontier: Frontier) -> bool:
        """Whether the frontier is what it was, and all of the destination decided: then all that is there was copied up to it."""
        ends = positions.ends(self.destination_admin, [row.destination])
        return positions.ends(self.destination_admin, [row.destination], committed_only=True) == ends and self._frontiers().get(row.source) == frontier

    def _compared(self, row: Row, source: tuple[int, int], destination: tuple[int, int], skip: int) -> int:
        """The destination's offset of the first of the records, all of which have to be equal."""
        first = -1
        with (closing(self._records(self.source_reader, row.source, *source)) as wanted,
              closing(self._records(self.destination_reader, row.destination, *destination)) as there):
            for left, right in zip_longest(wanted, islice(there, skip, None)):
                if left is None or right is None:
                    raise CopyDiffers(f"{row.destination}: records came or went while they were compared. Translate again")
                if content(left, self.zero_timestamp_ms) != content(right, self.zero_timestamp_ms):
                    raise CopyDiffers(f"{row.destination} is not a copy of what the group has to read: {different(left, right)}. A topic "
                                      "with cleanup.policy=compact can have lost a record on one side only; otherwise `reo verify` says more")
                first = right.offset() if first < 0 else first
        return first

    @staticmethod
    def _records(client: Consumer, place: Place, begin: int, end: int | None = None) -> Generator[Consumed]:
        """The visible records in [begin, end)."""
        with closing(positions.read_visible(client, {place: begin})) as records:
            for message in records:
                if end is not None and message.offset() >= end:
                    return
                yield message


def command(settings: Settings, group: str, apply: bool, as_json: bool) -> int:
    """The sub-command: exit code 0 when nothing was refused."""
    try:
        tables.refuse(settings, "reo offsets", "a table has the source's own offsets, and no consumer groups")
        settings = source_candidates.select_answering(settings)
        permissions.check_permissions(settings, "offsets translate --apply" if apply else "offsets translate", group=group)
        translation = Translation(settings, group)
        translation.look()
        refused: list[ReoError] = [row.refused for row in translation.rows if row.refused]
        if apply and not refused:
            translation.apply()
    except ReoError as error:
        print(f"reo offsets: {error}", file=sys.stderr)
        return error.exit_code
    print((translated.as_json if as_json else translated.as_text)(group, translation.rows, translation.applied))
    refused += translation.hidden
    for refusal in refused:
        print(f"reo offsets: {refusal}", file=sys.stderr)
    return refused[0].exit_code if refused else 0
