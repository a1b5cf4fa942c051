"""`reo verify`: is the copy complete and exact? Both topics are read in step, per partition, and compared record by record.

It knows nothing of frontiers, epochs or offsets kept anywhere: it reads what any `read_committed` consumer would read, so it can be
believed when the service is wrong. Memory is bounded by the clients' fetch queues. What the source has now is the measure: a copy
that is still running is reported as incomplete, with how much is missing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from itertools import zip_longest

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from common import candidates, permissions, positions, tables, topics
from common.errors import CopyDiffers, NotComparable, ReoError, TopicMissing
from common.kafka_clients import admin, reader
from common.records import Consumed
from common.routes import Place, Route
from common.settings import Settings
from common.topics import Topic
from common.upstreams import Cluster
from reo.comparable import divided

SHOWN_BYTES = 80
FIELDS = ("key", "value", "headers", "timestamp")
Read = Callable[[Place], Generator[Consumed]]
"""All records of a partition, in order."""


@dataclass(slots=True)
class Comparison:
    """One source partition's result; `difference` tells the first one in words, empty when there is none."""

    place: Place
    equal: int = 0
    difference: str = ""


def fields_of(message: Consumed) -> tuple[object, ...]:
    """What has to be the same on both sides, in the order of FIELDS. The kind of the timestamp may differ: a copy sets its own."""
    return message.key(), message.value(), message.headers() or [], message.timestamp()[1]


def compare(source: Generator[Consumed], destination: Generator[Consumed], place: Place, progress: Callable[[int], None]) -> Comparison:
    """Walk two partitions in step up to the first difference."""
    result = Comparison(place)
    for wanted, there in zip_longest(source, destination):
        if there is None:
            missing = 1 + sum(1 for _ in source)
            result.difference = f"{missing} records are missing, from source offset {wanted.offset()} on: {shown(wanted)}"
        elif wanted is None:
            surplus = 1 + sum(1 for _ in destination)
            result.difference = f"{surplus} records too many, from destination offset {there.offset()} on: {shown(there)}"
        elif fields_of(wanted) != fields_of(there):
            result.difference = different(wanted, there)
        if result.difference:
            return result
        result.equal += 1
        if result.equal % 1000 == 0:
            progress(1000)
    progress(result.equal % 1000)
    return result


def different(wanted: Consumed, there: Consumed) -> str:
    """The first difference in words: which fields, where, and both records."""
    names = [name for name, left, right in zip(FIELDS, fields_of(wanted), fields_of(there), strict=True) if left != right]
    return (f"{', '.join(names)} differ between source offset {wanted.offset()} and destination offset {there.offset()}:\n"
            f"    source      {shown(wanted)}\n    destination {shown(there)}")


def shown(message: Consumed) -> str:
    """A record in one line, shortened."""
    key, value, headers, timestamp = fields_of(message)
    return f"key={key!r:.{SHOWN_BYTES}} value={value!r:.{SHOWN_BYTES}} headers={headers!r:.{SHOWN_BYTES}} timestamp={timestamp}"


def verify(settings: Settings, progress: Callable[[int], None] = lambda _: None) -> list[Comparison]:
    """Compare all partitions of the routes that are one to one, one after the other. TopicMissing and the like when they can not be read."""
    settings = candidates.answering(settings)
    timeout_s = settings.number("connect_timeout_s")
    sources, _ = divided(settings, topics.sources(settings, admin(settings.source, settings), timeout_s))
    here, there = _reading(settings.source, settings), _destination(settings, sources)
    results = []
    for route, source in sources.items():
        for partition in range(source.partitions):
            left, right = here(route.source(partition)), there(route.destination(partition))
            results.append(compare(left, right, route.source(partition), progress))
            left.close()
            right.close()
    return results


def _reading(cluster: Cluster, settings: Settings) -> Read:
    client = reader(cluster, settings)
    return lambda place: positions.visible(client, {place: positions.FROM_BEGINNING})


def _destination(settings: Settings, sources: Mapping[Route, Topic]) -> Read:
    """TopicMissing when a destination is not there, or lacks partitions."""
    names = {route.destination_topic for route in sources}
    if tables.named(settings):
        from reo.table_rows import reading

        return reading(settings, names)
    destinations = topics.look_up(settings.destination, admin(settings.destination, settings), names, settings.number("connect_timeout_s"))
    for route, source in sources.items():
        if route.destination_topic not in destinations or destinations[route.destination_topic].partitions < source.partitions:
            raise TopicMissing(f"the destination topic {route.destination_topic} does not exist or lacks partitions: nothing was copied to it yet")
    return _reading(settings.destination, settings)


def command(settings: Settings) -> int:
    """The sub-command: a progress bar on a terminal, a line per partition, exit code 0 only when all is equal."""
    console = Console(stderr=True)
    begun = time.monotonic()
    try:
        settings = candidates.answering(settings)
        permissions.check(settings, "verify")
        client = admin(settings.source, settings)
        sources, hidden = divided(settings, topics.sources(settings, client, settings.number("connect_timeout_s")))
        places = [route.source(partition) for route, source in sources.items() for partition in range(source.partitions)]
        beginnings = positions.beginnings(client, places)
        total = sum(end - beginnings[place] for place, end in positions.ends(client, places).items())
        columns = (TextColumn("comparing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("comparing", total=total)
            results = verify(settings, lambda number: bar.advance(task, number))
    except ReoError as error:
        print(f"reo verify: {error}", file=sys.stderr)
        return error.exit_code
    for result in results:
        print(f"{result.place}: {result.equal} records equal{'; ' + result.difference if result.difference else ''}")
    records, differing = sum(result.equal for result in results), [result for result in results if result.difference]
    verdict = f"{len(differing)} of {len(results)} partitions differ" if differing else "exact"
    for reason in hidden:
        print(f"reo verify: {reason}", file=sys.stderr)
    print(f"{records} records compared in {time.monotonic() - begun:.1f} s: {verdict}{f'; {len(hidden)} routes can not be compared' if hidden else ''}")
    return CopyDiffers.exit_code if differing else NotComparable.exit_code if hidden else 0
