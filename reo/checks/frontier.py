"""How far the copy is, and whether a start would go on from there: what both stages ask before they begin, asked without beginning.

While the service does not run, stage two's own start is asked (`deduplicator.start.Starter`), which reads frontiers, holds them against the
destination's last records and says where a copy without one would begin; what it would commit is only shown. While it runs, its last records are on
the move, and its start has looked at them: then only its frontiers are read. Either way stage one's question follows: does the source still have
what comes next (`replicator.source_selection`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from common import positions, source_candidates
from common.errors import ClusterUnreachable, ReoError, SourceRefused, Stop
from common.frontier import Frontier
from common.group import Group
from common.kafka_clients import admin
from common.pulse import Pulse
from common.routes import Place, Route
from common.settings import Settings
from common.topics import Topic, intermediates
from deduplicator.keeper import InGroup, KafkaKeeper
from deduplicator.start import Starter, check_offsets, first_source_offset
from reo.checks.findings import Finding, failed, ok, warning
from reo.checks.topics import Stand
from replicator import source_selection, tail_comparison

if TYPE_CHECKING:
    from reo.checks.database import Database

ABOUT = "frontier"
GOES_ON = "the destination has what it says; the copy would go on at"
GOES_ON_ANEW = "the intermediate topic lost what was not read, the group what the database has, or the destination was recreated; the copy would go on at"
BEGINS = "there is none yet; the copy would begin at"


def check(settings: Settings, found: Stand, database: Database | None = None) -> Iterator[Finding]:
    """The group, every partition's frontier or where it would begin, and the source behind it; `settings` name all candidates."""
    ready = found.ready()
    group = Group(found.settings, found.destination_admin)
    members = group.members()
    for route, source in found.sources.items():
        if route not in ready:
            yield from _begins(found, route, source)
    try:
        if members.partitions:
            yield ok("consumer group", f"{group.name} has members ({', '.join(sorted(members.partitions))}): the service runs")
            frontiers = {place: frontier for place, frontier in group.frontiers().items() if place in set(intermediates(ready))}
        else:
            yield ok("consumer group", f"{group.name} has no members: stage two does not run")
            committed = group.commits(intermediates(ready))  # says of undecided offsets at once what a start waits for
            frontiers, said = _started(found, ready, committed.keys(), database)
            yield from said
    except ReoError as refused:
        yield failed(ABOUT, refused)
        return
    yield from _source(settings, ready, frontiers)


def _begins(found: Stand, route: Route, source: Topic) -> Iterator[Finding]:
    """Of a route without topics: nothing was copied."""
    about = f"{ABOUT} of {route.source_topic}"
    places = list(map(route.source, range(source.partitions)))
    try:
        check_offsets(found.settings, found.source_admin, {route: source}, ())
        added = bool(Group(found.settings, found.destination_admin).frontiers())  # of other topics: this one came later
        begins = {place: first_source_offset(found.settings, found.source_admin, place, added) for place in places}
        yield ok(about, f"{BEGINS} {_listed(begins)}; {_left(found, begins)}")
    except ReoError as wrong:
        yield failed(about, wrong)


def _started(found: Stand, ready: Mapping[Route, Topic], committed: AbstractSet[Place],
             database: Database | None) -> tuple[dict[Place, Frontier], list[Finding]]:
    """What stage two's start finds; the frontiers by intermediate partition."""
    in_group, routes = InGroup(found.settings, Pulse("check")), {route.intermediate_topic: route for route in ready}
    in_tables = database.keeper(routes, in_group) if database else None
    start = Starter(found.settings, routes, in_group, in_tables or KafkaKeeper(in_group)).start(intermediates(ready))
    known = committed | (in_tables.held.keys() if in_tables else set())
    said = []
    for route, source in ready.items():
        about = f"{ABOUT} of {route.source_topic}"
        groups: dict[str, dict[Place, int]] = {}
        for place in map(route.intermediate, range(source.partitions)):
            how = GOES_ON if place not in start.made else GOES_ON_ANEW if place in known else BEGINS
            groups.setdefault(how, {})[route.source(place.partition)] = start.assigned[place].frontier.rule.frontier + 1
        said += [ok(about, f"{how} {_listed(offsets)}; {_left(found, offsets)}") for how, offsets in groups.items()]
        surplus = (start.assigned[place].surplus for place in map(route.intermediate, range(source.partitions)))
        torn = sum(len(there.records) for there in surplus if there)
        if torn:
            said.append(warning(about, f"{torn} records are at the destination behind the frontier: a torn transaction's, or somebody else's",
                                "the start holds them against the next records, and stops with exit code 25 if they are not these"))
    return {place: state.frontier for place, state in start.assigned.items()}, said


def _source(settings: Settings, sources: Mapping[Route, Topic], frontiers: Mapping[Place, Frontier]) -> Iterator[Finding]:
    """Whether the source, or which candidate of it, still has what comes after the frontiers."""
    if not frontiers:
        return
    about = "source behind the frontier"
    if not settings.failover:
        try:
            source_selection.inspect_single_source(settings, dict(sources), frontiers)
            yield ok(about, "it is the topic that was copied, and has all that is not copied yet")
        except ReoError as wrong:
            yield failed(about, wrong)
        return
    refused = 0
    for cluster, seen in zip(settings.sources, source_candidates.take_snapshots(settings), strict=True):
        about = f"source candidate {cluster.bootstrap_servers}"
        try:
            if isinstance(seen, ReoError):
                raise seen
            source_selection.check_offsets(seen, frontiers)
            source_selection.check_history(seen, frontiers)
            yield ok(about, f"has the copy's last records ({tail_comparison.compare_tails(seen, frontiers, lambda: None)} compared)")
        except ReoError as wrong:
            for_good = isinstance(wrong, Stop) and not isinstance(wrong, ClusterUnreachable)
            refused += for_good
            yield warning(about, f"{'refused' if for_good else 'not now'}: {wrong}", "the copy goes on from another candidate, if there is one")
    if refused == len(settings.sources):
        yield failed("source candidates", SourceRefused("every one of them is refused, each for the reason above. Mend one"))


def _left(found: Stand, begins: Mapping[Place, int]) -> str:
    """How much there is to copy from here."""
    ends = positions.ends(admin(found.settings.source, found.settings), begins)
    return f"{sum(max(0, ends[place] - offset) for place, offset in begins.items())} offsets to copy"


def _listed(offsets: Mapping[Place, int]) -> str:
    """Partition and offset, the first few."""
    shown = [f"{place.partition}={offset}" for place, offset in sorted(offsets.items())]
    return f"source offsets {', '.join(shown[:8])}{f' and {len(shown) - 8} more' if len(shown) > 8 else ''}"
