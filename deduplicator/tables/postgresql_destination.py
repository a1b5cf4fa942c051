"""PostgreSQL as the destination: accepted records and the frontiers in one database transaction.

Records are kept in memory until the commit, which does everything at once: it moves the frontiers
(`TableFrontierStore.move_frontiers`), which locks their rows, checks the last rows
(`TableFrontierStore.check_last_rows`), copies the records (COPY), and then both become visible
together. In this order the first statement stops a worker that has lost its partitions, and the
worker that takes them over waits in one place only, and can end that wait. No transaction can be
torn, and none can arrive late: a commit that was sent and not answered is decided before its row
can be read again.

After the commit the same offsets are committed for the group (`commit_for_group`). If that fails,
the frontier is read again as after any failure, is found to be ahead of the group's, and is
committed for the group once more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import psycopg
from confluent_kafka import TopicPartition as ClientTopicPartition
from psycopg import sql

from common import failpoints, postgresql
from common.errors import ClusterUnreachable, RecordRefused
from common.metrics import TRANSACTIONS
from common.postgresql import PROBE_S, Session
from common.routes import TopicPartition
from deduplicator.destination import Output
from deduplicator.stored_destination import StoredDestination
from deduplicator.tables.rows import BEGIN, COLUMNS, END, encode_rows
from deduplicator.tables.table_frontier_store import LATE, TableFrontierStore
from deduplicator.transactions.transaction_failures import TransactionFailed
from deduplicator.unwrap import Record

LATE_MAX = 3
CHUNK_RECORDS = 1000
"""Records that are encoded at once: as with batches, so few that they stay in the processor's
cache.
"""
COPY = f"COPY {{}} ({', '.join(COLUMNS)}) FROM STDIN (FORMAT binary)"
LINE = re.compile(r", line (\d+)")
"""In the context of a COPY error: the row, counted from 1."""


class PostgresqlDestination(StoredDestination):
    """Writes records to a table, with their source partition and offset."""

    def __init__(
        self,
        frontier_store: TableFrontierStore,
        commit_for_group: Callable[[Sequence[ClientTopicPartition]], None],
    ) -> None:
        super().__init__(commit_for_group)
        self.frontier_store = frontier_store
        self.late_count = 0
        """How many transactions of a single record in a row were not over in time."""
        self.probe = postgresql.create_probe(
            frontier_store.settings, f"{frontier_store.role}-probe"
        )
        self.probe.start("database", PROBE_S)
        self._written: list[tuple[TopicPartition, Sequence[Record], Sequence[int]]] = []
        self._last_offsets: dict[TopicPartition, int] = {}
        """The source offset of the last row before the transaction, of the written partitions."""
        self._copying: tuple[TopicPartition, Sequence[int]] | None = None

    def begin(self) -> None:
        """No database transaction is open while records are decided."""
        self._written, self._last_offsets = [], {}
        self._copying = None

    def write(
        self,
        tp: TopicPartition,
        records: Sequence[Record],
        source_offsets: Sequence[int],
        output: Output,
    ) -> Output:
        """Keep the records for the commit."""
        self._written.append((tp, records, source_offsets))
        self._last_offsets.setdefault(tp, output.known_offset)
        return output._replace(known_offset=source_offsets[-1])

    def start_commit(self) -> None:
        """One transaction; then the group's commits. StageFailed, TransactionFailed, or a Stop that
        names the record.
        """
        positions = self._list_positions()
        try:
            session = self.frontier_store.session
            self.frontier_store.set_deadline(
                self.frontier_store.settings.deduplicator.transaction_timeout_ms / 1000
            )
            with session.transaction():
                self.frontier_store.move_frontiers(session, positions)
                self.frontier_store.check_last_rows(session, self._last_offsets)
                for tp, records, source_offsets in self._written:
                    self._copy(session, tp, records, source_offsets)
                failpoints.hit("two: offsets sent")
                failpoints.hit_soon("two: committing")
        except psycopg.Error as failed:
            raise self._translate_error(failed) from None
        finally:
            self.frontier_store.set_deadline(math.inf)
        self.late_count = 0
        # the group does not know it yet; the loop hits this failpoint again when it does
        failpoints.hit("two: committed")
        TRANSACTIONS.labels("committed").inc()
        self.frontier_store.on_committed(positions)
        self.commit_for_group(self._offsets)

    def abort(self) -> None:
        """No transaction is open outside `start_commit`."""
        self._written = []

    def resolve_in_doubt(self) -> None:
        """Wait for a session. A predecessor's transaction is resolved when the frontiers are taken
        over.
        """
        self.frontier_store.session  # noqa: B018  (waits)

    def is_answering(self) -> bool:
        """A probe asks in a thread of its own."""
        return self.probe.has_answered

    def close(self) -> None:
        """End the session."""
        self.probe.close()
        self.frontier_store.close()

    def _copy(
        self,
        session: Session,
        tp: TopicPartition,
        records: Sequence[Record],
        source_offsets: Sequence[int],
    ) -> None:
        self._copying = (tp, source_offsets)
        statement = sql.SQL(COPY).format(
            postgresql.quote_table(self.frontier_store.settings, tp.topic)
        )
        with session.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(BEGIN)
            for begin in range(0, len(records), CHUNK_RECORDS):
                copy.write(
                    encode_rows(
                        tp.partition,
                        records[begin : begin + CHUNK_RECORDS],
                        source_offsets[begin : begin + CHUNK_RECORDS],
                    )
                )
            copy.write(END)
        self._copying = None

    def _translate_error(self, failed: psycopg.Error) -> Exception:
        """The error to raise; the transaction is rolled back, or its outcome is in doubt."""
        operation = (
            f"copying to the table of {self._copying[0]}"
            if self._copying
            else "committing to the database"
        )
        error = postgresql.translate(failed, operation)
        if LATE in str(failed) and sum(len(records) for _, records, _ in self._written) == 1:
            self.late_count += 1
            if self.late_count == LATE_MAX:  # the server did answer between two of them
                ((tp, _, (source_offset,)),) = self._written
                return RecordRefused(
                    f"the record of source partition {tp.partition} at offset {source_offset}:"
                    f" alone in its transaction, {self.late_count} times in a row the database did"
                    " not accept it within deduplicator.transaction_timeout_ms. Raise that, or"
                    " leave such records out with filter.function",
                    names_the_record=True,
                )
        if isinstance(error, ClusterUnreachable):
            TRANSACTIONS.labels("unknown").inc()
            self.frontier_store.close()
            return TransactionFailed(str(error))
        TRANSACTIONS.labels("aborted").inc()
        line = LINE.search(failed.diag.context or "")
        if isinstance(error, RecordRefused) and self._copying and line:
            tp, source_offsets = self._copying
            source_offset = source_offsets[int(line[1]) - 1]
            return RecordRefused(
                f"the record of source partition {tp.partition} at offset {source_offset}: {error}",
                names_the_record=True,
            )
        return error
