"""The records that stage one refuses, because they would not arrive unchanged: a header's name that
stage two could not write as it is, a timestamp that Spark changes, or one that it cannot hold. The
query fails at such a record; here its position is found in Spark's text, and the operator is told
what to do.

The first two are checked by the sink (SourceRow.java), after `filter.sql`: a condition can leave
the record out. The last one is an error of Spark's own Kafka source.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from common.errors import RecordRefused

REFUSED = "a header's name cannot be copied unchanged in the source record of"
"""The error of a query that met such a name has this text; partition and offset follow."""
TOO_OLD = "Spark changes timestamps before 1582-10-15, as in the source record of"
"""The same for a timestamp that Spark changes."""
REASONS = {
    REFUSED: (
        "it holds a NUL, or is not UTF-8 (or holds U+FFFD, which Java returns in place of invalid"
        " bytes)"
    ),
    TOO_OLD: "it would arrive with another one",
}


def find_refused_record(failure: str) -> RecordRefused | None:
    """The error of a query that failed at a record which cannot be copied unchanged; None for any
    other failure.
    """
    match = re.search(
        rf"({'|'.join(map(re.escape, REASONS))}) (\S+)-(\d+) at offset (\d+)", failure
    )
    if match is None:
        return _find_timestamp_overflow(failure)
    message, topic, partition, offset = match.groups()
    return RecordRefused(
        f"{match[0]}: {REASONS[message]}. Neither this record nor what follows it was written;"
        " nothing is lost. To go on without this record, leave it out, for example with"
        f" filter.sql=\"not (topic = '{topic}' and partition = {partition}"
        f' and offset = {offset})"',
        is_explained=True,
        topic=topic,
    )


class DamagedBatch(NamedTuple):
    """A batch of the source that no consumer can read: its checksum is wrong."""

    partition: str
    """Topic and partition, as in `str(TopicPartition)`."""
    offset: int

    @property
    def error(self) -> RecordRefused:
        """To raise where no other copy of the batch is tried."""
        return RecordRefused(
            f"the source's broker has a damaged batch in {self.partition} at offset {self.offset}:"
            " its checksum is wrong, and no consumer can read it. What is before it is copied;"
            " nothing after it was written",
            "Let another replica lead the partition (kafka-leader-election.sh), then start again."
            " Without one these records are lost: begin a copy to a new destination.topic with a"
            " source.start behind them",
            is_explained=True,
            topic=self.partition.rpartition("-")[0],
        )


def find_damaged_batch(failure: str) -> DamagedBatch | None:
    """The batch at which a query failed because its checksum is wrong; None for any other
    failure.
    """
    match = re.search(r"for partition (\S+) at offset (\d+) is invalid, cause: Record is", failure)
    return DamagedBatch(match[1], int(match[2])) if match else None


def _find_timestamp_overflow(failure: str) -> RecordRefused | None:
    """The error for a timestamp outside the range of Spark's microseconds: Spark's Kafka source
    fails, before any filter.
    """
    match = re.search(
        r"Record at topic (\S+) partition (\d+) offset (\d+) has timestamp value (-?\d+) that"
        r" overflows",
        failure,
    )
    if match is None:
        return None
    topic, partition, offset, timestamp_ms = match.groups()
    return RecordRefused(
        f"the source record of {topic}-{partition} at offset {offset} has the timestamp"
        f" {timestamp_ms}, which is out of the range that Spark can read (2^63 microseconds around"
        " 1970). Neither this record nor what follows it was written; nothing is lost. A filter"
        " does not help: Spark cannot read the record. To copy what follows it, begin a copy to a"
        f" new destination.topic with source.start at {partition}={int(offset) + 1}",
        is_explained=True,
        topic=topic,
    )
