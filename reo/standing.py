"""Where every partition of a copy stands, from the clusters alone: no process of the service is asked, so it can be told when none lives.

| what | where it is read |
|---|---|
| the source's end | its offsets |
| how far stage one is | the origin of the newest record on the intermediate topic, or the frontier when all of that was purged |
| how far stage two is | the frontier in the group's commit, as it was before any open transaction |
| what waits for stage one, or for both | the first visible record at the source behind that place, and its timestamp |
| what waits for stage two | the first record on the intermediate topic behind the group's offset, and when it was written there |

Lag in records is in offsets: markers and aborted records between visible ones are counted too, and what is behind the last visible record is not, unless
an open transaction of the source holds it back. Lag in seconds is how long the first waiting record has been there, by its own timestamp at the source, so
records of the past lag by their age; it is unknown when all that waits is behind an open transaction.
`filter.sql` leaves no trace of what it left out: there both lags reach back to the last record that passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import Consumer

from common import frontier as frontiers
from common import machine, positions, topics
from common.errors import ClusterUnreachable, FrontierUnreadable
from common.frontier import Frontier
from common.group import Group
from common.records import Consumed
from common.routes import Place, Route
from common.settings import Settings
from common.topics import Topic
from deduplicator.start import first_source_offset
from replicator.clients import Clients


class Lag(NamedTuple):
    """What waits: how many, and since when the first; `seconds` is None when its timestamp is not known."""

    records: int = 0
    seconds: float | None = 0.0

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {"records": self.records, "seconds": None if self.seconds is None else round(self.seconds, 3)}


@dataclass(frozen=True, slots=True)
class Standing:
    """One partition at one moment. Offsets are the source's, but for what is called otherwise."""

    source: Place
    intermediate: Place
    source_end: int
    written_to: int
    """What stage one writes next."""
    copied_to: int
    """What is copied next."""
    frontier: Frontier | None
    """None: stage two has not begun with this partition."""
    one: Lag
    two: Lag
    both: Lag
    wrote_ms: int | None
    """When stage one wrote the newest record of the intermediate topic, ms since 1970; None when there is none."""
    epoch: int
    """Of the newest run that is seen; 0 for none."""


@dataclass(frozen=True, slots=True)
class Look:
    """All partitions at one moment."""

    at: float
    """Seconds of a clock that only goes forward."""
    sources: dict[Route, Topic]
    standings: list[Standing]
    frontiers: dict[Place, Frontier]
    held_back: dict[Place, int]
    """By source partition with an open transaction, the offset at which the first one begins: nothing from there on can be copied yet."""
    undecided: dict[Place, int]
    """By destination partition with an open transaction, the offset at which the first one begins."""


