"""Stage two into PostgreSQL, on a real server: exactly once while workers, zombies and the server
die; and what it needs to authenticate.

The intermediate topic is fed by hand (`tests.harness.stage_one`);
`tests/e2e/test_postgresql_copy.py` has the whole service, `tests/e2e/test_postgresql_mirror.py`
what the group says beside the database.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.conftest import Start, make_topic_name
from tests.e2e.test_crash_points import (
    SMALL_TRANSACTIONS,
    assert_died,
    die_at,
    wait_for_successor,
)
from tests.harness.copy_judge import Record, compare_partitions
from tests.harness.crash_matrix import STAGE_TWO, STAGE_TWO_IDS, Deaths
from tests.harness.failpoint_marker import wait_for_failpoint
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.postgresql import PASSWORD, STORE, Server
from tests.harness.recovery import add_source_offsets
from tests.harness.service import (
    read_command_line,
    send_signal,
    stopped,
)
from tests.harness.stage_one import (
    create_epoch,
    wait_for_frontiers,
    wrap_records,
    write_intermediate,
)
from tests.harness.to_tables import (
    COLUMNS,
    PARTITIONS,
    WRONG,
    assert_exact,
    read_database_frontiers,
    read_mirror,
    run,
    start_stage_two,
    wait_for_rows,
)

RECORDS = 3000
WAITING = f"waiting for {STORE}"


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that is short enough for a table."""
    return make_topic_name(request.node.name[:50])


# Kills and stops


@pytest.mark.parametrize("deaths", STAGE_TWO, ids=STAGE_TWO_IDS)
def test_stage_two_killed_at(
    clusters: Clusters, database: Server, topic: str, start: Start, tmp_path: Path, deaths: Deaths
) -> None:
    """Killed at each of these points, and started again each time: every record is a row once, in
    order, and the group says what the database says.
    """
    service = start_stage_two(
        clusters,
        database,
        topic,
        start,
        2 * RECORDS,
        die_at=die_at(deaths, tmp_path),
        **SMALL_TRANSACTIONS,
    )
    run(clusters, topic, 0, 2 * RECORDS)
    wait_for_rows(database, topic, 2 * RECORDS)
    wait_for_successor(deaths, tmp_path, service)
    service.stop()
    assert_died(deaths, tmp_path, service.log)
    assert_exact(clusters, database, topic)


