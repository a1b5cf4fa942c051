"""`reo check`, `reo status` and `reo lag` of a copy to PostgreSQL, on a real server: what would be
done, each error of a start, where the copy stands; and nothing is changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Start, make_topic_name
from tests.harness.commands import as_json, everything, reo
from tests.harness.findings import list_findings
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.postgresql import DATABASE, PASSWORD, STORE, USER, Server
from tests.harness.recovery import delete_group, wait_for_empty_group
from tests.harness.service import deaf_address
from tests.harness.stage_one import wait_for_frontiers
from tests.harness.to_tables import (
    COLUMNS,
    PARTITIONS,
    WRONG,
    make_first_copy,
    read_database_frontiers,
    run,
    wait_for_rows,
)

GUEST = "guest of the tests"
UNKNOWN = f"cannot be checked: only {STORE} knows what it has stored"
Harm = Callable[[Clusters, Server, str], dict[str, str]]


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that is short enough for a table."""
    return make_topic_name(request.node.name[:40])


def all_of(clusters: Clusters, database: Server, topic: str) -> list[Any]:
    """All that a command could have changed of this test's."""
    tables = database.ask(
        "SELECT relname, relkind, relacl::text FROM pg_class WHERE relnamespace ="
        " 'public'::regnamespace AND strpos(relname, %s) > 0 ORDER BY 1",
        topic,
    )
    there = database.ask("SELECT to_regclass('public.reo_frontier')")[0][0]
    frontiers = (
        database.ask(
            "SELECT * FROM reo_frontier WHERE application = %s ORDER BY 1, 2, 3", f"reo-{topic}"
        )
        if there
        else []
    )
    return [everything(cluster, topic) for cluster in (clusters.source, clusters.destination)] + [
        tables,
        frontiers,
        database.offsets(topic),
    ]


def run_json(
    clusters: Clusters, database: Server, topic: str, *words: str, exit_code: int = 0, **more: str
) -> Any:
    """What a command says with `--json`, having changed nothing and shown no password."""
    before = all_of(clusters, database, topic)
    done = reo(
        clusters,
        topic,
        *words,
        "--json",
        exit_code=exit_code,
        **database.settings() | more,
    )
    assert all_of(clusters, database, topic) == before
    assert PASSWORD not in done.stdout + done.stderr
    assert WRONG not in done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_new_copy(clusters: Clusters, database: Server, topic: str) -> None:
    """Nothing is wrong; the database, the tables and the topic that would be made, and where the
    copy would begin. No word of a destination topic.
    """
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, make_records(range(100), PARTITIONS))
    check = run_json(clusters, database, topic, "check")
    assert (list_findings(check, "error"), list_findings(check, "warning")) == ([], [])
    assert list_findings(check, "ok", "destination database")[0].endswith(
        f"database {DATABASE}, user {USER}"
    )
    assert list_findings(check, "ok", f"table {topic}") == ["does not exist: it would be created"]
    assert [
        finding["about"] for finding in check["findings"] if finding["about"].startswith("topic ")
    ] == [f"topic {topic}-proxy"]
    assert not [
        finding
        for finding in check["findings"]
        if finding["about"].startswith(("retention", "timestamps", "destination transactions"))
    ]
    assert list_findings(check, "ok", "frontier")[0].endswith(
        "would begin at source offsets 0=0, 1=0; 100 offsets to copy"
    )


def wrong_password(clusters: Clusters, database: Server, topic: str) -> dict[str, str]:
    """Not let in."""
    return database.settings(database.connection(WRONG))


def silent(clusters: Clusters, database: Server, topic: str) -> dict[str, str]:
    """Nobody listens there."""
    port = deaf_address().rpartition(":")[2]
    return {
        "destination_connection": f"host=127.0.0.1 port={port} user=a password={WRONG}",
        "connect_timeout_s": "2",
    }


def no_schema(clusters: Clusters, database: Server, topic: str) -> dict[str, str]:
    """Nobody has made it."""
    return {"destination_options": json.dumps({"schema": topic})}


def other_shape(clusters: Clusters, database: Server, topic: str) -> dict[str, str]:
    """Somebody has made the table."""
    database.ask(f'CREATE TABLE "{topic}" (partition int, source_offset bigint, value text)')
    return {}


def guest(database: Server) -> dict[str, str]:
    """Another user, with no rights but everybody's."""
    if not database.ask("SELECT 1 FROM pg_roles WHERE rolname = %s", GUEST):
        database.ask(f"CREATE ROLE \"{GUEST}\" LOGIN PASSWORD '{WRONG}'")
    return database.settings(database.connection(WRONG, f"'{GUEST}'"))


