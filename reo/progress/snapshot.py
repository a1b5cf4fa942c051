"""A snapshot of the progress of every partition of a copy, from the clusters alone: it asks no
process of the service, so it also works when none runs.

| what | where it is read | |---|---| | the source's end | its offsets | | the progress of stage one
| the origin of the newest record on the intermediate topic, or the frontier when all records there
were purged | | the progress of stage two | the frontier in the group's commit, as it was before any
open transaction | | what waits for stage one, or for both | the first visible record at the source
from that offset on, and its timestamp | | what waits for stage two | the first record on the
intermediate topic from the group's offset on, and when it was written there |

Lag in records is counted in offsets: markers and aborted records between visible ones are included;
what is behind the last visible record is not, unless an open transaction of the source holds it
back. Lag in seconds is how long the first waiting record has been there, by its own timestamp at
the source, so old records lag by their age; it is unknown when all that waits is behind an open
transaction. `filter.sql` leaves no trace of the records that it drops: with it both lags reach back
to the last record that passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import Consumer

from common import runtime
from common.errors import ClusterUnreachable
from common.frontier import Frontier
from common.kafka import positions, topics, visible_records
from common.kafka.consumer_group import Group
from common.kafka.intermediate_records import parse_origin, parse_read_up_to
from common.kafka.topics import Topic
from common.records import Consumed
from common.routes import Place, Route
from common.settings import Settings
from deduplicator.start_offsets import find_first_source_offset
from replicator.clients import Clients


class Lag(NamedTuple):
    """How many records wait, and for how long the first one; `seconds` is None when its timestamp
    is not known.
    """

    records: int = 0
    seconds: float | None = 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "records": self.records,
            "seconds": None if self.seconds is None else round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """One partition at one moment. Offsets are source offsets."""

    source: Place
    intermediate: Place
    source_end: int
    stage_one_offset: int
    """The source offset that stage one writes next."""
    stage_two_offset: int
    """The source offset that stage two copies next."""
    frontier: Frontier | None
    """None when stage two has not begun with this partition."""
    stage_one_lag: Lag
    stage_two_lag: Lag
    copy_lag: Lag
    last_written_ms: int | None
    """When stage one wrote the newest record on the intermediate topic, in ms since 1970; None when
    there is no record.
    """
    epoch: int
    """Of the newest run that is visible; 0 when there is none."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All partitions at one moment."""

    taken_at_s: float
    """By a monotonic clock."""
    sources: dict[Route, Topic]
    partitions: list[PartitionProgress]
    frontiers: dict[Place, Frontier]
    open_at_source: dict[Place, int]
    """By source partition with open transactions: the offset at which the first one begins. Records
    from there on cannot be copied yet.
    """
    open_at_destination: dict[Place, int]
    """By destination partition with open transactions: the offset at which the first one begins."""


