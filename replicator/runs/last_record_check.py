"""Whether the source still has the history that was copied: its record at the last copied offset
shows it.

A source can lose records (an unclean election, a power failure, a disk restored from an earlier
snapshot) and then grow past the frontier. Its offsets alone show nothing: the topic is the same
one, and it begins and ends where it may. But another record is now at the offset of the last copied
record. The frontier keeps that record's offset and checksum, whatever filter or mapping it went
through. So one record of each partition is read and compared: before each run, and during a run
after every event that can lose records (`replicator.runs.watch`).

Between that record and the frontier no record is visible (`common.envelope`); a visible record
there is a loss too. Where `filter.sql` left records out, the frontier says so, and this is not
checked.

If the record is gone, there is nothing to compare. Retention may have deleted it: then the
partition begins after it. In a compacted topic, compaction may have removed it. Anything else is a
loss.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from common.errors import ClusterUnreachable, RecordRefused, SourceTruncated
from common.frontier import LastRecord
from common.kafka import partition_offsets, topics, visible_records
from common.records import Consumed, compute_message_checksum
from common.routes import TopicPartition, name_some
from common.settings import Settings
from common.source_pool import get_request_timeout_s


class LastCopied(NamedTuple):
    """What a frontier says about the source's history."""

    last_record: LastRecord
    empty_up_to: int
    """No record was visible after the last record up to this source offset."""


def check_source_history(
    settings: Settings,
    client: AdminClient,
    reader: Consumer,
    copied: Mapping[TopicPartition, LastCopied],
    beat: Callable[[], None] = lambda: None,
) -> set[TopicPartition]:
    """The source partitions whose last copied record is still there, the same one; the others no
    longer have theirs, legally. Some at a time are read; `beat` is called in between.

    SourceTruncated with the first partition that differs, ClusterUnreachable when it cannot be told
    now.
    """
    present: set[TopicPartition] = set()
    rows = list(copied.items())
    for begin in range(0, len(rows), visible_records.PARTITIONS_MAX):
        if begin:
            beat()
        part = dict(rows[begin : begin + visible_records.PARTITIONS_MAX])
        present |= _check_history(settings, client, reader, part, beat)
    return present


def _check_history(
    settings: Settings,
    client: AdminClient,
    reader: Consumer,
    copied: Mapping[TopicPartition, LastCopied],
    beat: Callable[[], None],
) -> set[TopicPartition]:
    beginnings, ends = partition_offsets.list_bounds(
        client, copied, committed_only=True, timeout_s=get_request_timeout_s(settings)
    )
    offsets = {
        tp: last.source_offset
        for tp, (last, _) in copied.items()
        if beginnings[tp] <= last.source_offset
    }
    records = visible_records.read_first_records(reader, offsets, ends, beat)
    _check_stable(
        settings,
        client,
        {tp: offset for tp, offset in offsets.items() if tp not in records},
    )
    present = {tp for tp, offset in offsets.items() if _is_at(records[tp], offset)}
    for tp, offset in offsets.items():
        if tp in present:
            _check_same(tp, copied[tp].last_record, records[tp])
        elif ends[tp] <= offset or not topics.is_compacted(
            client, settings.source_cluster, tp.topic
        ):
            raise _build_lost_records_error(
                tp, f"no record at offset {offset} any more, which was the last one copied"
            )
    following = {
        tp: max(last.source_offset + 1, beginnings[tp]) for tp, (last, _) in copied.items()
    }
    _check_nothing_follows(
        settings,
        reader,
        {tp: begin for tp, begin in following.items() if begin <= copied[tp].empty_up_to},
        ends,
        copied,
        beat,
    )
    return present


def _check_nothing_follows(
    settings: Settings,
    reader: Consumer,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    copied: Mapping[TopicPartition, LastCopied],
    beat: Callable[[], None],
) -> None:
    records = visible_records.read_first_records(reader, begins, ends, beat)
    for tp, record in records.items():
        if record is not None and record.offset() <= copied[tp].empty_up_to:
            raise _build_lost_records_error(
                tp,
                f"a record at offset {record.offset()}, where there was none when what is before it"
                " was copied",
            )
    _check_answered(settings, begins.keys() - records.keys())


def _check_stable(
    settings: Settings, client: AdminClient, silent: Mapping[TopicPartition, int]
) -> None:
    """Of partitions whose last copied record cannot be read: a reader beyond the last stable offset
    gets no record and no end of partition.

    What was copied was below the last stable offset, which goes back only with a loss (of a
    transaction's marker, mostly).
    """
    stable = partition_offsets.list_end_offsets(
        client, silent, committed_only=True, timeout_s=get_request_timeout_s(settings)
    )
    for tp, offset in silent.items():
        if stable[tp] <= offset:
            raise _build_lost_records_error(
                tp,
                f"an open transaction at offset {stable[tp]}, before the last one copied, which"
                f" was at {offset}",
            )
    _check_answered(settings, silent.keys())


def _check_answered(settings: Settings, silent: Collection[TopicPartition]) -> None:
    if silent:
        raise ClusterUnreachable(
            f"reading the last copied record of {name_some(sorted(silent))} of the"
            f" {settings.source_cluster.name} cluster: no answer"
        )


def _is_at(record: Consumed | None, offset: int) -> bool:
    return record is not None and record.offset() == offset


def _check_same(tp: TopicPartition, last: LastRecord, record: Consumed | None) -> None:
    assert record is not None
    try:
        checksum = compute_message_checksum(record)
    except RecordRefused:  # a header name that is never copied
        checksum = ""
    if checksum != last.checksum:
        raise _build_lost_records_error(
            tp,
            f"another record at offset {last.source_offset} than the one that was copied from"
            " there, which was the last one",
        )


def _build_lost_records_error(tp: TopicPartition, finding: str) -> SourceTruncated:
    return SourceTruncated(
        f"{tp} has {finding}: the source lost records (an unclean election, or a disk that was"
        " restored), and may have grown again since. The copy has records that the source no"
        " longer has; copy to a new destination.topic",
        topic=tp.topic,
    )