def test_the_server_is_stopped_at_once_during_the_work(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Three times an immediate shutdown while records flow, more of them meanwhile, and a recovery:
    the worker waits, is not restarted, and nothing is lost.
    """
    server = Server()
    try:
        service = start_stage_two(
            clusters,
            server.make().start(),
            topic,
            start,
            4 * RECORDS,
            deduplicator_transaction_records="50",
        )
        epoch = create_epoch()
        batch = wrap_records(
            clusters, topic, add_source_offsets(make_records(range(4 * RECORDS), PARTITIONS)), epoch
        )
        envelopes = len(batch) // 4 + 1
        for part in range(4):
            some = batch[part * envelopes : (part + 1) * envelopes]
            write_intermediate(clusters, topic, topic, some)
            if part < 3:
                until(lambda part=part: len(server.offsets(topic)) > part * RECORDS, "records flow")
                # before: the worker can have noticed, and said it once, when the server is down
                waits = service.log.count(WAITING)
                server.stop_at_once()
                write_intermediate(clusters, topic, topic, batch[:10])
                until(
                    lambda waits=waits: service.log.count(WAITING) > waits,
                    "the worker has noticed",
                )
                server.start()
        wait_for_rows(server, topic, 4 * RECORDS)
        assert service.metric("reo_stage_restarts_total", stage="deduplicator") == 0
        service.stop()
        assert server.log.count("received immediate shutdown request") == 3
        assert_exact(clusters, server, topic)
    finally:
        server.end()


@pytest.mark.parametrize(
    ("point", "says"),
    [
        ("two: written", "StageFailed: another worker has taken"),
        ("two: offsets sent", "reading the frontier again after"),
    ],
)
def test_a_worker_that_stood_still_moves_nothing(
    clusters: Clusters,
    database: Server,
    topic: str,
    start: Start,
    tmp_path: Path,
    point: str,
    says: str,
) -> None:
    """Frozen before its transaction, or in it with rows locked, while another worker copies all of
    it: thawed, it is fenced.
    """
    proof = tmp_path / "frozen"
    brief = {"deduplicator_session_timeout_ms": "6000"} | SMALL_TRANSACTIONS
    frozen = start_stage_two(
        clusters,
        database,
        topic,
        start,
        RECORDS,
        instance="frozen",
        freeze_at=f"{point}:3:{proof}",
        # neither the server ends what it stands still in, nor its supervisor the process
        **brief | {"deduplicator_transaction_timeout_ms": "600000"},
    )
    run(clusters, topic, 0, RECORDS)
    pid = wait_for_failpoint(proof, point)
    frozen.process.send_signal(signal.SIGSTOP)
    before = len(database.offsets(topic))
    assert before < RECORDS
    other = start_stage_two(clusters, database, topic, start, RECORDS, instance="other", **brief)
    wait_for_rows(database, topic, RECORDS)
    locked = "were in the middle of a transaction on the frontiers"
    assert (locked in other.log) == (point == "two: offsets sent")
    send_signal(pid, signal.SIGCONT)
    frozen.process.send_signal(signal.SIGCONT)  # it forwards what the worker says
    until(lambda: says in frozen.log, f"the thawed worker says {says!r}")
    assert compare_partitions(clusters.source.read(topic), database.read(topic, PARTITIONS)) == []
    for service in (frozen, other):
        service.stop()
    assert len(database.offsets(topic)) == RECORDS


def test_stage_two_killed_between_both_commits(
    clusters: Clusters, database: Server, topic: str, start: Start, tmp_path: Path
) -> None:
    """Frozen when the database has committed and the group does not know yet, which is seen, then
    killed: nothing is copied twice, and the group is told.
    """
    proof = tmp_path / "frozen"
    # met in the first frontier's commit, then before and after the group's commit in each round
    point = "two: committed"
    service = start_stage_two(
        clusters,
        database,
        topic,
        start,
        RECORDS,
        freeze_at=f"{point}:4:{proof}",
        **SMALL_TRANSACTIONS,
    )
    run(clusters, topic, 0, RECORDS)
    pid = wait_for_failpoint(proof, point)
    assert 0 < len(database.offsets(topic)) < RECORDS
    assert read_mirror(clusters, topic) != read_database_frontiers(database, topic)
    send_signal(pid)
    wait_for_rows(database, topic, RECORDS)
    service.stop()
    assert_exact(clusters, database, topic)


# Getting in


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (
            "CREATE TABLE {} (partition int, source_offset bigint, value text)",
            "lacks timestamp_ms bigint, key bytea, value bytea",
        ),
        (f"CREATE TABLE {{}} ({COLUMNS})", "the primary key (partition, source_offset)"),
        (
            f"CREATE UNLOGGED TABLE {{}} ({COLUMNS}, PRIMARY KEY (partition, source_offset))",
            "has to be logged",
        ),
    ],
)
def test_a_table_of_another_shape_is_refused(
    clusters: Clusters, database: Server, topic: str, start: Start, table: str, words: str
) -> None:
    """Before anything is copied: other columns, no key, or one that a crash of the server
    empties.
    """
    clusters.source.create(topic, PARTITIONS)
    database.ask(table.format(f'"{topic}"'))
    stopped(
        start(topic, "deduplicator", **database.settings()),
        13,
        "TopicsUnfit",
        topic,
        words,
    )


def test_a_wrong_password_is_one_clear_message(
    clusters: Clusters, database: Server, topic: str, start: Start
) -> None:
    """Exit code 12; neither the log, at DEBUG, nor a command line has a password."""
    clusters.source.create(topic, PARTITIONS)
    service = start(
        topic, "deduplicator", **database.settings(database.connection(WRONG)), log_level="DEBUG"
    )
    stopped(
        service, 12, "AccessRefused", "password authentication failed", "destination.connection"
    )
    assert len(service.errors) == 1
    assert WRONG not in service.log


def test_the_connection_string_can_be_a_file(
    clusters: Clusters, database: Server, topic: str, start: Start, tmp_path: Path
) -> None:
    """And what is in it is in no log and no command line; timestamp 0, which Kafka's client cannot
    write, is held as it is.
    """
    (tmp_path / "secret").write_text(database.connection() + "\n")
    clusters.source.create(topic, PARTITIONS)
    service = start(
        topic,
        "deduplicator",
        destination_class=STORE,
        destination_connection_file=str(tmp_path / "secret"),
        log_level="DEBUG",
    )
    wait_for_frontiers(service, PARTITIONS)
    records = [
        Record(b"k", b"v", (("a", b"1"), ("a", None), ("", b"")), 0),
        Record(None, None, (), 1),
    ]
    write_intermediate(
        clusters,
        topic,
        topic,
        wrap_records(
            clusters, topic, [(1, offset, record) for offset, record in enumerate(records)]
        ),
    )
    wait_for_rows(database, topic, 2)
    assert database.read(topic, PARTITIONS) == {0: [], 1: records}
    assert not [pid for pid in service.list_processes() if PASSWORD in read_command_line(pid)]
    service.stop()
    assert PASSWORD not in service.log
