"""The example of the page about a destination of a user's own (`tests.harness.own_store`), with
everything that may be left out. Only a service imports it, which has the example on its path.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from own_store import SqliteStore  # type: ignore[import-not-found]  # in a test's folder

from common.errors import TopicMissing
from common.routes import Route, TopicPartition
from deduplicator.own_destination import Checked, Position, Setup, StoredRecord


class FullStore(SqliteStore):
    """Reads and checks what the example stores."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.read_only = setup.read_only

    def prepare(self, routes: Sequence[Route]) -> None:
        """Nothing may be created by a check."""
        if not self.read_only:
            super().prepare(routes)

    def read_positions(self, topics: Collection[str]) -> Mapping[TopicPartition, Position]:
        """None where nothing was created yet."""
        try:
            return super().read_positions(topics)
        except sqlite3.OperationalError:
            assert self.read_only
            return {}

    def last_source_offset(self, destination: TopicPartition) -> int:
        """The same."""
        try:
            return super().last_source_offset(destination)
        except sqlite3.OperationalError:
            assert self.read_only
            return -1

    def check(self, routes: Sequence[Route]) -> Iterable[Checked]:
        """One finding."""
        assert self.read_only
        yield Checked("own store", f"has {', '.join(route.source_topic for route in routes)}")

    def read(self, destination: TopicPartition, source_offset: int) -> Iterator[StoredRecord]:
        """All columns but headers."""
        rows = self.database.execute(
            "SELECT topic, partition, source_topic, source_partition, source_offset, key, value"
            ", timestamp_ms FROM records WHERE topic = ? AND partition = ? AND source_offset >="
            " ? ORDER BY source_offset",
            (*destination, source_offset),
        )
        for topic, partition, source, source_partition, offset, key, value, timestamp_ms in rows:
            place = (topic, partition, source, source_partition, offset)
            yield StoredRecord(*place, key, value, [], timestamp_ms)

    def count_partitions(self, topic: str) -> int:
        """Of the records."""
        (last,) = self.database.execute(
            "SELECT max(partition) FROM records WHERE topic = ?", (topic,)
        ).fetchone()
        if last is None:
            raise TopicMissing(f"nothing of {topic} is stored")
        return int(last) + 1
