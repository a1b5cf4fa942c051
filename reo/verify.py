"""`reo verify`: is the copy complete and exact? Both topics are read in step, per partition, and compared record by record.

It knows nothing of frontiers or epochs: it reads what any `read_committed` consumer would read, so it can be believed when the service is wrong. Memory is
bounded by the clients' fetch queues. What the source has now is the measure: a copy that is still running is reported as incomplete, with how much is
missing. With `--resume` a comparison goes on where an earlier one was; where retention has taken the first records of one side, it begins with the first that
both have (`reo.beginnings`); where compaction has taken records, the newest of each key are compared (`reo.newest`). The verdict is of what was compared, and
says what was not (`reo.unseen`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from common import machine, permissions, positions, source_candidates, tables, topics
from common.errors import CopyDiffers, NotComparable, NothingCompared, ReoError, TopicMissing
from common.kafka_clients import admin
from common.routes import Place, Route
from common.settings import Settings
from common.topics import Topic
from reo import side_by_side, unseen
from reo.comparable import divided
from reo.compared import Comparison
from reo.resume import Memory
from reo.side_by_side import Pair
from reo.unseen import Unseen

NOTED_EVERY_S = 5.0


class Verification:
    """What is to be compared; TopicMissing and the like when it cannot be."""

    def __init__(self, settings: Settings, memory: Memory) -> None:
        self.settings = settings = source_candidates.select_answering(settings)
        self.memory = memory
        timeout_s = settings.number("connect_timeout_s")
        source_admin, destination_admin = admin(settings.source, settings), admin(settings.destination, settings)
        sources, self.hidden = divided(settings, topics.sources(settings, source_admin, timeout_s))
        copies, partitions = _copies(settings, sources)
        self.unseen = list(unseen.of_topics(sources, partitions))
        """What no comparison of partitions sees."""
        self.pairs: list[Pair] = []
        self.total = 0
        """Source offsets to go through: no fewer than records."""
        self._reached: dict[Place, int] = {}
        self._noted_at = machine.monotonic()
        for route, source in sources.items():
            copy = copies.get(route)
            compacted = topics.compacted(source_admin, settings.source, source.name)
            if copy is not None:
                memory.check(source, copy)
                compacted = compacted or topics.compacted(destination_admin, settings.destination, copy.name)
            left, right = ([side(partition) for partition in range(source.partitions)] for side in (route.source, route.destination))
            begins, ends = (ask(source_admin, left) for ask in (positions.beginnings, positions.ends))
            there = positions.beginnings(destination_admin, right) if copy is not None else dict.fromkeys(right, 0)
            for place, output in zip(left, right, strict=True):
                begin = memory.begin(place, begins[place], there[output])
                self._reached[place] = max(begin.source_next, begins[place])
                self.total += ends[place] - self._reached[place]
                later = not settings.start.from_beginning(place.partition, added=False)
                self.pairs.append(Pair(place, output, begin, compacted, begins[place] > 0, there[output] > 0 or later))

    def run(self, progress: Callable[[int], None] = lambda _: None) -> list[Comparison]:
        """Compare everything; `progress` is told how many source offsets were passed since it was told last."""
        def reached(result: Comparison) -> None:
            passed = result.source_next - self._reached[result.place]
            if passed > 0:
                self._reached[result.place] = result.source_next
                progress(passed)
            self.memory.note(result)
            if machine.monotonic() > self._noted_at + NOTED_EVERY_S:
                self._noted_at = machine.monotonic()
                self.memory.write()
        results = side_by_side.compare(self.settings, self.pairs, self.total, reached)
        for result in results:
            self.memory.note(result)
        self.memory.write()
        return results


def _copies(settings: Settings, sources: Mapping[Route, Topic]) -> tuple[dict[Route, Topic], dict[str, int]]:
    """The destination topics, none where the copies are tables, and how many partitions each has; TopicMissing when one is not there, or lacks partitions."""
    names = {route.destination_topic for route in sources}
    if tables.named(settings):
        from reo.table_rows import partitions

        return {}, partitions(settings, names)
    destinations = topics.look_up(settings.destination, admin(settings.destination, settings), names, settings.number("connect_timeout_s"))
    for route, source in sources.items():
        if route.destination_topic not in destinations or destinations[route.destination_topic].partitions < source.partitions:
            raise TopicMissing(f"the destination topic {route.destination_topic} does not exist or lacks partitions: nothing was copied to it yet")
    return {route: destinations[route.destination_topic] for route in sources}, {name: topic.partitions for name, topic in destinations.items()}


def verify(settings: Settings, progress: Callable[[int], None] = lambda _: None) -> list[Comparison]:
    """Compare all partitions of the routes that are one to one."""
    return Verification(settings, Memory(None)).run(progress)


def command(settings: Settings, as_json: bool = False, resume: str | None = None) -> int:
    """The sub-command: a progress bar on a terminal, a line per partition, exit code 0 only when something was compared and all of it is equal."""
    console = Console(stderr=True)
    begun, memory = machine.monotonic(), Memory(resume)
    try:
        if resume:
            tables.refuse(settings, "reo verify --resume", "a table is read from its beginning")
        memory.read()
        permissions.check_permissions(source_candidates.select_answering(settings), "verify")
        verification = Verification(settings, memory)
        known = sum(pair.begin.equal for pair in verification.pairs)
        columns = (TextColumn("comparing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("comparing", total=verification.total)
            results = verification.run(lambda number: bar.advance(task, number))
    except ReoError as error:
        print(f"reo verify: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        memory.write()
        print(f"reo verify: interrupted{f'; {resume} has how far it was' if resume else ''}", file=sys.stderr)
        return 130
    verdict = Verdict(results, verification.hidden, [*verification.unseen, *chain.from_iterable(map(unseen.of_partition, results))], known,
                      machine.monotonic() - begun)
    reasons = [*verification.hidden, *([unseen.nothing(bool(results))] if verdict.exit_code == NothingCompared.exit_code else [])]
    for reason in reasons:
        print(f"reo verify: {reason}", file=sys.stderr)
    print(verdict.as_json() if as_json else verdict)
    return verdict.exit_code


class Verdict(NamedTuple):
    """What all comparisons say together."""

    results: Sequence[Comparison]
    hidden: Sequence[NotComparable]
    """Routes that cannot be compared."""
    unseen: Sequence[Unseen]
    known: int
    """Records that were compared before (`--resume`)."""
    took_s: float

    @property
    def records(self) -> int:
        """That were compared, the known ones too."""
        return sum(result.equal for result in self.results)

    @property
    def exit_code(self) -> int:
        """A difference, then what cannot be compared, then nothing to compare."""
        if any(result.difference for result in self.results):
            return CopyDiffers.exit_code
        if self.hidden:
            return NotComparable.exit_code
        return 0 if self.records else NothingCompared.exit_code

    def __str__(self) -> str:
        """In words."""
        differing = sum(bool(result.difference) for result in self.results)
        verdict = (f"{differing} of {len(self.results)} partitions differ" if differing else "nothing is shown" if not self.records
                   else "exact in what was compared" if self.unseen else "exact")
        before = f" ({self.known} more were compared before)" if self.known else ""
        left_out = f"; {len(self.hidden)} routes cannot be compared" if self.hidden else ""
        not_compared = ["not compared:", *(f"    {one}" for one in self.unseen)] if self.unseen else []
        summary = f"{self.records - self.known} records compared in {self.took_s:.1f} s{before}: {verdict}{left_out}"
        return "\n".join([*map(str, self.results), *not_compared, summary])

    def as_json(self) -> str:
        """For programs."""
        verdict = "differs" if self.exit_code == CopyDiffers.exit_code else "exact" if self.records else "nothing compared"
        return orjson.dumps({
            "exit_code": self.exit_code, "verdict": verdict, "records": self.records, "compared_before": self.known, "seconds": round(self.took_s, 3),
            "partitions": [result.facts() for result in self.results], "not_compared": [one.facts() for one in self.unseen],
            "not_comparable": list(map(str, self.hidden))}).decode()
