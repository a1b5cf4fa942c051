"""A class for `destination.class` without positions: it has `commit` alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from common.routes import TopicPartition
from deduplicator.own_destination import Position, Setup, StoredRecord


class LineStore:
    """Appends a line for each record to a file."""

    def __init__(self, setup: Setup) -> None:
        self.file = Path(setup.options["file"])

    def commit(self, records: Sequence[StoredRecord], _: Mapping[TopicPartition, Position]) -> None:
        """In one write."""
        with self.file.open("a") as file:
            file.writelines(
                json.dumps([record.source_partition, record.source_offset]) + "\n"
                for record in records
            )
