"""The source offsets where `source.start` lets a copy begin: found for each partition, and checked
for all of them before the first one is used.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from confluent_kafka.admin import AdminClient, OffsetSpec

from common.errors import SettingsInvalid
from common.kafka import partition_offsets, topics
from common.routes import Route, TopicPartition
from common.settings import Settings


def find_first_source_offsets(
    settings: Settings, source_admin: AdminClient, added: Mapping[TopicPartition, bool]
) -> dict[TopicPartition, int]:
    """The source offsets where `source.start` lets these partitions begin; `added`: the partition
    was added later, or its copy was deleted.
    """
    start = settings.start
    from_beginning = [
        tp for tp, is_added in added.items() if start.is_from_beginning(tp.partition, is_added)
    ]
    offsets = partition_offsets.list_beginning_offsets(source_admin, from_beginning)
    others = [tp for tp in added if tp not in offsets]
    if start.kind == "offsets":
        return offsets | {tp: start.offsets[tp.partition] for tp in others}
    # requested first: a record that is written between the two requests is not left out
    offsets |= partition_offsets.list_end_offsets(source_admin, others)
    if start.kind == "timestamp":
        spec = OffsetSpec.for_timestamp(start.timestamp_ms)
        found = partition_offsets.list_offsets(source_admin, others, spec)
        # -1: no record has so late a timestamp yet
        offsets |= {tp: offset for tp, offset in found.items() if offset >= 0}
    return offsets


def check_start_offsets(
    settings: Settings,
    source_admin: AdminClient,
    sources: Mapping[Route, topics.Topic],
    started: Container[TopicPartition],
) -> None:
    """SettingsInvalid when `source.start` names a partition or an offset that the source does not
    have.

    All of them are checked before the first one is used: a frontier that was created stays, even
    when the setting is corrected. Partitions in `started` have a frontier of the present
    destination.
    """
    if not settings.start.offsets:
        return
    if len(sources) > 1:
        raise SettingsInvalid(
            "source.start names partitions, and several topics are copied: start each topic with a"
            " service of its own, or with a timestamp"
        )
    ((route, source),) = sources.items()
    copied = list(map(route.get_source, range(source.partitions)))
    named = {
        TopicPartition(route.source_topic, partition): offset
        for partition, offset in sorted(settings.start.offsets.items())
    }
    offsets = {
        tp: offset for tp, offset in named.items() if route.find_intermediate(tp) not in started
    }
    unknown = [tp.partition for tp in offsets if tp not in copied]
    if unknown:
        raise SettingsInvalid(
            f"source.start names partition {unknown[0]} of {source.name}{route.partitions}, which"
            f" has partitions {copied[0].partition} to {copied[-1].partition}"
        )
    beginnings, ends = partition_offsets.list_bounds(source_admin, offsets)
    out_of_range = [
        f"offset {offset} of {tp}, which has {beginnings[tp]} to {ends[tp]}"
        for tp, offset in offsets.items()
        if not beginnings[tp] <= offset <= ends[tp]
    ]
    if out_of_range:
        raise SettingsInvalid(
            f"source.start asks for {'; '.join(out_of_range)} (the last one is the next record's)"
        )
