"""The whole service into PostgreSQL: everything that is hard to copy, `reo verify`, what is
refused; and what is written by hand for COPY. The settings alone:
tests/unit/common/settings/test_postgresql_settings.py.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import TopicPartition as ClientTopicPartition

from common.envelope import parse_head
from common.errors import RecordRefused, StageFailed
from common.routes import TopicPartition
from deduplicator.postgresql.frontier_rows import FrontierRow
from deduplicator.transactions.transaction_failures import TransactionFailed
from tests.conftest import Start
from tests.e2e.test_exact_copy import CASES, write_cases
from tests.harness.commands import LONG_COMMAND_S, reo_with
from tests.harness.copy_judge import Partitions, Record, compare_partitions
from tests.harness.kafka import Clusters, make_records
from tests.harness.postgresql import PASSWORD, Server
from tests.harness.postgresql_destination import (
    FRONTIER,
    SLOW,
    TableDestination,
    resume_after_failure,
    rows,
    take_over,
    transact,
)
from tests.harness.service import build_environment


class Copied(NamedTuple):
    """One finished run over all cases."""

    topic: str
    written: dict[str, list[Record]]
    copy: Partitions
    destination_topics: set[str]


@pytest.fixture(scope="module")
def copied(clusters: Clusters, database: Server, start_for_module: Start) -> Copied:
    """All cases written, and copied by one run of the service, in small transactions."""
    topic, written = write_cases(clusters.source)
    service = start_for_module(
        topic,
        "--stop-at-end",
        deduplicator_transaction_records="700",
        **database.settings(),
    )
    assert service.wait_for_exit() == 0, service.read_log_tail()
    return Copied(
        topic,
        written,
        database.read(topic, len(CASES)),
        set(clusters.destination.admin.list_topics(timeout=10).topics),
    )


@pytest.mark.parametrize("case", CASES)
def test_the_copy_is_exact(copied: Copied, case: str) -> None:
    """The partition's rows, in the order of their source offsets, are what was written: key, value,
    headers, timestamp; nothing that was aborted.
    """
    partition = list(CASES).index(case)
    assert (
        compare_partitions({partition: copied.written[case]}, {partition: copied.copy[partition]})
        == []
    )


def test_there_is_an_intermediate_topic_and_no_other(copied: Copied) -> None:
    """Records go to the database only."""
    assert {name for name in copied.destination_topics if name.startswith(copied.topic)} == {
        f"{copied.topic}-proxy"
    }


def reo(
    clusters: Clusters, database: Server, topic: str, *words: str
) -> subprocess.CompletedProcess[str]:
    """A command as a user gives it."""
    given = build_environment(clusters, topic, database.settings())
    done = reo_with(given, *words, exit_code=None, timeout_s=LONG_COMMAND_S)
    assert PASSWORD not in done.stdout + done.stderr
    return done


def test_a_table_that_is_gone_is_copied_again_before_the_end(
    clusters: Clusters, database: Server, topic: str, start: Start
) -> None:
    """The group's frontiers say that everything is copied: a service with `--stop-at-end` finds
    that the table is gone, and ends when it is copied again.
    """
    clusters.source.create(topic, 2)
    clusters.source.write(topic, make_records(range(100), 2))
    for _ in range(2):
        service = start(topic, "--stop-at-end", **database.settings())
        assert service.wait_for_exit() == 0, service.read_log_tail()
        assert database.ask(f'SELECT count(*) FROM "{topic}"') == [(100,)]
        database.ask(f'DROP TABLE "{topic}"')


def count_wrapped(clusters: Clusters, topic: str) -> int:
    """How many source records are in the envelopes of the intermediate topic."""
    partitions = clusters.destination.read(f"{topic}-proxy").values()
    return sum(parse_head(one.value).record_count for records in partitions for one in records)


def test_verify_and_a_second_run(
    clusters: Clusters, database: Server, copied: Copied, start: Start
) -> None:
    """A second run writes no record, not even to the intermediate topic; verify says exact; of one
    changed byte it says where.
    """
    before = count_wrapped(clusters, copied.topic)
    service = start(copied.topic, "--stop-at-end", **database.settings())
    assert service.wait_for_exit() == 0, service.read_log_tail()
    assert count_wrapped(clusters, copied.topic) <= before  # some are deleted by now
    assert database.read(copied.topic, len(CASES)) == copied.copy
    exact = reo(clusters, database, copied.topic, "verify")
    assert exact.returncode == 0, exact.stdout
    assert f"{sum(map(len, copied.written.values()))} records compared" in exact.stdout
    partition = list(CASES).index("repeated headers")
    change = (
        f'UPDATE "{copied.topic}" SET header_values[4] = %s WHERE partition = %s AND'
        " source_offset = 0"
    )
    database.ask(change, b"1", partition)
    try:
        changed = reo(clusters, database, copied.topic, "verify")
    finally:
        database.ask(change, b"0", partition)
    assert changed.returncode == 30
    assert "headers differ between source offset 0 and destination offset 0" in changed.stdout
    first = ClientTopicPartition(copied.topic, partition, 1)
    clusters.source.admin.delete_records([first])[first].result()
    shorter = reo(clusters, database, copied.topic, "verify")
    assert shorter.returncode == 0, (
        "what retention took from the source is in the table, and no difference"
    )
    assert (
        f"{copied.topic}-{partition}: {len(copied.written['repeated headers']) - 1} records equal"
        " from source offset 1 and" in shorter.stdout
    )


@pytest.mark.parametrize("words", ["recover", "topics", "offsets translate --group g"])
def test_what_looks_at_a_destination_topic_is_refused(
    clusters: Clusters, database: Server, copied: Copied, words: str
) -> None:
    """Exit code 2 and the setting's name."""
    done = reo(clusters, database, copied.topic, *words.split())
    assert done.returncode == 2
    assert "cannot be used with destination.class" in done.stderr