class Inspector:
    """Has the clients and asks the clusters; `take_snapshot` may be called repeatedly. It changes
    nothing.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clients = Clients(settings)
        self.group = Group(settings, self.clients.destination_admin)

    def take_snapshot(self) -> Snapshot:
        """Ask both clusters; ClusterUnreachable and similar errors when one does not answer,
        FrontierUnreadable when a commit is not reo's.
        """
        settings, timeout_s = self.settings, self.settings.connect_timeout_s
        sources = topics.describe_sources(settings, self.clients.source_admin, timeout_s)
        existing = topics.look_up(
            settings.destination_cluster,
            self.clients.destination_admin,
            topics.list_written_topics(settings, sources),
            timeout_s,
        )
        pairs = [
            (route.source(partition), route.intermediate(partition))
            for route, source in sources.items()
            for partition in range(source.partitions)
        ]
        intermediates = [
            place
            for _, place in pairs
            if place.topic in existing and place.partition < existing[place.topic].partitions
        ]
        commits = self.group.read_commits(intermediates)
        partitions, open_at_source = self._read_progress(pairs, intermediates, commits)
        outputs = [
            Place(name, partition)
            for name in dict.fromkeys(route.destination_topic for route in sources)
            if name in existing
            for partition in range(existing[name].partitions)
        ]
        frontiers_by_place = {place: commit.frontier for place, commit in commits.items()}
        return Snapshot(
            runtime.monotonic(),
            sources,
            partitions,
            frontiers_by_place,
            open_at_source,
            self._find_open_transactions(outputs),
        )

    def _read_progress(
        self,
        pairs: list[tuple[Place, Place]],
        intermediates: list[Place],
        commits: Mapping[Place, positions.GroupCommit],
    ) -> tuple[list[PartitionProgress], dict[Place, int]]:
        source_admin, destination_admin = self.clients.source_admin, self.clients.destination_admin
        ends = positions.list_end_offsets(source_admin, [source for source, _ in pairs])
        stable = positions.list_end_offsets(source_admin, ends, committed_only=True)
        begins = positions.list_beginning_offsets(source_admin, [source for source, _ in pairs])
        intermediate_begins, intermediate_ends = (
            ask(destination_admin, intermediates)
            for ask in (positions.list_beginning_offsets, positions.list_end_offsets)
        )
        newest = self._read_firsts(
            self.clients.frontier_reader,
            {
                place: end - 1
                for place, end in intermediate_ends.items()
                if end > intermediate_begins[place]
            },
        )
        unread = {
            place: commit.intermediate_offset
            for place, commit in commits.items()
            if commit.intermediate_offset < intermediate_ends[place]
        }
        waiting = self._read_firsts(
            self.clients.frontier_reader,
            {place: max(offset, intermediate_begins[place]) for place, offset in unread.items()},
        )
        origins = {
            place: parse_read_up_to(message) or parse_origin(message)
            for place, message in newest.items()
            if message
        }
        # the next offset of stage two and of stage one, by source partition
        copied, written = {}, {}
        for source, place in pairs:
            copied[source] = (
                commits[place].frontier.rule.frontier + 1
                if place in commits
                else find_first_source_offset(self.settings, source_admin, source, added=False)
            )
            origin = origins.get(place)
            is_current = origin is not None and (
                place not in commits or origin.epoch >= commits[place].frontier.rule.epoch
            )
            written[source] = max(
                copied[source], origin.source_offset + 1 if origin and is_current else 0
            )
        first_not_copied = self._read_waiting(copied, begins, ends)
        first_not_written = self._read_waiting(
            {source: offset for source, offset in written.items() if offset > copied[source]},
            begins,
            ends,
        )
        now_ms = runtime.time() * 1000
        partitions = []
        for source, place in pairs:
            commit = commits.get(place)
            offset, frontier = (
                (commit.intermediate_offset, commit.frontier) if commit else (0, None)
            )
            end, last, epoch = (
                ends[source],
                newest.get(place),
                origins[place].epoch if place in origins else 0,
            )
            first_for_stage_one = (
                first_not_written.get(source)
                if written[source] > copied[source]
                else first_not_copied.get(source)
            )
            partitions.append(
                PartitionProgress(
                    source,
                    place,
                    end,
                    written[source],
                    copied[source],
                    frontier,
                    stage_one_lag=_lag(
                        end - written[source], first_for_stage_one, now_ms, end - stable[source]
                    ),
                    stage_two_lag=(
                        _lag(
                            intermediate_ends[place] - max(offset, intermediate_begins[place]),
                            waiting.get(place),
                            now_ms,
                        )
                        if place in commits
                        else Lag()
                    ),
                    copy_lag=_lag(
                        end - copied[source],
                        first_not_copied.get(source),
                        now_ms,
                        end - stable[source],
                    ),
                    last_written_ms=last.timestamp()[1] if last else None,
                    epoch=max(epoch, frontier.rule.epoch if frontier else 0),
                )
            )
        return partitions, {
            source: offset for source, offset in stable.items() if offset < ends[source]
        }

    def _read_waiting(
        self, offsets: Mapping[Place, int], begins: Mapping[Place, int], ends: Mapping[Place, int]
    ) -> dict[Place, Consumed | None]:
        """The first visible record at the source from each offset on."""
        return self._read_firsts(
            self.clients.source_reader,
            {
                place: max(offset, begins[place])
                for place, offset in offsets.items()
                if max(offset, begins[place]) < ends[place]
            },
        )

    @staticmethod
    def _read_firsts(reader: Consumer, begins: Mapping[Place, int]) -> dict[Place, Consumed | None]:
        records = visible_records.read_first_records(reader, begins)
        silent = sorted(begins.keys() - records.keys())
        if silent:
            raise ClusterUnreachable(
                f"{', '.join(map(str, silent))}: no record and no end of the partition came for"
                f" {visible_records.POLL_S:.0f} s. Check that the leaders of these partitions run,"
                " then run the command again"
            )
        return records

    def _find_open_transactions(self, places: list[Place]) -> dict[Place, int]:
        ends = positions.list_end_offsets(self.clients.destination_admin, places)
        stable = positions.list_end_offsets(
            self.clients.destination_admin, places, committed_only=True
        )
        return {place: stable[place] for place, end in ends.items() if stable[place] < end}


def _lag(offsets: int, first: Consumed | None, now_ms: float, held_back: int = 0) -> Lag:
    """No lag when no visible record waits, whatever the offsets are, except for offsets that an
    open transaction holds back, for an unknown time.
    """
    if offsets <= 0:
        return Lag()
    if first is None:
        return Lag(min(offsets, held_back), None) if held_back > 0 else Lag()
    written_ms = first.timestamp()[1]
    return Lag(offsets, max(0.0, (now_ms - written_ms) / 1000) if written_ms >= 0 else None)


def total_lag(lags: list[Lag]) -> Lag:
    """Of several partitions: the sum of the records, and the longest known time."""
    longest = max((lag.seconds for lag in lags if lag.seconds is not None), default=0.0)
    unknown = any(lag.seconds is None for lag in lags)
    return Lag(sum(lag.records for lag in lags), None if unknown and not longest else longest)
