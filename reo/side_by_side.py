"""Partitions compared beside each other: a process for each processor, since comparing is the processor's work and one process of Python uses one.

The processes take the next partition when they have done one, tell how far they are now and then, and end with their parent. What little there is to
compare is compared without them: each takes half a second to start.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

from common import machine, positions, tables
from common import settings as reo_settings
from common.children import die_with_parent
from common.errors import ReoError, StageFailed
from common.kafka_clients import admin, reader
from common.positions import FROM_BEGINNING
from common.records import Consumed
from common.routes import Place
from common.settings import Settings
from deduplicator.hot import without_collection
from reo import compared, newest
from reo.beginnings import Side, aligned
from reo.compared import Comparison

WORTH_IT = 200_000
"""Records, below which one process does it."""
SAYS_EVERY_S = 0.25
LIST = 1000
SILENCE_S = 60.0
THROUGH_MILLIONS = {"fetch.queue.backoff.ms": 10, "queued.min.messages": 50_000, "queued.max.messages.kbytes": 65_536}
"""A full queue is looked at again soon; the last is the bound on a reader's memory."""


class Pair(NamedTuple):
    """A source partition, its copy, and where to begin."""

    source: Place
    destination: Place
    begin: Comparison
    compacted: bool
    """Whether compaction may have taken records on one side only."""
    source_cut: bool
    """Whether the source's first records were deleted."""
    copy_cut: bool
    """Whether the copy may lack the source's first records: its own were deleted, or it did not begin with them."""


class Sides:
    """Both readers of one process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clients = [reader(cluster, settings, **THROUGH_MILLIONS) for cluster in (settings.source, settings.destination)]
        self.rows: Callable[[Place, int], Generator[Consumed]] | None = None
        """Of the copies, where these are tables."""
        if tables.named(settings):
            from reo.table_rows import reading

            self.rows = reading(settings, ())
        self.instead_of_zero = tables.zero_timestamp_ms(settings) or 0

    def held(self, pair: Pair, progress: Callable[[Comparison], None]) -> Comparison:
        """Compare one pair."""
        result, (source, destination) = pair.begin, self.clients
        self._align(pair)
        begins = result.source_next, result.destination_next

        def wanted() -> compared.Batches:
            return positions.read_batches(source, {pair.source: begins[0]}, SILENCE_S)

        def there() -> compared.Batches:
            if self.rows is not None:
                return in_lists(self.rows(pair.destination, begins[1]))
            return positions.read_batches(destination, {pair.destination: begins[1]}, SILENCE_S)

        with closing(wanted()) as left, closing(there()) as right:
            compared.compare(left, right, result, self.instead_of_zero, progress, places_too=self.rows is not None)
        if result.difference and pair.compacted:
            newest.compare(wanted, there, result, self.instead_of_zero)
        return result

    def _align(self, pair: Pair) -> None:
        """Where one side rightly lacks its first records, begin with the first ones that both have. (A row's offset is the source's.)"""
        result, (source, destination) = pair.begin, self.clients
        if result.equal or not (pair.source_cut or pair.copy_cut):
            return
        result.cut = pair.source_cut
        left = Side(admin(self.settings.source, self.settings), source, pair.source, self.instead_of_zero)
        if self.rows is None:
            result.begun = aligned(left, Side(admin(self.settings.destination, self.settings), destination, pair.destination), pair.source_cut, pair.copy_cut)
        else:
            result.begun = self._aligned_rows(pair, left)
        if result.begun is not None:
            result.cut = True
            result.source_next, result.destination_next = result.begun

    def _aligned_rows(self, pair: Pair, source: Side) -> tuple[int, int] | None:
        """The same for a table: a row's offset is the source's."""
        assert self.rows is not None
        with closing(self.rows(pair.destination, FROM_BEGINNING)) as rows:
            first_row = next((row.offset() for row in rows), None)
        first, wanted = source.first()
        first = first if wanted else source.end()
        if first_row is None or first_row == first or not (pair.copy_cut if first_row > first else pair.source_cut):
            return None
        return max(first, first_row), max(first, first_row)


def in_lists(rows: Generator[Consumed]) -> compared.Batches:
    """The same in lists, as `positions.read_batches` has them."""
    with closing(rows):
        while found := list(islice(rows, LIST)):
            yield found


def compare(settings: Settings, pairs: Sequence[Pair], records: int, progress: Callable[[Comparison], None]) -> list[Comparison]:
    """All pairs, in the order given; `records` is about how many there are. The error of a pair that cannot be read ends all."""
    processes = min(len(pairs), os.cpu_count() or 1)
    if processes < 2 or records < WORTH_IT:
        sides = Sides(settings)
        return [sides.held(pair, progress) for pair in pairs]
    found = {result.place: result for result in _beside_each_other(settings, pairs, processes, progress)}
    return [found[pair.source] for pair in pairs]


def _beside_each_other(settings: Settings, pairs: Sequence[Pair], processes: int, progress: Callable[[Comparison], None]) -> list[Comparison]:
    fresh = multiprocessing.get_context("spawn")  # a forked process would have its parent's clients without their threads
    tasks, said = fresh.Queue(), fresh.Queue()
    for task in [*pairs, *[None] * processes]:
        tasks.put(task)
    workers = [fresh.Process(target=_work, args=(settings.as_environment(), tasks, said), daemon=True) for _ in range(processes)]
    for worker in workers:
        worker.start()
    done: list[Comparison] = []
    try:
        while len(done) < len(pairs):
            try:
                result, ended = said.get(timeout=1)
            except queue.Empty:
                if not any(worker.is_alive() for worker in workers):
                    raise StageFailed("a process that compared has died; run it again") from None
                continue
            if isinstance(result, ReoError):
                raise result
            progress(result)
            if ended:
                done.append(result)
    finally:
        for worker in workers:
            worker.kill()
    return done


def _work(environment: dict[str, str], tasks: Any, said: Any) -> None:
    """One process: pairs until there are no more."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told too, and ends this one
    due = 0.0

    def progress(result: Comparison) -> None:
        nonlocal due
        if machine.monotonic() > due:
            due = machine.monotonic() + SAYS_EVERY_S
            collect()
            said.put((result, False))

    try:
        sides = Sides(reo_settings.load(environment))
        with without_collection() as collect:
            for pair in iter(tasks.get, None):
                said.put((sides.held(pair, progress), True))
    except ReoError as error:
        said.put((error, True))
    said.close()
    said.join_thread()
