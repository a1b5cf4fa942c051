"""Is a candidate's topic the one that was copied? Its records say so, or it is refused (`source.mode=failover`).

The destination's last records up to the frontier are the copy's; the candidate's last visible records up to the frontier have to be the same ones,
walked backwards in step, over TAIL_OFFSETS offsets of each partition: key, value, headers, timestamp. And the copy's last record has to be exactly
at the frontier's offset, or the offsets are not the same. Where the copy's last record is, the frontier says: `sent` visible records after
`destination_known`.

A partition of which nothing was copied, or of which one side has nothing left, says nothing; a topic of which no partition says anything
although records were written is refused: nothing shows that it is the same.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer

from common import positions, tables
from common.errors import ClusterUnreachable, SourceRefused
from common.frontier import Frontier
from common.kafka_clients import REQUEST_TIMEOUT_S, admin, reader
from common.records import Consumed, content
from common.routes import Place, Route
from common.source_candidates import SourceSnapshot, request_timeout_s
from replicator.history import LastCopied

TAIL_OFFSETS = 1000
TEXT_MAX = 60
FETCH_OPTIONS = {"fetch.message.max.bytes": 1_048_576, "queued.max.messages.kbytes": 4096}
"""What is fetched beyond the frontier is thrown away, and there may be millions."""


class TailRecord(NamedTuple):
    """A record and where it is; two are the same one at the two sides when their contents are."""

    offset: int
    content: tuple[object, ...]

    def __str__(self) -> str:
        """In one line, shortened."""
        key, value, _, timestamp = self.content
        return f"key={key!r:.{TEXT_MAX}} value={value!r:.{TEXT_MAX}} timestamp={timestamp}"


def match_routes(routes: Iterable[Route], frontiers: Mapping[Place, Frontier]) -> list[tuple[Route, Place, Frontier]]:
    """Each frontier, which is known by its intermediate partition, with its route and its source partition."""
    known = {route.intermediate_topic: route for route in routes}
    return [(known[place.topic], known[place.topic].source(place.partition), frontier) for place, frontier in frontiers.items()]


def list_last_copied(routes: Iterable[Route], frontiers: Mapping[Place, Frontier]) -> dict[Place, LastCopied]:
    """By source partition, what was copied last."""
    return {place: LastCopied(last, last.source_offset if last.left_out else frontier.rule.frontier)
            for _, place, frontier in match_routes(routes, frontiers) if (last := frontier.last_record)}


def compare_tails(there: SourceSnapshot, frontiers: Mapping[Place, Frontier], on_progress: Callable[[], None]) -> int:
    """How many records were held against each other; SourceRefused with the first difference, ClusterUnreachable when it cannot be told now."""
    settings, rows = there.settings, match_routes(there.sources, frontiers)
    beginnings = positions.beginnings(admin(settings.destination, settings), [route.destination(place.partition) for route, place, _ in rows])
    ours, theirs = (reader(cluster, settings, **FETCH_OPTIONS) for cluster in (settings.destination, settings.source))
    compared, written = Counter[Route](), set()
    try:
        for route, place, frontier in rows:
            on_progress()
            output = route.destination(place.partition)
            last = frontier.last_record.source_offset if frontier.last_record else frontier.rule.frontier
            copied = _read_copy_tail(ours, output, frontier, beginnings[output])
            begin = max(there.beginnings[place], last + 1 - TAIL_OFFSETS)
            if copied and begin <= last:
                compared[route] += compare_tail(place, copied, _read_candidate_tail(there, theirs, place, begin, last), last)
            if frontier.destination_known >= 0 or frontier.sent:
                written.add(route)
    finally:
        ours.close()
        theirs.close()
    for route in written:
        if not compared[route]:
            raise SourceRefused(f"none of the last records of {route.destination_topic} are left on both sides: nothing shows that {route.source_topic} there "
                                "is the topic that was copied")
    return compared.total()


def compare_tail(place: Place, copied: list[TailRecord], there: list[TailRecord], frontier: int) -> int:
    """Two ends of one partition in step, backwards; how many pairs are equal, or SourceRefused."""
    if not there or there[-1].offset != frontier:
        raise SourceRefused(f"{place} has no record at offset {frontier}, which was the last one copied")
    pairs = list(zip(reversed(copied), reversed(there), strict=False))
    for ours, theirs in pairs:
        if ours.content != theirs.content:
            raise SourceRefused(f"the record of {place} at offset {theirs.offset} is not the one that was copied: there {theirs}, at the destination {ours}")
    return len(pairs)


def _read_copy_tail(consumer: Consumer, output: Place, frontier: Frontier, beginning: int) -> list[TailRecord]:
    """The copy's last records up to the frontier."""
    begin = max(beginning, frontier.destination_known + 1 - TAIL_OFFSETS)
    found: deque[TailRecord] = deque(maxlen=TAIL_OFFSETS)
    after = 0
    for message in positions.visible(consumer, {output: begin}, REQUEST_TIMEOUT_S):
        if message.offset() > frontier.destination_known:
            if after == frontier.sent:
                break
            after += 1
        found.append(_to_tail_record(message))
    if after < frontier.sent and beginning <= frontier.destination_known + 1:
        raise ClusterUnreachable(f"{output} shows {after} of the {frontier.sent} records that were written last: they are not decided yet")
    return list(found)


def _read_candidate_tail(there: SourceSnapshot, consumer: Consumer, place: Place, begin: int, last: int) -> list[TailRecord]:
    """The candidate's records from `begin` to `last`, as they would be written."""
    instead_of_zero = tables.zero_timestamp_ms(there.settings) or 0
    found = []
    for message in positions.visible(consumer, {place: begin}, request_timeout_s(there.settings)):
        if message.offset() > last:
            break
        found.append(_to_tail_record(message, instead_of_zero))
    return found


def _to_tail_record(message: Consumed, instead_of_zero: int = 0) -> TailRecord:
    return TailRecord(message.offset(), content(message, instead_of_zero))