# One transaction, by hand


@pytest.fixture
def destination(database: Server, topic: str) -> Iterator[TableDestination]:
    """The destination of one route, with a table of its own in a schema of its own."""
    made = take_over(database, topic[-40:])
    yield made
    made.close()


@pytest.mark.parametrize("name", ["a\0b", "\0"])
def test_a_name_that_a_text_can_not_hold_is_refused(
    destination: TableDestination, database: Server, name: str
) -> None:
    """Nothing is changed to fit: the record is named, and nothing of its transaction is there, its
    frontier neither.
    """
    good = (b"k", b"v", [("a", b"1"), ("a", None)], 0)
    with pytest.raises(
        RecordRefused, match=r"source partition 0 at offset 11: .*invalid byte sequence"
    ) as refused:
        transact(destination, [good, (b"k", b"v", [("a", b"1"), (name, b"1")], 0), good])
    assert refused.value.is_explained
    assert rows(destination, database) == []
    transact(destination, [good])
    assert rows(destination, database) == [(0, 10, b"k", ["a", "a"], [b"1", None])]


def test_a_frontier_that_is_not_as_it_was_read_is_not_moved(
    destination: TableDestination, database: Server
) -> None:
    """The fence alone tells, and the string alone: neither the records nor the frontier are
    there.
    """
    tp = destination.tp
    there = TopicPartition(f"{tp.topic}-proxy", 0)
    transact(destination, [], "one")
    held = destination.store.rows[there]
    for other in (FrontierRow(held.fence + 1, held.frontier), FrontierRow(held.fence, "two")):
        destination.store.rows[there] = other
        with pytest.raises(StageFailed, match="another worker has taken"):
            transact(destination, [(b"k", None, None, 0)], "three")
    assert rows(destination, database) == []
    destination.store.rows[there] = held
    transact(destination, [(b"k", None, None, 0)], "three")
    assert len(rows(destination, database)) == 1


def test_a_first_frontier_that_is_there_already_is_not_recreated(
    destination: TableDestination,
) -> None:
    """Two workers that both found none: the second one is fenced."""
    transact(destination, [], "one")
    destination.store.rows.clear()
    with pytest.raises(StageFailed):
        transact(destination, [], "two")


def test_a_slow_database_ends_a_transaction_and_is_named_for_a_single_record(
    destination: TableDestination, database: Server
) -> None:
    """While it is waited for there are signs of life; what does not fit in its time is tried with
    fewer records, and a single one becomes a named stop.
    """
    tp = destination.tp
    beats: list[bool] = []
    store, set_deadline = destination.store, destination.store.set_deadline
    object.__setattr__(store.setup, "on_wait", lambda _: beats.append(True))

    def limit(deadline_s: float) -> None:
        store.set_deadline = lambda seconds: set_deadline(
            seconds if seconds == math.inf else deadline_s
        )

    def count_beats() -> int:
        """During a transaction that is not over in time."""
        resume_after_failure(destination, -1)
        beats.clear()
        with pytest.raises(TransactionFailed, match="not over"):
            transact(destination, records, FRONTIER)
        return len(beats)

    database.ask(SLOW)
    try:
        database.ask(
            f'CREATE TRIGGER slow BEFORE INSERT ON "Other schema"."{tp.topic}" FOR EACH ROW'
            ' EXECUTE FUNCTION "Other schema".slow()'
        )
        records = [(None, b"value", None, 1)] * 100
        limit(math.inf)
        transact(destination, [], FRONTIER)
        limit(1.0)
        # who stands still meanwhile gives none
        assert any(count_beats() > 3 for _ in range(3)), "all the time"
        limit(math.inf)
        resume_after_failure(destination, -1)
        transact(destination, records[:5], FRONTIER)
        limit(0.01)
        for wanted in (TransactionFailed, TransactionFailed, RecordRefused):
            resume_after_failure(destination, 14)
            with pytest.raises(
                wanted, match="0 at offset 15" if wanted is RecordRefused else "not over"
            ):
                transact(destination, records[:1], FRONTIER, 15)
    finally:
        database.ask('DROP FUNCTION "Other schema".slow() CASCADE')
