"""Whether topics allow an exact copy: no cycle, partitions that match, and configurations that
neither replace nor delete what is copied.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping

from common import partition_mapping
from common.errors import Cycle, TopicsUnfit
from common.kafka import copied_configs
from common.kafka.topics import Topic
from common.partition_range import parse_intermediate_topic
from common.routes import SAME, Route

log = logging.getLogger(__name__)


def find_cycles(copied: Mapping[Route, Topic], existing: Mapping[str, Topic]) -> Iterator[Cycle]:
    """An error for each route whose source topic this service writes."""
    written = {topic.identity for topic in existing.values()}
    for route, source in copied.items():
        own = existing.get(route.destination_topic)
        if own is not None and own.identity == source.identity:
            yield Cycle(
                f"source and destination are the same topic of the same cluster ({source.name},"
                f" cluster {source.cluster_id}): give destination.topic another name, or correct"
                " one of the two bootstrap_servers"
            )
        elif source.identity in written:
            yield Cycle(
                f"{route} reads what this service writes: {source.name} of cluster"
                f" {source.cluster_id} is the destination or the intermediate topic of another"
                " route. Make the rule or pattern narrower, or copy the one with another service"
            )


def find_overlaps(routes: Collection[Route], names: Collection[str]) -> Iterator[TopicsUnfit]:
    """An error for each intermediate topic of another service that copies partitions of a route,
    among the `names` of the destination's topics.

    Two services of all partitions are not told apart here: the one may have had another
    `intermediate.topic` before.
    """
    own = {route.intermediate_topic for route in routes}
    for route in routes:
        for name in sorted(names):
            other = parse_intermediate_topic(name, route.destination_topic)
            if (
                other is None
                or name in own
                or (other.is_whole and route.partitions.is_whole)
                or not other.overlaps(route.partitions)
            ):
                continue
            copied = f"the partitions {other}" if str(other) else "all partitions"
            yield TopicsUnfit(
                f"{route}: the intermediate topic {name} is that of a service that copies {copied}"
                f" to {route.destination_topic}, and one of two that copy the same partition would"
                " write what the other has written",
                "Correct the range. If that service has ended for good, delete its intermediate"
                " topic; `reo recover` then finds the frontiers of this one",
                topic=route.intermediate_topic,
            )


def count_partitions(
    name: str, copied: Mapping[Route, Topic], existing: Mapping[str, Topic]
) -> int:
    """The number of partitions that a destination topic needs; TopicsUnfit when it has too few, or
    an intermediate topic has too many.
    """
    destination, growing = existing.get(name), all(route.mapping == SAME for route in copied)
    for route, source in copied.items():
        intermediate = existing.get(route.intermediate_topic)
        if intermediate is not None and has_more_partitions(intermediate, source):
            raise TopicsUnfit(
                f"the intermediate topic {intermediate.name} has {intermediate.partitions}"
                f" partitions, the source topic {source.partitions}: they have to be equal; name"
                " another intermediate.topic",
                topic=route.intermediate_topic,
            )
        followed = (
            intermediate.partitions if intermediate is not None and growing else source.partitions
        )
        first = route.partitions.first
        least = first + partition_mapping.get_min_partitions(route.mapping, followed)
        if destination is not None and destination.partitions < least:
            needed = "" if route.mapping == SAME else f", the mapping {route.mapping} needs {least}"
            raise TopicsUnfit(
                f"the destination topic {name} has {destination.partitions} partitions, the source"
                f" topic {source.name} {source.total_partitions}{needed}: add partitions to it, or"
                " name another destination.topic",
                topic=route.intermediate_topic,
            )
    if destination is not None and not growing:
        # added partitions move keys to other partitions: the owner of the topic decides that
        return destination.partitions
    return max(
        count_needed(route, source, is_new=destination is None) for route, source in copied.items()
    )


def count_needed(route: Route, source: Topic, is_new: bool) -> int:
    """How many partitions a destination topic needs for a route: one that reo creates has all of
    the source's, also those that other services copy.
    """
    if is_new:
        return partition_mapping.count_new_partitions(route.mapping, source.total_partitions)
    return route.partitions.first + partition_mapping.get_min_partitions(
        route.mapping, source.partitions
    )


def has_more_partitions(intermediate: Topic | None, source: Topic) -> bool:
    """Whether the intermediate topic exists and has more partitions than its source topic."""
    return intermediate is not None and intermediate.partitions > source.partitions


def check_configs(
    route: Route,
    source: copied_configs.Entries,
    intermediate: copied_configs.Entries,
    copy: copied_configs.Entries | None,
) -> None:
    """TopicsUnfit when they allow no exact copy; a warning for a smaller limit on records."""
    source_limit = copied_configs.get_max_message_bytes(source)
    for error in find_unfit_configs(route, source_limit, intermediate, copy):
        raise error
    limit = source_limit if copy is None else copied_configs.get_max_message_bytes(copy)
    if limit < source_limit:
        log.warning(
            "the destination topic takes records of up to %d bytes, the source topic has up to %d:"
            " a larger one will stop the copy",
            limit,
            source_limit,
        )


def find_unfit_configs(
    route: Route,
    source_limit: int,
    intermediate: copied_configs.Entries | None,
    copy: copied_configs.Entries | None,
) -> Iterator[TopicsUnfit]:
    """An error for each configuration of existing topics that prevents an exact copy;
    `source_limit` is the source's largest batch in bytes.
    """
    if (
        intermediate is not None
        and copied_configs.get_max_message_bytes(intermediate) < source_limit
    ):
        yield TopicsUnfit(
            f"the intermediate topic {route.intermediate_topic} takes batches of up to"
            f" {copied_configs.get_max_message_bytes(intermediate)} bytes, the source topic has up"
            f" to {source_limit}: set its max.message.bytes to at least"
            f" {source_limit + copied_configs.ENVELOPE_EXTRA_BYTES}, or run `reo topics --apply`",
            topic=route.intermediate_topic,
        )
    if intermediate is not None and copied_configs.is_compacted(intermediate):
        yield TopicsUnfit(
            f"the intermediate topic {route.intermediate_topic} has"
            f" cleanup.policy={intermediate['cleanup.policy'].value}: brokers refuse envelopes on a"
            " compacted topic, because they have no key. Set it to delete, or run `reo topics"
            " --apply`; then start again",
            topic=route.intermediate_topic,
        )
    if copy is not None and (error := find_replaced_timestamps(route.destination_topic, copy)):
        yield error


def find_replaced_timestamps(name: str, copy: copied_configs.Entries) -> TopicsUnfit | None:
    """An error for a destination topic whose brokers replace every timestamp."""
    if str(copy["message.timestamp.type"].value) == "CreateTime":
        return None
    return TopicsUnfit(
        f"the destination topic {name} has message.timestamp.type=LogAppendTime, which replaces"
        " every timestamp: set it to CreateTime",
        topic=name,
    )
