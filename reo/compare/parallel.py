"""Compares each partition (in step, by key where the topic is compacted), several in
parallel, in one process for each processor: comparing is bound by the processor.

One process of Python uses one processor. Each process takes the next partition when it has finished
one, reports its progress now and then, and ends with its parent. A small number of records is
compared without these processes, because each takes half a second to start.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient

from common import clock
from common import settings as reo_settings
from common.errors import ReoError, StageFailed
from common.kafka import partition_offsets, visible_records
from common.kafka.clients import create_admin_clients, create_readers
from common.kafka.visible_records import FROM_BEGINNING
from common.parent_death_signal import set_parent_death_signal
from common.records import Consumed
from common.routes import TopicPartition
from common.settings import Settings, destination_kind
from deduplicator.gc_control import pause_gc
from reo.compare import compacted, comparison, stored_records
from reo.compare.common_start import PartitionReader, find_common_row, find_common_start
from reo.compare.comparison import Comparison

PARALLEL_RECORDS_MIN = 200_000
"""With fewer records one process compares all."""
PROCESSES_MAX = 4
"""Each needs up to 130 MB, and in a container the processors are those of the whole machine."""
PROGRESS_INTERVAL_S = 0.25
BULK_READER_OPTIONS = {
    "fetch.queue.backoff.ms": 10,
    "queued.min.messages": 50_000,
    "queued.max.messages.kbytes": 65_536,
}
"""A reader with a full queue fetches again soon; the last option bounds its memory."""


class PartitionPair(NamedTuple):
    """A source partition, its copy, and where to begin."""

    source: TopicPartition
    destination: TopicPartition
    comparison: Comparison
    is_compacted: bool
    """Whether compaction may have removed records on one side only."""
    begins_later: bool
    """Whether the copy did not begin with the source's first record."""
    source_end: int | None = None
    """The source is read up to this offset; None: up to its end."""
    destination_end: int | None = None
    """The same at the destination, of a topic that has moved: others write after it."""


