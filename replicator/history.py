"""Does the source still have the history that was copied? Its record at the last copied offset says so.

A source that loses records (an unclean election, a power failure, a disk restored from an earlier snapshot) and then grows
past the frontier looks whole from its offsets alone: the topic is the same one, it begins and ends where it may. But at the
offset of the last copied record there is another one now. The frontier keeps that record's offset and checksum, whatever
filter or mapping it went through, so one record of each partition is read and compared: before each run, and while a run
lives after everything with which a loss can begin (`replicator.watch`).

Between that record and the frontier there is nothing to see (`common.read_up_to`): a visible record there is a loss too. Where
`filter.sql` has left records out, the frontier says so, and it is not asked.

Where the record is gone there is nothing to compare. Retention may have taken it, then the partition begins behind it, and
compaction may have, in a topic that is compacted. Anything else is a loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from common import positions, topics
from common.errors import ClusterUnreachable, RecordRefused, SourceTruncated
from common.frontier import LastRecord
from common.records import Consumed, message_checksum
from common.routes import Place
from common.settings import Settings
from common.source_candidates import request_timeout_s


class LastCopied(NamedTuple):
    """What a frontier says of the source's history."""

    last_record: LastRecord
    empty_up_to: int
    """No record was visible behind it up to this source offset."""


def check_history(settings: Settings, client: AdminClient, reader: Consumer, copied: Mapping[Place, LastCopied]) -> None:
    """By source partition; SourceTruncated with the first one that differs, ClusterUnreachable when it cannot be told now."""
    records = _firsts(settings, reader, {place: last.source_offset for place, (last, _) in copied.items()})
    missing = {place for place, (last, _) in copied.items() if not _is_at(records[place], last.source_offset)}
    begins, ends = (ask(client, missing, timeout_s=request_timeout_s(settings)) for ask in (positions.beginnings, positions.ends))
    for place, (last, _) in copied.items():
        if place not in missing:
            _check_same(place, last, records[place])
        elif begins[place] > last.source_offset:
            continue
        elif ends[place] <= last.source_offset or not topics.compacted(client, settings.source, place.topic):
            raise _lost(place, f"no record at offset {last.source_offset} any more, which was the last one copied")
    following = {place: max(last.source_offset + 1, begins.get(place, 0)) for place, (last, _) in copied.items()}
    _check_nothing_follows(settings, reader, {place: begin for place, begin in following.items() if begin <= copied[place].empty_up_to}, copied)


def _check_nothing_follows(settings: Settings, reader: Consumer, begins: Mapping[Place, int], copied: Mapping[Place, LastCopied]) -> None:
    for place, record in _firsts(settings, reader, begins).items():
        if record is not None and record.offset() <= copied[place].empty_up_to:
            raise _lost(place, f"a record at offset {record.offset()}, where there was none when what is before it was copied")


def _firsts(settings: Settings, reader: Consumer, begins: Mapping[Place, int]) -> dict[Place, Consumed | None]:
    found = positions.firsts(reader, begins)
    for place in begins:
        if place not in found:
            raise ClusterUnreachable(f"reading the last copied record of {place} of the {settings.source.name} cluster: no answer")
    return found


def _is_at(record: Consumed | None, offset: int) -> bool:
    return record is not None and record.offset() == offset


def _check_same(place: Place, last: LastRecord, record: Consumed | None) -> None:
    assert record is not None
    try:
        found = message_checksum(record)
    except RecordRefused:  # a header's name that is never copied
        found = ""
    if found != last.checksum:
        raise _lost(place, f"another record at offset {last.source_offset} than the one that was copied from there, which was the last one")


def _lost(place: Place, what: str) -> SourceTruncated:
    return SourceTruncated(
        f"{place} has {what}: the source lost records (an unclean election, or a disk that was restored), and may have grown "
        "again since. The copy has records that the source no longer has; copy to a new destination.topic")