def may_make_nothing(clusters: Clusters, database: Server, topic: str) -> dict[str, str]:
    """As everybody since PostgreSQL 15."""
    database.ask("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    return guest(database)


def may_not_insert(clusters: Clusters, database: Server, topic: str) -> dict[str, str]:
    """The table is there and may be read; one column of it may be written."""
    more = guest(database)
    database.ask(f'CREATE TABLE "{topic}" ({COLUMNS}, PRIMARY KEY (partition, source_offset))')
    database.ask(f'GRANT SELECT, INSERT (key) ON "{topic}" TO "{GUEST}"')
    return more


@pytest.mark.parametrize(
    ("harm", "exit_code", "error", "words"),
    [
        (wrong_password, 12, "AccessRefused", "password authentication failed"),
        (silent, 10, "ClusterUnreachable", "the database does not answer"),
        (
            no_schema,
            13,
            "TopicsUnfit",
            "does not exist. Create it, or correct the schema in destination.options",
        ),
        (other_shape, 13, "TopicsUnfit", "lacks timestamp_ms bigint"),
        (may_make_nothing, 12, "AccessRefused", "lacks CREATE on the schema public"),
        (may_not_insert, 12, "AccessRefused", "lacks INSERT on the table"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_each_error_before_a_copy(
    clusters: Clusters,
    database: Server,
    topic: str,
    harm: Harm,
    exit_code: int,
    error: str,
    words: str,
) -> None:
    """The error is named with the service's exit code; the frontier is called unknown."""
    clusters.source.create(topic, PARTITIONS)
    more = harm(clusters, database, topic)

    def check_frontier() -> Any:
        found = run_json(clusters, database, topic, "check", exit_code=exit_code, **more)
        said = list_findings(found, "warning", "frontier")
        return found if said == [UNKNOWN] else None

    check = until(check_frontier, "Kafka too answers in a short timeout, and the frontier is named")
    errors = [finding for finding in check["findings"] if finding["level"] == "error"]
    assert {(finding["error"], finding["exit_code"]) for finding in errors} == {(error, exit_code)}
    assert any(words in finding["seen"] for finding in errors)


def insert_foreign_row(clusters: Clusters, database: Server, topic: str) -> None:
    """Somebody inserts."""
    database.ask(f'INSERT INTO "{topic}" (partition, source_offset) VALUES (1, 1000)')


def delete_newest_rows(clusters: Clusters, database: Server, topic: str) -> None:
    """The newest ones."""
    database.ask(f'DELETE FROM "{topic}" WHERE partition = 1 AND source_offset > 40')


def set_database_back(clusters: Clusters, database: Server, topic: str) -> None:
    """Restored from the time before the copy, but for the group."""
    database.ask(
        "UPDATE reo_frontier SET frontier = replace(frontier, '\"f\":49', '\"f\":9') WHERE"
        " application = %s",
        f"reo-{topic}",
    )
    database.ask(f'DELETE FROM "{topic}" WHERE source_offset > 9')


@pytest.mark.parametrize(
    ("harm", "exit_code", "error", "words"),
    [
        (insert_foreign_row, 25, "ForeignWriter", "source offset 1000"),
        (delete_newest_rows, 26, "DestinationTruncated", "source offset 49, now it is 40"),
        (set_database_back, 26, "DestinationTruncated", "postgresql was set back"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_each_error_of_a_copy_that_stands(
    clusters: Clusters,
    database: Server,
    topic: str,
    start: Start,
    harm: Callable[[Clusters, Server, str], None],
    exit_code: int,
    error: str,
    words: str,
) -> None:
    """Before the harm all is well and the copy would go on where it is; after it the error is the
    one that the service would stop with.
    """
    make_first_copy(clusters, database, topic, start)
    wait_for_empty_group(clusters.destination, topic)
    well = run_json(clusters, database, topic, "check")
    assert list_findings(well, "ok", f"table {topic}")[0].startswith("exists")
    assert list_findings(well, "ok", "frontier")[0].endswith(
        "the destination confirms it; the copy would continue at source offsets 0=50, 1=50; 100"
        " offsets to copy"
    )
    harm(clusters, database, topic)
    check = run_json(clusters, database, topic, "check", exit_code=exit_code)
    assert [finding["error"] for finding in check["findings"] if finding["level"] == "error"] == [
        error
    ]
    assert words in list_findings(check, "error")[0]


def test_the_database_knows_what_the_group_lost(
    clusters: Clusters, database: Server, topic: str, start: Start
) -> None:
    """The copy continues without the group; while the service runs, its members are named."""
    again = make_first_copy(clusters, database, topic, start)
    delete_group(clusters.destination, topic)
    assert (
        "the group lost its commit and the store has it"
        in list_findings(run_json(clusters, database, topic, "check"), "ok", "frontier")[0]
    )
    service = start(topic, "deduplicator", **again)
    wait_for_frontiers(service, PARTITIONS)
    assert (
        ": the service runs, or stopped"
        in list_findings(as_json(clusters, topic, "check", **again), "ok", "consumer group")[0]
    )
    service.stop()


def test_status_and_lag(clusters: Clusters, database: Server, topic: str, start: Start) -> None:
    """Of each stage: stage one still, then stage two; then all is copied."""
    again = make_first_copy(clusters, database, topic, start)
    wait_for_empty_group(clusters.destination, topic)

    def read_lags() -> tuple[int, int, int]:
        return tuple(
            lag["records"] for lag in run_json(clusters, database, topic, "lag")["total"].values()
        )

    assert read_lags() == (100, 0, 100)
    run(clusters, topic, 100, 200)
    assert read_lags() == (0, 100, 100)
    status = run_json(clusters, database, topic, "status")
    assert status["stage_two"].startswith("does not run")
    assert [(row["stage_one_offset"], row["frontier"]) for row in status["partitions"]] == [
        (100, 49)
    ] * PARTITIONS
    assert (status["would_stop"], status["undecided"]) == (None, {})
    service = start(topic, "deduplicator", **again)
    wait_for_rows(database, topic, 200)
    until(
        lambda: (
            reo(clusters, topic, "lag", "--max-records", "0", exit_code=None, **again).returncode
            == 0
        ),
        "nothing waits",
    )
    service.stop()
    assert '"f":99' in read_database_frontiers(database, topic)[0][1]