class Looker:
    """The clients, and what is asked with them; `look` may be called again and again. It changes nothing."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clients = Clients(settings)
        self.group = Group(settings, self.clients.destination_admin)

    def look(self) -> Look:
        """Ask; ClusterUnreachable and the like when something is not answered, FrontierUnreadable when a commit is not ours."""
        settings, timeout_s = self.settings, self.settings.number("connect_timeout_s")
        sources = topics.sources(settings, self.clients.source_admin, timeout_s)
        existing = topics.look_up(settings.destination, self.clients.destination_admin, topics.written_topics(settings, sources), timeout_s)
        pairs = [(route.source(partition), route.intermediate(partition)) for route, source in sources.items() for partition in range(source.partitions)]
        there = [place for _, place in pairs if place.topic in existing and place.partition < existing[place.topic].partitions]
        commits = self._commits(there)
        found, held_back = self._standings(pairs, there, commits)
        outputs = [Place(name, partition) for name in dict.fromkeys(route.destination_topic for route in sources) if name in existing
                   for partition in range(existing[name].partitions)]
        return Look(machine.monotonic(), sources, found, {place: frontier for place, (_, frontier) in commits.items()}, held_back, self._undecided(outputs))

    def _commits(self, places: list[Place]) -> dict[Place, tuple[int, Frontier]]:
        """The intermediate offset that stage two reads next, and its frontier."""
        found = {}
        for place, commit in self.group.commits(places, decided=False).items():
            try:
                found[place] = commit.intermediate_offset, frontiers.decode(commit.metadata)
            except ValueError as reason:
                raise FrontierUnreadable(f"the committed offset of {place} carries no frontier of reo ({reason}): another application commits with group "
                                         f"{self.group.name}, or its offsets were reset. `reo recover` finds the frontier from the data") from None
        return found

    def _standings(self, pairs: list[tuple[Place, Place]], there: list[Place], commits: Mapping[Place, tuple[int, Frontier]]
                   ) -> tuple[list[Standing], dict[Place, int]]:
        source_admin, destination_admin = self.clients.source_admin, self.clients.destination_admin
        ends = positions.ends(source_admin, [source for source, _ in pairs])
        stable = positions.ends(source_admin, ends, committed_only=True)
        begins = positions.beginnings(source_admin, [source for source, _ in pairs])
        between_begins, between_ends = (ask(destination_admin, there) for ask in (positions.beginnings, positions.ends))
        newest = self._firsts(self.clients.frontier_reader, {place: end - 1 for place, end in between_ends.items() if end > between_begins[place]})
        waiting = self._firsts(self.clients.frontier_reader, {place: max(commits[place][0], between_begins[place]) for place in there
                                                              if place in commits and commits[place][0] < between_ends[place]})
        origins = {place: positions.parse_read_up_to(message) or positions.parse_origin(message) for place, message in newest.items() if message}
        copied, written = {}, {}
        for source, place in pairs:
            copied[source] = (commits[place][1].rule.frontier + 1 if place in commits
                              else first_source_offset(self.settings, source_admin, source, added=False))
            origin = origins.get(place)
            current = origin is not None and (place not in commits or origin.epoch >= commits[place][1].rule.epoch)
            written[source] = max(copied[source], origin.source_offset + 1 if origin and current else 0)
        behind = self._behind(copied, begins, ends)
        ahead = self._behind({source: offset for source, offset in written.items() if offset > copied[source]}, begins, ends)
        now_ms = machine.time() * 1000
        found = []
        for source, place in pairs:
            offset, frontier = commits.get(place, (0, None))
            end, last, epoch = ends[source], newest.get(place), origins[place].epoch if place in origins else 0
            found.append(Standing(
                source, place, end, written[source], copied[source], frontier,
                one=_lag(end - written[source], ahead.get(source) if written[source] > copied[source] else behind.get(source), now_ms, end - stable[source]),
                two=_lag(between_ends[place] - max(offset, between_begins[place]), waiting.get(place), now_ms) if place in commits else Lag(),
                both=_lag(end - copied[source], behind.get(source), now_ms, end - stable[source]),
                wrote_ms=last.timestamp()[1] if last else None,
                epoch=max(epoch, frontier.rule.epoch if frontier else 0)))
        return found, {source: offset for source, offset in stable.items() if offset < ends[source]}

    def _behind(self, offsets: Mapping[Place, int], begins: Mapping[Place, int], ends: Mapping[Place, int]) -> dict[Place, Consumed | None]:
        """The first visible record at the source from each offset on."""
        return self._firsts(self.clients.source_reader, {place: max(offset, begins[place]) for place, offset in offsets.items()
                                                         if max(offset, begins[place]) < ends[place]})

    @staticmethod
    def _firsts(reader: Consumer, begins: Mapping[Place, int]) -> dict[Place, Consumed | None]:
        found = positions.read_first_records(reader, begins)
        silent = sorted(begins.keys() - found.keys())
        if silent:
            raise ClusterUnreachable(f"{', '.join(map(str, silent))}: no record and no end of the partition came for {positions.POLL_S:.0f} s. Check that the "
                                     "leaders of these partitions run, then look again")
        return found

    def _undecided(self, places: list[Place]) -> dict[Place, int]:
        ends = positions.ends(self.clients.destination_admin, places)
        stable = positions.ends(self.clients.destination_admin, places, committed_only=True)
        return {place: stable[place] for place, end in ends.items() if stable[place] < end}


def _lag(offsets: int, first: Consumed | None, now_ms: float, held_back: int = 0) -> Lag:
    """Nothing visible waits: no lag, whatever the offsets say, but for those that an open transaction of the source holds back, nobody knows for how long."""
    if offsets <= 0:
        return Lag()
    if first is None:
        return Lag(min(offsets, held_back), None) if held_back > 0 else Lag()
    written_ms = first.timestamp()[1]
    return Lag(offsets, max(0.0, (now_ms - written_ms) / 1000) if written_ms >= 0 else None)


def total(lags: list[Lag]) -> Lag:
    """Of several partitions: all that waits, and the longest that one is known to wait."""
    longest = max((lag.seconds for lag in lags if lag.seconds is not None), default=0.0)
    unknown = any(lag.seconds is None for lag in lags)
    return Lag(sum(lag.records for lag in lags), None if unknown and not longest else longest)
