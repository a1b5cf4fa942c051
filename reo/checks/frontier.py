"""How far the copy is, and whether a start would continue it: the checks that both stages make
before they begin, without a start.

While the service does not run, the check calls stage two's own start
(`deduplicator.frontiers.start.PartitionStarter`): it reads frontiers, compares them with the
destination's last records, and tells where a copy without a frontier would begin. What it would
commit is only printed. While the service runs, the last records change, and its start has checked
them: then only the frontiers are read. In both cases stage one's check follows: does the source
still have the next records (`replicator.runs.source_selection`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing

from common import source_pool
from common.errors import ClusterUnreachable, ReoError, SourceRefused, Stop
from common.frontier import Frontier
from common.kafka import partition_offsets
from common.kafka.clients import create_admin_client, create_reader
from common.kafka.consumer_group import Group
from common.kafka.route_topics import RouteTopics, find_gone
from common.kafka.source_topics import list_intermediate_partitions
from common.kafka.topics import Topic
from common.kafka.visible_records import read_visible
from common.liveness import Liveness
from common.records import get_headers
from common.routes import Route, TopicPartition, name_some
from common.settings import Settings, destination_kind
from deduplicator.frontiers.committed_frontiers import TransactionUndecided, WorkerGroup
from deduplicator.frontiers.found_partition import FoundPartition
from deduplicator.frontiers.frontier_store import FrontierStore, KafkaFrontierStore
from deduplicator.frontiers.source_start_offsets import (
    check_start_offsets,
    find_first_source_offsets,
)
from deduplicator.frontiers.start import PartitionStarter
from deduplicator.frontiers.stored_frontiers import StoredFrontiers
from deduplicator.own_destination import StoreClient
from deduplicator.partition import Partition
from deduplicator.unwrap import Record
from reo.checks.findings import Finding, report_failure, report_ok, report_warning
from replicator.runs import source_selection, tail_comparison

ABOUT = "frontier"
CONTINUES = "the destination confirms it; the copy would continue at"
CONTINUES_ANEW = "the group lost its commit and the store has it; the copy would continue at"
BEGINS_AGAIN = (
    "it is of a destination that is gone, deleted or recreated since it was copied to; the copy"
    " would begin again at"
)
BEGINS = "there is none yet; the copy would begin at"


def check_frontier(
    settings: Settings,
    state: RouteTopics,
    store: StoreClient | None = None,
    with_source: bool = True,
) -> Iterator[Finding]:
    """The group, each partition's frontier or where it would begin, and the source records after
    it, which only stage one may read; `settings` has all candidates.
    """
    ready = _find_ready(state, has_topics=store is None)
    group = Group(state.settings)
    members = group.describe_members()
    for route, source in state.sources.items():
        if route not in ready:
            yield from _check_first_offsets(state, group, route, source)
    if members.partitions:
        yield report_ok(
            "consumer group",
            f"{group.name} has members ({', '.join(sorted(members.partitions))}): the service"
            " runs, or stopped a moment ago; its start has compared the frontier with the"
            " destination, and it is not compared here",
        )
        copied = set(list_intermediate_partitions(ready))
        frontiers = {
            tp: frontier for tp, frontier in group.list_frontiers().items() if tp in copied
        }
    else:
        yield report_ok("consumer group", f"{group.name} has no members: stage two does not run")
        # raises at once for pending offsets, for which a start would wait
        committed = group.list_commits(list_intermediate_partitions(ready))
        try:
            frontiers, findings = _check_start(state, ready, committed.keys(), store)
        except TransactionUndecided as later:
            yield report_warning(ABOUT, f"it cannot be told now: {later}", "check again")
            return
        yield from findings
    if with_source:
        yield from _check_source(settings, ready, frontiers)


def _find_ready(state: RouteTopics, has_topics: bool) -> dict[Route, Topic]:
    """The routes whose topics exist, the intermediate ones with the source's partitions: only these
    can have a frontier for each partition.
    """
    partitions = {name: topic.partitions for name, topic in state.existing.items()}
    return {
        route: source
        for route, source in state.sources.items()
        if (not has_topics or route.destination_topic in partitions)
        and partitions.get(route.intermediate_topic, 0) >= source.partitions
    }


def _check_first_offsets(
    state: RouteTopics, group: Group, route: Route, source: Topic
) -> Iterator[Finding]:
    """A route that lacks topics, or partitions: these have no frontier in the group."""
    about = f"{ABOUT} of {route.source_topic}"
    partitions = list(map(route.get_intermediate, range(source.partitions)))
    try:
        committed = group.list_commits(partitions, require_stable=False)
        frontiers = group.list_frontiers()
        of_route = {tp: frontiers[tp] for tp in committed.keys() & frontiers.keys()}
        gone = find_gone(state.settings, [route], state.existing, of_route)
        started = committed.keys() - gone
        check_start_offsets(state.settings, state.source_admin, {route: source}, started)
        if not started:  # else somebody deleted the intermediate topic, or the source has grown
            _check_no_copy(state, route, source)
        for how, missing in (
            (BEGINS_AGAIN, [tp for tp in partitions if tp in gone]),
            (BEGINS, [tp for tp in partitions if tp not in committed]),
        ):
            # beside frontiers of other topics: this one came later
            sources = [route.get_source(tp.partition) for tp in missing]
            added = dict.fromkeys(sources, bool(frontiers))
            begins = find_first_source_offsets(state.settings, state.source_admin, added)
            if begins:
                yield _report_offsets(state, about, how, begins)
    except ReoError as error:
        yield report_failure(about, error)


def _check_no_copy(state: RouteTopics, route: Route, source: Topic) -> None:
    """FrontierLost when the destination topic has records already, as a start would say once it has
    created the intermediate topic.
    """
    destination = state.existing.get(route.destination_topic)
    is_table = destination_kind.is_outside_kafka(state.settings)
    if destination is None or is_table or not route.is_one_to_one:
        return
    consumer_group = WorkerGroup(state.settings, Liveness("check"))
    starter = PartitionStarter(
        state.settings,
        {route.intermediate_topic: route},
        consumer_group,
        KafkaFrontierStore(consumer_group),
    )
    missing = [
        FoundPartition(starter, route.get_intermediate(partition), None, destination)
        for partition in range(
            min(source.partitions, route.partitions.count_in(destination.partitions))
        )
    ]
    starter.read_cluster_state(missing, {})
    for found in missing:
        found.decide()


def _check_start(
    state: RouteTopics,
    ready: Mapping[Route, Topic],
    committed: AbstractSet[TopicPartition],
    store: StoreClient | None,
) -> tuple[dict[TopicPartition, Frontier], list[Finding]]:
    """The result of stage two's start: the frontiers by intermediate partition, and the
    findings.
    """
    routes = {route.intermediate_topic: route for route in ready}
    consumer_group = WorkerGroup(state.settings, Liveness("check"))
    frontier_store: FrontierStore = KafkaFrontierStore(consumer_group)
    known = set(committed)
    if store:
        stored = StoredFrontiers(state.settings, store, routes, consumer_group)
        frontier_store = stored
        known |= stored.read_positions(set(routes)).keys() if stored.has_positions else set()
    starter = PartitionStarter(state.settings, routes, consumer_group, frontier_store)
    started = {
        partition.tp: partition
        for partition in starter.start_partitions(list_intermediate_partitions(ready))
    }
    findings = []
    for route, source in ready.items():
        about = f"{ABOUT} of {route.source_topic}"
        next_offsets: dict[str, dict[TopicPartition, int]] = {}
        for tp in map(route.get_intermediate, range(source.partitions)):
            how = BEGINS
            if started[tp].replaced:
                how = BEGINS_AGAIN
            elif not started[tp].is_uncommitted:
                how = CONTINUES
            elif tp in known:
                how = CONTINUES_ANEW
            next_offset = started[tp].frontier.source_offset + 1
            next_offsets.setdefault(how, {})[route.get_source(tp.partition)] = next_offset
        findings += [
            _report_offsets(state, about, how, offsets) for how, offsets in next_offsets.items()
        ]
        findings += _check_surplus(state, route, started.values())
    return {tp: partition.frontier for tp, partition in started.items()}, findings


def _check_surplus(
    state: RouteTopics, route: Route, started: Iterable[Partition]
) -> Iterator[Finding]:
    """Records at the destination that the frontier does not count: compared with the next source
    records, where records are copied as they are.
    """
    about = f"{ABOUT} of {route.source_topic}"
    with_surplus = {
        partition.source_tp: (partition.surplus, partition.frontier.source_offset + 1)
        for partition in started
        if partition.route == route and partition.surplus
    }
    if not with_surplus:
        return
    count = sum(len(surplus.records) for surplus, _ in with_surplus.values())
    is_copied_unchanged = not (state.settings.list_filters() or state.settings.provenance.header)
    try:
        for source, (surplus, begin) in with_surplus.items() if is_copied_unchanged else ():
            surplus.check_matching(_read_source_records(state.settings, source, begin))
    except ReoError as error:
        yield report_failure(about, error)
        return
    yield report_warning(
        about,
        f"the destination has {count} records after the frontier: those of a torn transaction, or"
        " of another producer",
        "the service compares them with the next source records, and stops with exit code 25 if"
        " they differ",
    )


def _read_source_records(
    settings: Settings, source: TopicPartition, begin: int
) -> Iterator[Record]:
    reader = create_reader(settings.source_cluster, settings)
    with closing(read_visible(reader, {source: begin})) as messages:
        for message in messages:
            headers = get_headers(message) or None
            yield message.key(), message.value(), headers, message.timestamp()[1]


def _check_source(
    settings: Settings, sources: Mapping[Route, Topic], frontiers: Mapping[TopicPartition, Frontier]
) -> Iterator[Finding]:
    """Whether the source, or each of its candidates, still has the records after the frontiers."""
    if not frontiers:
        return
    about = "source after the frontier"
    if not settings.failover:
        try:
            source_selection.inspect_single_source(settings, dict(sources), frontiers)
            seen = "it is the topic that was copied, and has all records that are not copied yet"
            yield report_ok(about, seen)
        except ReoError as error:
            yield report_failure(about, error)
        return
    refused = 0
    candidates = source_pool.take_snapshots(settings)
    for cluster, candidate in zip(settings.sources, candidates, strict=True):
        about = f"source candidate {cluster.bootstrap_servers}"
        try:
            if isinstance(candidate, ReoError):
                raise candidate
            source_selection.check_offsets(candidate, frontiers)
            same_last = source_selection.check_copied_history(candidate, frontiers)
            compared = tail_comparison.compare_tails(candidate, frontiers, same_last, lambda: None)
            yield report_ok(about, f"has the copy's last records ({compared} compared)")
        except ReoError as error:
            is_final = isinstance(error, Stop) and not isinstance(error, ClusterUnreachable)
            refused += is_final
            yield report_warning(
                about,
                f"{'refused' if is_final else 'not usable now'}: {error}",
                "the copy goes on from another candidate, if there is one",
            )
    if refused == len(settings.sources):
        yield report_failure(
            "source candidates",
            SourceRefused("all of them are refused, each for the reason above. Repair one of them"),
        )


def _report_offsets(
    state: RouteTopics, about: str, how: str, offsets: Mapping[TopicPartition, int]
) -> Finding:
    seen = f"{how} {_describe_offsets(state, offsets)}"
    if how != BEGINS_AGAIN:
        return report_ok(about, seen)
    return report_warning(
        about, seen, "find out first who deleted the topic, if that was not intended"
    )


def _describe_offsets(state: RouteTopics, offsets: Mapping[TopicPartition, int]) -> str:
    """The source offsets of the first partitions, and how many offsets there are to copy from
    there.
    """
    client = create_admin_client(state.settings.source_cluster, state.settings)
    ends = partition_offsets.list_end_offsets(client, offsets)
    left = sum(max(0, ends[tp] - offset) for tp, offset in offsets.items())
    shown = name_some([f"{tp.partition}={offset}" for tp, offset in sorted(offsets.items())])
    return f"source offsets {shown}; {left} offsets to copy"
