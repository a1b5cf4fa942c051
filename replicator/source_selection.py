"""Which cluster the next run copies from.

In single mode there is one: it has to be the topic that the frontiers speak of, to have the last records that were copied (`replicator.history`), and all
that comes after them, or the service stops.

With failover every candidate is looked at before every run, also the one that was copied from last. It may be copied from when

1. it answers, and has as many partitions as the copy,
2. it still has what comes after the frontier, and is itself as far as the copy,
3. it is not behind another one by more than `source.offset_lag_threshold`,
4. its topics can hold an exact copy (`topics.prepare`: no cycle, sizes, partitions),
5. its records are the copy's (`replicator.tail_comparison`).

The first that may, beginning with the one copied from last, then round the list, is taken. What 2, 4 or 5 refuse is refused loudly, each time, and is no
measure for the lag of others. When all are refused, none of them silent or only behind, the service ends (SourceRefused). Otherwise it waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

import orjson

from common import permissions, source_candidates, topics
from common.errors import ClusterUnreachable, ReoError, SourceRefused, SourceTruncated, Stop
from common.frontier import Frontier
from common.kafka_clients import admin, reader
from common.machine import Chance
from common.metrics import SOURCE_CONNECTIONS, SOURCE_HIGH_WATERMARK, SOURCE_REFUSED, SOURCE_SWITCHES, SOURCE_UNHEALTHY
from common.routes import Place
from common.settings import Settings
from common.source_candidates import SourceSnapshot, SourceTopics
from replicator import history, tail_comparison
from replicator.clients import SINGLE_RECORD_FETCH

log = logging.getLogger(__name__)
Frontiers = Mapping[Place, Frontier]
"""By intermediate partition."""


class Behind(ReoError):
    """The candidate does not have yet what was copied already; time mends it."""


class SourceSelection:
    """Remembers which candidate is copied from and how often it was another one, and which were refused when it was chosen.

    With a `memory`, a file of the service, also a process that is started again knows the first two: it goes on with the same candidate, and
    `source.max_failovers` counts for the service.
    """

    def __init__(self, settings: Settings, chance: Chance, on_progress: Callable[[], None], state_file: Path | None = None) -> None:
        self.settings = settings
        self.on_progress = on_progress
        self.state_file = state_file
        self.initial = chance.randrange(len(settings.sources)) if settings.values["source.randomize_initial"] else 0
        self.current: int | None = None
        self.refused: set[int] = set()
        self.failovers = 0
        if state_file and state_file.exists():
            self.current, self.failovers = orjson.loads(state_file.read_bytes())

    def select_source(self, prepared: SourceTopics, frontiers: Frontiers) -> SourceSnapshot | None:
        """The source of the next run, or None when none can be copied from now. A Stop when a restart would find the same."""
        if not self.settings.failover:
            return inspect_single_source(self.settings, prepared, frontiers)
        found = source_candidates.take_snapshots(self.settings)
        reasons: dict[int, ReoError] = {number: seen for number, seen in enumerate(found) if isinstance(seen, ReoError)}
        fit = {number: _record_watermark(seen) for number, seen in enumerate(found) if isinstance(seen, SourceSnapshot)}
        chosen = self._first_usable(fit, prepared, frontiers, reasons)
        self.refused = {number for number, reason in reasons.items() if isinstance(reason, Stop) and not isinstance(reason, ClusterUnreachable)}
        for number, reason in reasons.items():
            self._report_refusal(number, reason)
        if chosen is not None:
            self._switch_to(chosen)
            return fit[chosen]
        SOURCE_UNHEALTHY.inc()
        if len(self.refused) == len(found):
            kind = SourceTruncated if all(isinstance(reason, SourceTruncated) for reason in reasons.values()) else SourceRefused
            raise kind("every candidate of the source was refused: "
                                + "; ".join(f"{self._name(number)}: {reason}" for number, reason in sorted(reasons.items())))
        return None

    def _first_usable(self, fit: dict[int, SourceSnapshot], prepared: SourceTopics, frontiers: Frontiers, reasons: dict[int, ReoError]) -> int | None:
        """The first in order that passes; what does not leaves `fit`, with its reason."""
        for number in list(fit):
            self._passes(number, fit, reasons, lambda seen: check_offsets(seen, frontiers))
        while True:
            watermarks = {number: seen.stable_end_sum for number, seen in fit.items()}
            first = first_within_threshold(self._order(), watermarks, self.settings.number("source.offset_lag_threshold"))
            if first is None or self._passes(first, fit, reasons, lambda seen: _check_same(seen, prepared, frontiers, self.on_progress)):
                return first

    def _passes(self, number: int, fit: dict[int, SourceSnapshot], reasons: dict[int, ReoError], check: Callable[[SourceSnapshot], None]) -> bool:
        try:
            check(fit[number])
        except ReoError as reason:
            del fit[number]
            reasons[number] = reason
            return False
        return True

    def _order(self) -> list[int]:
        begin = self.initial if self.current is None else self.current
        return [(begin + step) % len(self.settings.sources) for step in range(len(self.settings.sources))]

    def _switch_to(self, number: int) -> None:
        """Note it; SourceRefused when it is one change too many."""
        SOURCE_CONNECTIONS.labels(self._name(number)).inc()
        if self.current is not None and number != self.current:
            most = self.settings.number("source.max_failovers")
            if 0 <= most <= self.failovers:
                raise SourceRefused(f"{self._name(self.current)} cannot be copied from, and source.max_failovers={most} does not allow to go on "
                                    f"with {self._name(number)}")
            self.failovers += 1
            SOURCE_SWITCHES.labels(self._name(number)).inc()
            log.warning("failover number %d: from %s to %s", self.failovers, self._name(self.current), self._name(number))
        self.current = number
        if self.state_file:
            written = self.state_file.with_suffix(".new")
            written.write_bytes(orjson.dumps([self.current, self.failovers]))
            written.replace(self.state_file)

    def _report_refusal(self, number: int, reason: ReoError) -> None:
        if number in self.refused:
            SOURCE_REFUSED.labels(self._name(number)).inc()
            log.error("source candidate %s is refused: %s", self._name(number), reason)
        else:
            log.warning("source candidate %s cannot be copied from now: %s", self._name(number), reason)

    def _name(self, number: int) -> str:
        return self.settings.sources[number].bootstrap_servers


def first_within_threshold(order: list[int], watermarks: Mapping[int, int], threshold: int) -> int | None:
    """The first in order that is not more than `threshold` behind the furthest; None when there is none at all."""
    furthest = max(watermarks.values(), default=0)
    return next((number for number in order if number in watermarks and furthest - watermarks[number] <= threshold), None)


def inspect_single_source(settings: Settings, prepared: SourceTopics, frontiers: Frontiers) -> SourceSnapshot:
    """Single mode: this one or a Stop. Its identity comes first: the offsets of another topic are of no interest."""
    _check_identities(prepared, frontiers)
    seen = source_candidates.take_snapshot(settings, prepared)
    if isinstance(seen, ReoError):
        raise seen
    _record_watermark(seen)
    try:
        _check_single(seen, frontiers)
    except SourceTruncated:
        again = source_candidates.take_snapshot(settings)  # it can have been recreated between two questions
        if isinstance(again, SourceSnapshot):
            _check_identities(again.sources, frontiers)
        raise
    return seen


def _check_identities(sources: SourceTopics, frontiers: Frontiers) -> None:
    for route, _, frontier in tail_comparison.match_routes(sources, frontiers):
        topics.check_identity(frontier.source_identity, sources[route])


def _check_single(seen: SourceSnapshot, frontiers: Frontiers) -> None:
    for _, place, frontier in tail_comparison.match_routes(seen.sources, frontiers):
        _check_beginning(seen, place, frontier)
        if seen.ends[place] <= frontier.rule.frontier:
            raise SourceTruncated(
                f"{place} ends at offset {seen.ends[place]}, but records up to {frontier.rule.frontier} were copied: the source lost its newest records. "
                "The copy has records that the source no longer has; copy to a new destination.topic")
    check_history(seen, frontiers)


def check_history(seen: SourceSnapshot, frontiers: Frontiers) -> None:
    """SourceTruncated when this cluster does not have the last records that were copied."""
    copied = tail_comparison.list_last_copied(seen.sources, frontiers)
    if not copied:
        return
    consumer = reader(seen.settings.source, seen.settings, **SINGLE_RECORD_FETCH)
    try:
        history.check_history(seen.settings, admin(seen.settings.source, seen.settings), consumer, copied)
    finally:
        consumer.close()


def _record_watermark(seen: SourceSnapshot) -> SourceSnapshot:
    """For the metric: stage one's alone, because what stage two saw at its own start would be taken for the newest while stage one is started again."""
    SOURCE_HIGH_WATERMARK.labels(seen.settings.source.bootstrap_servers).set(seen.stable_end_sum)
    return seen


