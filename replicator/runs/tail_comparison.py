"""Whether a source's topic is the one that was copied: its last records show it, or it is refused
(`source.mode=failover`).

The destination's last records up to the frontier are compared with the source's last visible
records up to the frontier, from the end backwards, over TAIL_OFFSETS offsets of each partition:
key, value, headers, timestamp. The copy's last record must be exactly at the frontier's offset,
otherwise the source has other offsets. The frontier tells where the copy's last record is:
`sent` visible records after `destination_known`.

With a mapping, a filter, or several sources for one destination, the destination does not have the
source's records in their order, and outside of Kafka it is not read. Then the last copied record of
each partition is compared, whose checksum the frontier has.

A partition proves nothing when nothing of it was copied, or when one side has no records left. A
topic is refused when records of it were written and no partition proves that it is the same.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer

from common.errors import ClusterUnreachable, SourceRefused
from common.frontier import Frontier
from common.kafka import partition_offsets, visible_records
from common.kafka.clients import create_admin_client, create_reader
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.records import Consumed, get_compared_content
from common.routes import Route, TopicPartition
from common.settings import destination_kind
from common.source_pool import SourceSnapshot, get_request_timeout_s
from replicator.runs.last_record_check import LastCopied

TAIL_OFFSETS = 1000
TEXT_MAX = 60
FETCH_OPTIONS = {"fetch.message.max.bytes": 1_048_576, "queued.max.messages.kbytes": 4096}
"""What is fetched beyond the frontier is discarded, and there may be millions of records."""


class TailRecord(NamedTuple):
    """A record and its offset. Records of the two sides are the same when their contents are
    equal.
    """

    offset: int
    content: tuple[object, ...]

    def __str__(self) -> str:
        """One line, shortened."""
        key, value, _, timestamp = self.content
        return f"key={key!r:.{TEXT_MAX}} value={value!r:.{TEXT_MAX}} timestamp={timestamp}"


def match_routes(
    routes: Iterable[Route], frontiers: Mapping[TopicPartition, Frontier]
) -> list[tuple[Route, TopicPartition, Frontier]]:
    """Each frontier with its route and its source partition; `frontiers` is by intermediate
    partition.
    """
    by_topic = {route.intermediate_topic: route for route in routes}
    return [
        (by_topic[tp.topic], by_topic[tp.topic].get_source(tp.partition), frontier)
        for tp, frontier in frontiers.items()
    ]


def list_last_copied(
    routes: Iterable[Route], frontiers: Mapping[TopicPartition, Frontier]
) -> dict[TopicPartition, LastCopied]:
    """By source partition, what was copied last."""
    return {
        tp: LastCopied(last, last.source_offset if last.left_out else frontier.source_offset)
        for _, tp, frontier in match_routes(routes, frontiers)
        if (last := frontier.last_record)
    }


def compare_tails(
    snapshot: SourceSnapshot,
    frontiers: Mapping[TopicPartition, Frontier],
    same_last: Container[TopicPartition],
    on_progress: Callable[[], None],
) -> int:
    """The number of compared records; SourceRefused with the first difference, ClusterUnreachable
    when a cluster does not answer now.

    `same_last`: the source partitions whose last copied record is this source's
    (`replicator.runs.last_record_check`). Where the destination's partition is not the copy of one
    source partition, or lacks records as intended, that record alone is the proof.
    """
    settings, every_row = snapshot.settings, match_routes(snapshot.sources, frontiers)
    is_whole = not (settings.list_filters() or destination_kind.is_outside_kafka(settings))
    rows = [row for row in every_row if is_whole and row[0].is_one_to_one]
    compared, written = Counter[Route](), set()
    for route, tp, frontier in every_row:
        if frontier.last_record and not (is_whole and route.is_one_to_one):
            written.add(route)
            compared[route] += tp in same_last
    client, outputs = (
        create_admin_client(settings.destination_cluster, settings),
        [route.find_destination(tp) for route, tp, _ in rows],
    )
    beginnings, stable_ends = partition_offsets.list_bounds(client, outputs, committed_only=True)
    ours, theirs = (
        create_reader(cluster, settings, **FETCH_OPTIONS)
        for cluster in (settings.destination_cluster, settings.source_cluster)
    )
    try:
        for route, tp, frontier in rows:
            on_progress()
            output = route.find_destination(tp)
            last = (
                frontier.last_record.source_offset
                if frontier.last_record
                else frontier.source_offset
            )
            _check_visible(output, stable_ends[output], frontier)
            copied = _read_copy_tail(
                ours, output, frontier, (beginnings[output], stable_ends[output])
            )
            begin = max(snapshot.beginnings[tp], last + 1 - TAIL_OFFSETS)
            if copied and begin <= last:
                compared[route] += compare_tail(
                    tp, copied, _read_source_tail(snapshot, theirs, tp, begin, last), last
                )
            # offsets alone can be those of aborted records
            if frontier.last_record or frontier.sent or copied:
                written.add(route)
    finally:
        ours.close()
        theirs.close()
    _check_proven(written, compared)
    return compared.total()


def _check_visible(output: TopicPartition, stable_end: int, frontier: Frontier) -> None:
    if stable_end <= frontier.destination_known:
        raise ClusterUnreachable(
            f"{output} is visible up to offset {stable_end} only: the transaction"
            f" of offset {frontier.destination_known} has not ended there yet"
        )


def _check_proven(written: Iterable[Route], compared: Counter[Route]) -> None:
    """SourceRefused when nothing was compared of a topic of which records were written."""
    for route in written:
        if not compared[route]:
            raise SourceRefused(
                f"none of the last copied records of {route} is left to compare: nothing shows that"
                f" {route.source_topic} there is the topic that was copied"
            )


def compare_tail(
    tp: TopicPartition, copied: list[TailRecord], source: list[TailRecord], last_offset: int
) -> int:
    """Compare the tails of one partition from the end backwards; the number of equal pairs, or
    SourceRefused.
    """
    if not source or source[-1].offset != last_offset:
        raise SourceRefused(
            f"{tp} has no record at offset {last_offset}, which was the last one copied"
        )
    pairs = list(zip(reversed(copied), reversed(source), strict=False))
    for ours, theirs in pairs:
        if ours.content != theirs.content:
            raise SourceRefused(
                f"the record of {tp} at offset {theirs.offset} is not the one that was copied:"
                f" there {theirs}, at the destination {ours}"
            )
    return len(pairs)


def _read_copy_tail(
    consumer: Consumer, output: TopicPartition, frontier: Frontier, bounds: tuple[int, int]
) -> list[TailRecord]:
    """Read the copy's last records up to the frontier; `bounds` are the beginning and the last
    stable offset.
    """
    beginning, stable_end = bounds
    begin = max(beginning, frontier.destination_known + 1 - TAIL_OFFSETS)
    records: deque[TailRecord] = deque(maxlen=TAIL_OFFSETS)
    sent = 0
    for message in visible_records.read_visible(
        consumer, {output: begin}, REQUEST_TIMEOUT_S, {output: stable_end}
    ):
        if message.offset() > frontier.destination_known:
            if sent == frontier.sent:
                break
            sent += 1
        records.append(_to_tail_record(message))
    if sent < frontier.sent and beginning <= frontier.destination_known + 1:
        raise ClusterUnreachable(
            f"only {sent} of the {frontier.sent} records written last to {output} are visible:"
            " their transaction has not ended yet"
        )
    return list(records)


def _read_source_tail(
    snapshot: SourceSnapshot, consumer: Consumer, tp: TopicPartition, begin: int, last: int
) -> list[TailRecord]:
    """Read the source's records from `begin` to `last`, as the copy would have them."""
    instead_of_zero = destination_kind.get_zero_timestamp_ms(snapshot.settings) or 0
    records = []
    for message in visible_records.read_visible(
        consumer,
        {tp: begin},
        get_request_timeout_s(snapshot.settings),
        {tp: snapshot.stable_ends[tp]},
    ):
        if message.offset() > last:
            break
        records.append(_to_tail_record(message, instead_of_zero))
    return records


def _to_tail_record(message: Consumed, instead_of_zero: int = 0) -> TailRecord:
    return TailRecord(message.offset(), get_compared_content(message, instead_of_zero))
