"""`reo verify`: is the copy complete and exact? Both topics are read in step, per partition, and
compared record by record.

It reads what any `read_committed` consumer reads, so what it calls exact does not depend on the
service. Memory is bounded by the clients' fetch queues. The copy is compared with what the source
has now: where all that is missing is after the frontier, it is not copied yet (36). With `--wait`
the copy has some time to catch up with what the source had at the start, and producers may go on
writing. Where retention has deleted the first records of one side, it begins with the first ones
that both sides have (`reo.compare.common_start`). Where compaction has removed records, the newest
of each key are compared (`reo.compare.compacted`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from itertools import chain

from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from common import clock, source_pool
from common.errors import AccessRefused, LagsBehind, ReoError, TopicMissing
from common.frontier import Frontier
from common.kafka import partition_offsets, permissions, topics
from common.kafka.clients import create_admin_clients
from common.kafka.consumer_group import Group
from common.kafka.route_topics import find_gone
from common.kafka.topics import Topic
from common.route_states import RouteState, RouteStates, build_waiting_error, list_halted
from common.routes import Route, TopicPartition
from common.settings import Settings, destination_kind
from reo import interrupt
from reo.compare import parallel, stored_records, verdict
from reo.compare.comparable_routes import find_comparable, look_up_copies
from reo.compare.comparison import Comparison
from reo.compare.parallel import PartitionPair
from reo.compare.resume_file import ResumeFile
from reo.compare.verdict import Verdict
from reo.progress.partition_progress import sum_lags
from reo.progress.progress_snapshot import SnapshotReader
from reo.report import print_errors, print_json

SAVE_INTERVAL_S = 5.0
POLL_S = 0.5


class Verification:
    """What is to be compared; TopicMissing and similar errors when nothing can be. With `ends` the
    source is read up to these offsets, and records that both sides get later are left out.
    """

    def __init__(
        self,
        settings: Settings,
        resume_file: ResumeFile,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        self.settings = settings = source_pool.select_answering(settings)
        self.resume_file = resume_file
        self.source_admin, self.destination_admin = create_admin_clients(settings)
        found, not_comparable = find_comparable(settings, self.source_admin)
        copies, partitions, missing = _look_up_copies(settings, self.destination_admin, found)
        sources = {
            route: source
            for route, source in found.items()
            if route.destination_topic not in missing
        }
        if missing and not sources:
            raise next(iter(missing.values()))
        self.not_comparable = [*missing.values(), *not_comparable]
        self.routes = sources.keys()
        self.frontiers = _read_frontiers(settings, sources, copies)
        """By source partition, from before what they cover is looked for."""
        self.moved = {tp: frontier for tp, frontier in self.frontiers.items() if frontier.move}
        self.not_compared = [
            *verdict.list_for_topics(sources, partitions),
            *verdict.list_for_moved(self.moved),
        ]
        """What no comparison of partitions covers."""
        self.pairs: list[PartitionPair] = []
        self.total_offsets = 0
        """Source offsets to read: an upper bound of the number of records."""
        self._began_at = clock.monotonic()
        self._next_offsets: dict[TopicPartition, int] = {}
        self._saved_at = clock.monotonic()
        for route, source in sources.items():
            self._add_pairs(route, source, copies.get(route), ends)
        self._compared_before = sum(pair.comparison.equal for pair in self.pairs)

    def _add_pairs(
        self,
        route: Route,
        source: Topic,
        copy: Topic | None,
        ends: Mapping[TopicPartition, int] | None,
    ) -> None:
        """The partitions of one route; the copy is None outside of Kafka."""
        is_compacted = topics.is_compacted(
            self.source_admin, self.settings.source_cluster, source.name
        )
        if copy is not None:
            self.resume_file.check_topics(source, copy)
            is_compacted = is_compacted or topics.is_compacted(
                self.destination_admin, self.settings.destination_cluster, copy.name
            )
        left, right = (
            [side(partition) for partition in range(source.partitions)]
            for side in (route.get_source, route.get_destination)
        )
        source_begins = partition_offsets.list_beginning_offsets(self.source_admin, left)
        source_ends = partition_offsets.list_end_offsets(self.source_admin, left)
        destination_begins = (
            partition_offsets.list_beginning_offsets(self.destination_admin, right)
            if copy is not None
            else dict.fromkeys(right, 0)
        )
        for tp, output in zip(left, right, strict=True):
            comparison = self.resume_file.start_comparison(
                tp, source_begins[tp], destination_begins[output]
            )
            self._next_offsets[tp] = max(comparison.source_next, source_begins[tp])
            self.total_offsets += source_ends[tp] - self._next_offsets[tp]
            moved = self.moved.get(tp)
            begins_later = not self.settings.start.is_from_beginning(tp.partition, added=False)
            self.pairs.append(
                PartitionPair(
                    tp,
                    output,
                    comparison,
                    is_compacted,
                    begins_later,
                    None if ends is None or is_compacted else ends.get(tp),
                    moved.move.destination_end if moved and moved.move else None,
                )
            )

    def run(self, progress: Callable[[int], None] = lambda _: None) -> list[Comparison]:
        """Compare everything; `progress` is called with the number of source offsets read since its
        last call.
        """

        def on_progress(result: Comparison) -> None:
            new_offsets = result.source_next - self._next_offsets[result.tp]
            if new_offsets > 0:
                self._next_offsets[result.tp] = result.source_next
                progress(new_offsets)
            self.resume_file.remember(result)
            if clock.monotonic() > self._saved_at + SAVE_INTERVAL_S:
                self._saved_at = clock.monotonic()
                self.resume_file.write()

        results = parallel.compare_pairs(self.settings, self.pairs, self.total_offsets, on_progress)
        for result in results:
            self.resume_file.remember(result)
        self.resume_file.write()
        return results

    def reach_verdict(self, results: list[Comparison]) -> Verdict:
        """What the comparisons prove."""
        for result in results:
            if frontier := self.frontiers.get(result.tp):
                result.exclude_not_copied(frontier.source_offset)
        left_out = chain.from_iterable(map(verdict.list_for_partition, results))
        return Verdict(
            results,
            self.not_comparable,
            [*self.not_compared, *left_out],
            self._compared_before,
            clock.monotonic() - self._began_at,
            self._find_halted({result.tp.topic for result in results if result.not_copied}),
        )

    def _find_halted(self, lacking: Collection[str]) -> dict[str, RouteState]:
        """Those of these source topics whose routes are halted; none where the principal may not
        see it, or no answer comes.
        """
        routes = [route for route in self.routes if route.source_topic in lacking]
        with suppress(ReoError):
            states = RouteStates(self.settings).read(route.intermediate_topic for route in routes)
            return list_halted(states, routes)
        return {}


def _look_up_copies(
    settings: Settings, destination_admin: AdminClient, sources: Mapping[Route, Topic]
) -> tuple[dict[Route, Topic], dict[str, int], dict[str, TopicMissing]]:
    """The destination topics (none outside of Kafka), how many partitions each has, and the errors
    of those that do not exist or lack partitions.
    """
    names = [route.destination_topic for route in sources]
    if destination_kind.is_outside_kafka(settings):
        return {}, *stored_records.count_partitions(settings, names)
    existing, missing = look_up_copies(settings, destination_admin, names)
    copies = {}
    for route, source in sources.items():
        name = route.destination_topic
        if name in missing:
            continue
        copies[route] = existing[name]
        if route.partitions.count_in(existing[name].partitions) < source.partitions:
            missing[name] = TopicMissing(
                f"the destination topic {name} lacks partitions: nothing was copied to them yet"
            )
    return copies, {name: topic.partitions for name, topic in existing.items()}, missing


def _read_frontiers(
    settings: Settings, sources: Collection[Route], copies: Mapping[Route, Topic]
) -> dict[TopicPartition, Frontier]:
    """The frontiers of these copies, by source partition; none where the principal may not see
    them. They only say which records are not to be there: those that are not copied yet, and what
    others write after a move. Outside of Kafka there are no `copies`.
    """
    routes = {route.intermediate_topic: route for route in sources}
    existing = {route.destination_topic: topic for route, topic in copies.items()}
    frontiers: Mapping[TopicPartition, Frontier] = {}
    with suppress(AccessRefused):
        frontiers = Group(settings).list_frontiers()
    gone = find_gone(settings, sources, existing, frontiers)
    return {
        routes[tp.topic].get_source(tp.partition): frontier
        for tp, frontier in frontiers.items()
        if tp.topic in routes and tp not in gone
    }


def run_command(
    settings: Settings, as_json: bool = False, resume: str | None = None, wait_s: float = 0
) -> int:
    """The command: a progress bar on a terminal, a line per partition, exit code 0 only when
    something was compared and all of it is equal.

    With `wait_s` the copy has so many seconds to catch up with what the source has now, and this is
    compared; what is missing then is a difference.
    """
    resume_file, ends = ResumeFile(resume), None
    try:
        if resume:
            destination_kind.refuse_command(
                settings, "reo verify --resume", "a store is read from its beginning"
            )
        resume_file.read()
        resume_file.check_writable()
        permissions.check_permissions(source_pool.select_answering(settings), "verify")
        if wait_s:
            ends = wait_until_copied(settings, wait_s)
        verification = Verification(settings, resume_file, ends)
        results = _compare_with_bar(verification)
    except KeyboardInterrupt:
        if resume_file.write() and resume:
            notes = f"{resume} notes up to where the partitions are equal"
            interrupt.set_last_words(lambda: notes)
        raise
    reached = verification.reach_verdict(results)
    print_errors("verify", verification.not_comparable)
    if nothing := reached.nothing_compared:
        print_errors("verify", [nothing])
    if as_json:
        print_json(reached.to_dict())
    else:
        print(reached)
    return reached.exit_code


def wait_until_copied(settings: Settings, timeout_s: float) -> dict[TopicPartition, int]:
    """Wait until everything is copied that the source has now; returns the offsets at which it ends
    now. LagsBehind after so long. A line on standard error says what is waited for, and whether the
    service runs.
    """
    settings = source_pool.select_answering(settings)
    permissions.check_permissions(settings, "lag")
    snapshot_reader, deadline = SnapshotReader(settings), clock.monotonic() + timeout_s
    ends: dict[TopicPartition, int] = {}
    is_told = False
    while True:
        try:
            snapshot = snapshot_reader.take_snapshot()
            partitions = snapshot.partitions
            ends = ends or {row.source: row.last_stable_offset for row in partitions}
            is_copied = all(
                row.lags.both.records == 0 or row.stage_two_offset >= ends.get(row.source, 0)
                for row in partitions
            )
            if snapshot.halted and not is_copied:
                raise build_waiting_error(snapshot.halted)
            state = f"{sum_lags(partitions).both.records} records are not copied yet"
        except TopicMissing as missing:  # nothing is copied yet
            is_copied, state = False, str(missing)
        if is_copied:
            return ends
        is_over = clock.monotonic() > deadline
        if is_over or not is_told:
            # one that was killed counts as a member until its session ends
            members = snapshot_reader.group.describe_members().partitions
            state += "" if members else "; stage two does not run"
        if is_over:
            raise LagsBehind(
                f"not copied within {timeout_s:g} s: {state}. Nothing was compared",
                "Start the service, or wait longer; `reo status` shows which stage waits",
            )
        if not is_told:
            print(f"waiting up to {timeout_s:g} s: {state}", file=sys.stderr, flush=True)
            is_told = True
        clock.sleep(POLL_S)


def _compare_with_bar(verification: Verification) -> list[Comparison]:
    """Compare everything; on a terminal a bar shows the progress."""
    console = Console(stderr=True)
    columns = (TextColumn("comparing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("comparing", total=verification.total_offsets)
        return verification.run(lambda number: bar.advance(task, number))
