"""The last row of each partition in its table: the one that this copy has written last, unless
somebody else has inserted or deleted rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from psycopg import sql

from common import postgresql
from common.errors import DestinationTruncated, ForeignWriter
from common.postgresql import Session
from common.routes import TopicPartition
from common.settings import Settings

log = logging.getLogger(__name__)
LAST = "SELECT source_offset FROM {} WHERE partition = %s ORDER BY source_offset DESC LIMIT 1"


def select_last_offsets(
    session: Session, settings: Settings, topic_partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """The greatest source offset of each partition's rows; -1 without rows."""
    rows = {
        tp: (
            session.execute(
                sql.SQL(LAST).format(postgresql.quote_table(settings, tp.topic)),
                [tp.partition],
            ).fetchone()
        )
        for tp in topic_partitions
    }
    return {tp: row[0] if row else -1 for tp, row in rows.items()}


def check_last_row(tp: TopicPartition, known: int, last: int) -> None:
    """ForeignWriter or DestinationTruncated when the last row is not the one that was written last;
    deleting all rows is the owner's decision.
    """
    if last > known:
        raise ForeignWriter(
            f"the table of {tp} has a row with source_offset {last}, which this copy did not"
            f" write: its own last row has {known}. Stop the other writer; then copy to a new"
            " destination.topic, or delete that row"
        )
    if 0 <= last < known:
        raise DestinationTruncated(
            f"the table of {tp} lacks rows that were committed: the last one had source_offset"
            f" {known}, now it is {last}. Copy to a new destination.topic, or restore this one"
        )
    if last < known:
        log.warning("%s: all rows were deleted; what was copied is not copied again", tp)