def _check_beginning(seen: SourceSnapshot, place: Place, frontier: Frontier) -> None:
    wanted, begin = frontier.rule.frontier + 1, seen.beginnings[place]
    if begin > wanted:
        nobody_knows = ", and nothing tells whether filter.sql would have let them pass" if seen.settings.text("filter.sql") else ""
        raise SourceTruncated(
            f"{place} begins at offset {begin} now, but the copy stands at {wanted}: {begin - wanted} "
            f"offsets were deleted at the source before they were copied (retention, or kafka-delete-records){nobody_knows}. What is gone cannot be copied; "
            "to have an exact copy of what is left, copy to a new destination.topic")


def check_offsets(seen: SourceSnapshot, frontiers: Frontiers) -> None:
    """Conditions 1 and 2 of a candidate that answers."""
    for _, place, frontier in tail_comparison.match_routes(seen.sources, frontiers):
        if place not in seen.ends:
            raise Behind(f"{place} does not exist there")
        _check_beginning(seen, place, frontier)
        if seen.ends[place] <= frontier.rule.frontier:
            raise Behind(f"{place} ends there at offset {seen.ends[place]}, and records up to {frontier.rule.frontier} were copied: "
                         "it is behind, was truncated, or was recreated")


def _check_same(seen: SourceSnapshot, prepared: SourceTopics, frontiers: Frontiers, on_progress: Callable[[], None]) -> None:
    """Conditions 4 and 5."""
    if seen.sources != prepared:
        permissions.check(seen.settings, "run replicator")
        topics.prepare(seen.settings)
    check_history(seen, frontiers)
    compared = tail_comparison.compare_tails(seen, frontiers, on_progress)
    log.info("source candidate %s has the copy's last records (%d compared)", seen.settings.source.bootstrap_servers, compared)