class PairComparer:
    """The clients of both sides, of one process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.readers = create_readers(settings, **BULK_READER_OPTIONS)
        self.source_admin, self.destination_admin = create_admin_clients(settings)
        self.read_rows: Callable[[TopicPartition, int], Generator[Consumed]] | None = None
        """Reads the copies in a store outside of Kafka."""
        if destination_kind.is_outside_kafka(settings):
            self.read_rows = stored_records.open_reader(settings)
        self.zero_timestamp_ms = destination_kind.get_zero_timestamp_ms(settings) or 0

    def compare(self, pair: PartitionPair, progress: Callable[[Comparison], None]) -> Comparison:
        """Compare one pair."""
        result, (source, destination) = pair.comparison, self.readers
        self._set_start(pair)
        source_begin, destination_begin = result.source_next, result.destination_next
        source_ends = list_stable_end(self.source_admin, pair.source)

        def read_source() -> comparison.Batches:
            batches = visible_records.read_batches(
                source, {pair.source: source_begin}, ends=source_ends
            )
            return comparison.end_batches(batches, pair.source_end)

        def read_destination() -> comparison.Batches:
            if self.read_rows is not None:
                return comparison.split_into_batches(
                    self.read_rows(pair.destination, destination_begin)
                )
            batches = visible_records.read_batches(
                destination,
                {pair.destination: destination_begin},
                ends=list_stable_end(self.destination_admin, pair.destination),
            )
            return comparison.end_batches(batches, pair.destination_end)

        def is_source_longer() -> bool:
            return pair.source_end is not None and self._is_after(pair.source, pair.source_end)

        with closing(read_source()) as left, closing(read_destination()) as right:
            comparison.compare_in_step(
                left,
                right,
                result,
                self.zero_timestamp_ms,
                progress,
                same_offsets=self.read_rows is not None,
                source_has_more=is_source_longer,
            )
        if result.difference and pair.is_compacted:
            compacted.compare_newest(read_source, read_destination, result, self.zero_timestamp_ms)
        return result

    def _is_after(self, source: TopicPartition, offset: int) -> bool:
        """Whether the source has a visible record at this offset or after it now: it may have been
        written, and copied, since the end was read.
        """
        ends = list_stable_end(self.source_admin, source)
        first = visible_records.find_first_visible(self.readers[0], source, offset, ends[source])
        return first is not None

    def _set_start(self, pair: PartitionPair) -> None:
        """Where one side legitimately lacks its first records, begin with the first ones that both
        sides have. What retention has deleted is asked here: the command may have begun long ago.
        """
        result, (source_reader, destination_reader) = pair.comparison, self.readers
        if result.equal:
            return
        list_begins = partition_offsets.list_beginning_offsets
        source_deleted = list_begins(self.source_admin, [pair.source])[pair.source] > 0
        copy_missing = pair.begins_later
        if self.read_rows is None:
            begins = list_begins(self.destination_admin, [pair.destination])
            copy_missing |= begins[pair.destination] > 0
        if not (source_deleted or copy_missing):
            return
        result.starts_late = source_deleted
        source = PartitionReader(
            self.source_admin, source_reader, pair.source, self.zero_timestamp_ms
        )
        if self.read_rows is None:
            copy = PartitionReader(self.destination_admin, destination_reader, pair.destination)
            result.common_start = find_common_start(source, copy, source_deleted, copy_missing)
        else:
            first_row = self._read_first_row(pair.destination)
            result.common_start = find_common_row(source, first_row, source_deleted, copy_missing)
        if result.common_start is not None:
            result.starts_late = True
            result.source_next, result.destination_next = result.common_start

    def _read_first_row(self, destination: TopicPartition) -> int | None:
        """The offset of the first record in a store; None when there is none."""
        assert self.read_rows is not None
        with closing(self.read_rows(destination, FROM_BEGINNING)) as rows:
            return next((row.offset() for row in rows), None)


def list_stable_end(client: AdminClient, tp: TopicPartition) -> dict[TopicPartition, int]:
    """Up to which a partition can be read now; a broker that ends sooner is behind."""
    return partition_offsets.list_end_offsets(client, [tp], committed_only=True)


def compare_pairs(
    settings: Settings,
    pairs: Sequence[PartitionPair],
    records: int,
    progress: Callable[[Comparison], None],
) -> list[Comparison]:
    """Compare all pairs and return the results in their order; `records` is about how many there
    are. An error of one pair ends all.
    """
    processes = min(len(pairs), os.cpu_count() or 1, PROCESSES_MAX)
    if processes < 2 or records < PARALLEL_RECORDS_MIN:
        comparer = PairComparer(settings)
        return [comparer.compare(pair, progress) for pair in pairs]
    results = {
        result.tp: result for result in _compare_in_processes(settings, pairs, processes, progress)
    }
    return [results[pair.source] for pair in pairs]


def _compare_in_processes(
    settings: Settings,
    pairs: Sequence[PartitionPair],
    processes: int,
    progress: Callable[[Comparison], None],
) -> list[Comparison]:
    # a forked process would have its parent's clients without their threads
    spawn = multiprocessing.get_context("spawn")
    tasks, answers = spawn.Queue(), spawn.Queue()
    for task in [*pairs, *[None] * processes]:
        tasks.put(task)
    workers = [
        spawn.Process(
            target=_run_worker, args=(settings.build_environment(), tasks, answers), daemon=True
        )
        for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    done: list[Comparison] = []
    try:
        while len(done) < len(pairs):
            # before: the last answer of one that ends now is read
            is_alive = any(worker.is_alive() for worker in workers)
            try:
                result, is_done = answers.get(timeout=1)
            except queue.Empty:
                if not is_alive:
                    raise StageFailed(
                        "a process that compares records has died. Run the command again"
                    ) from None
                continue
            if isinstance(result, ReoError):
                raise result
            progress(result)
            if is_done:
                done.append(result)
    finally:
        for worker in workers:
            worker.kill()
    return done


def _run_worker(environment: dict[str, str], tasks: Any, answers: Any) -> None:
    """One process: compares pairs until there are no more."""
    set_parent_death_signal()
    # the parent receives it too, and ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    report_at = 0.0

    def report_progress(result: Comparison) -> None:
        nonlocal report_at
        if clock.monotonic() > report_at:
            report_at = clock.monotonic() + PROGRESS_INTERVAL_S
            collect()
            answers.put((result, False))

    try:
        comparer = PairComparer(reo_settings.load(environment))
        with pause_gc() as collect:
            for pair in iter(tasks.get, None):
                answers.put((comparer.compare(pair, report_progress), True))
    except ReoError as error:
        answers.put((error, True))
    answers.close()
    answers.join_thread()
