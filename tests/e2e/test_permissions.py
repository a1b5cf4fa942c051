"""The least permissions, on real brokers with an authorizer: with exactly these ACLs everything
works, without any one of them its name is said.

The cases are the rows of `common.kafka.needed_acls`, from which the table in docs/reference.md is
made: each row of each command is one case.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewPartitions

from common.kafka.needed_acls import PERMISSIONS, STAGES, Command, Permission, list_needed
from tests.conftest import Start, make_topic_name
from tests.harness.authorized import Authorized
from tests.harness.group_offsets import commit
from tests.harness.kafka import make_records, until
from tests.harness.least_permissions import (
    BOUND_S,
    COMMANDS,
    GROUP,
    PRINCIPALS,
    Stand,
    build_expected_words,
)
from tests.harness.service import stopped
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate
from tests.harness.transactional_copy import placed

PARTITIONS = 2
RECORDS = 200
CASES = [(command, row) for command in COMMANDS for row in list_needed([command])]


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """Two clusters that allow nobody anything."""
    folder = tmp_path_factory.mktemp("authorized")
    made: list[Authorized] = []
    try:
        made += [
            Authorized(folder / side, PRINCIPALS.values()) for side in ("source", "destination")
        ]
        for side in made:
            side.ready()
        yield Stand(made[0], made[1])
    finally:
        for side in made:
            side.broker.kill()


@pytest.fixture(scope="module")
def topics_of_cases(stand: Stand) -> dict[str, str]:
    """Three sources, of which every command may copy every one: with topics that are there, that
    are not, and that have a partition less.
    """
    names = {state: make_topic_name(state) for state in ("there", "missing", "smaller")}
    for state, name in names.items():
        stand.source.cluster.create(name, PARTITIONS + 1)
        if state != "missing":
            stand.destination.cluster.create(f"{name}-parked", 1)
            for made in (name, f"{name}-proxy"):
                stand.destination.cluster.create(
                    made,
                    PARTITIONS + (state == "there"),
                    **({"max_message_bytes": "2000000"} if made != name else {}),
                )
        for command in COMMANDS:
            stand.allow(
                name,
                PRINCIPALS[command],
                [
                    row
                    for row in list_needed([command])
                    if state != "there" or row.operation not in ("Create", "Alter")
                ],
            )
    return names


@pytest.mark.parametrize(
    ("command", "row"),
    CASES,
    ids=[f"{command}: {row.operation} on {row.named_by} ({row.side})" for command, row in CASES],
)
def test_without_one_permission_its_name_is_said(
    stand: Stand, topics_of_cases: dict[str, str], command: Command, row: Permission
) -> None:
    """Exit code 12 within BOUND_S, and one message with the cluster, the resource, the operation
    and the command that grants it; and of no other row.
    """
    topic = topics_of_cases[{"Create": "missing", "Alter": "smaller"}.get(row.operation, "there")]
    side, binding = stand.binding(topic, PRINCIPALS[command], row)
    side.forbid(binding)
    try:
        done = stand.run(topic, command, PRINCIPALS[command])
    finally:
        side.allow([binding])
    assert done.returncode == 12, done.stderr
    lines = [line for line in done.stderr.splitlines() if "does not allow" in line]
    # the supervisor's last line is that of the process that has ended it
    assert len({line.partition(": ")[2] for line in lines}) == 1, done.stderr
    assert [
        words for words in build_expected_words(row, stand, topic, command) if words not in lines[0]
    ] == []
    assert lines[0].count("--operation ") == 1, "something was said to be missing that is not"


@pytest.mark.long
def test_topics_that_are_there_are_copied_with_exactly_these(
    stand: Stand, topic: str, start: Start
) -> None:
    """Two services with a principal each, nothing to create: an exact copy, a restart that checks
    the destination, and the commands beside it.
    """
    stand.source.cluster.create(topic, PARTITIONS)
    stand.destination.cluster.create(topic, PARTITIONS)
    stand.destination.cluster.create(f"{topic}-parked", 1)
    stand.destination.cluster.create(f"{topic}-proxy", PARTITIONS, max_message_bytes="2000000")
    for command in COMMANDS:
        stand.allow(
            topic,
            PRINCIPALS[command],
            [row for row in list_needed([command]) if row.operation not in ("Create", "Alter")],
        )
    stand.source.cluster.write(topic, make_records(range(RECORDS), PARTITIONS))
    one = start(
        topic, "replicator", environment=stand.environment(topic, PRINCIPALS["run replicator"])
    )
    two = start(
        topic, "deduplicator", environment=stand.environment(topic, PRINCIPALS["run deduplicator"])
    )
    stand.clusters.wait_for_copy(topic, RECORDS)
    two.stop()
    stand.source.cluster.write(topic, make_records(range(RECORDS, 2 * RECORDS), PARTITIONS))
    two = start(
        topic, "deduplicator", environment=stand.environment(topic, PRINCIPALS["run deduplicator"])
    )
    stand.clusters.wait_for_copy(topic, 2 * RECORDS)
    until(
        lambda: (
            stand.destination.cluster.beginning_offsets(f"{topic}-proxy")
            == stand.destination.cluster.end_offsets(f"{topic}-proxy")
        ),
        "what is committed is deleted",
    )
    one.stop()
    two.stop()
    for words in ("verify", "topics", "topics --apply", "status", "lag", "inspect", "pause"):
        assert stand.run(topic, words, PRINCIPALS[words]).returncode == 0
    assert "nothing to recover" in stand.run(topic, "recover", PRINCIPALS["recover"]).stdout
    commit(
        stand.source.cluster, topic, GROUP, dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
    )
    for words in ("offsets translate", "offsets translate --apply"):
        assert stand.run(topic, words, PRINCIPALS[words]).returncode == 0
    assert sum(map(len, placed(stand.destination.cluster, topic, GROUP).values())) == RECORDS
    group = f"reo-{topic}"
    admin = stand.destination.cluster.admin
    until(
        lambda: not admin.describe_consumer_groups([group])[group].result().members,
        "the static member is forgotten",
        BOUND_S,
    )
    admin.delete_consumer_groups([group])[group].result()
    assert (
        "committed; start the service"
        in stand.run(topic, "recover --apply", PRINCIPALS["recover --apply"]).stdout
    )


@pytest.mark.long
def test_topics_that_reo_makes_are_copied_with_exactly_these(
    stand: Stand, topic: str, start: Start
) -> None:
    """One principal for both stages, which makes the topics, and later adds the partition that the
    source got.
    """
    stand.source.cluster.create(topic, PARTITIONS)
    stand.allow(topic, "run", list_needed(STAGES))
    stand.source.cluster.write(topic, make_records(range(RECORDS), PARTITIONS))
    environment = stand.environment(topic, "run")
    service = start(topic, environment=environment)
    stand.clusters.wait_for_copy(topic, RECORDS)
    stand.source.cluster.admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)])[
        topic
    ].result()
    until(lambda: stand.source.cluster.partitions(topic) == PARTITIONS + 1, "the source has grown")
    stand.source.cluster.write(topic, make_records(range(RECORDS, 2 * RECORDS), PARTITIONS + 1))
    stand.clusters.wait_for_copy(topic, 2 * RECORDS)
    row = next(
        row for row in PERMISSIONS if (row.named_by, row.operation) == ("source.topic", "Read")
    )
    side, binding = stand.binding(topic, "run", row)
    side.forbid(binding)
    stand.source.cluster.write(topic, make_records(range(RECORDS), PARTITIONS + 1))
    assert service.wait_for_exit(BOUND_S) == 12, service.read_log_tail()
    missing = f"the source cluster does not allow User:run: Read on Topic {topic}. "
    # Spark's task is refused too, and the JVM says so before or after
    assert any(missing in line for line in service.errors), service.read_log_tail()


def test_check_names_all_that_is_missing_at_once(stand: Stand, topic: str) -> None:
    """Two ACLs less: one error (12) has both, and what cannot be seen for want of them is called
    so; with them nothing is wrong, and nothing was made.
    """
    stand.source.cluster.create(topic, PARTITIONS)
    lacking = [
        row
        for row in list_needed(STAGES)
        if row.operation == "Read" and row.named_by in ("source.topic", "application")
    ]
    stand.allow(topic, "run", [row for row in list_needed(STAGES) if row not in lacking])
    refused = stand.run(topic, "check", "run")
    assert refused.returncode == 12
    (error,) = (line for line in refused.stdout.splitlines() if line.startswith("error"))
    assert f"Read on Topic {topic}" in error
    assert f"Read on Group reo-{topic}" in error
    assert "cannot be checked" in refused.stdout
    stand.allow(topic, "run", lacking)
    allowed = stand.run(topic, "check", "run")
    assert allowed.returncode == 0
    (warning,) = (line for line in allowed.stdout.splitlines() if line.startswith("warning"))
    assert "DescribeConfigs on the cluster is not allowed" in warning
    assert stand.destination.cluster.partitions(topic) == 0


@pytest.mark.parametrize(
    ("named_by", "operation"),
    [
        ("destination.topic", "Write"),
        pytest.param("intermediate.topic", "Read", marks=pytest.mark.long),
        ("application", "Read"),
        pytest.param("application-", "Write", marks=pytest.mark.long),
    ],
)
def test_what_is_taken_away_from_a_running_stage_two_is_named(
    stand: Stand, topic: str, start: Start, named_by: str, operation: str
) -> None:
    """The service ends with 12 and the name of what is missing, as soon as it needs it: it does not
    try again for ever.
    """
    stand.source.cluster.create(topic, PARTITIONS)
    stand.allow(topic, "run", list_needed(STAGES))
    service = start(topic, "deduplicator", environment=stand.environment(topic, "run"))
    wait_for_frontiers(service, PARTITIONS)
    row = next(row for row in PERMISSIONS if (row.named_by, row.operation) == (named_by, operation))
    side, binding = stand.binding(topic, "run", row)
    side.forbid(binding)
    write_intermediate(
        stand.clusters,
        topic,
        topic,
        wrap_records(
            stand.clusters,
            topic,
            [
                (number % PARTITIONS, number // PARTITIONS, record)
                for number, (_, record) in enumerate(make_records(range(RECORDS), PARTITIONS))
            ],
        ),
    )
    stopped(
        service,
        12,
        "AccessRefused",
        f"does not allow User:run: {operation} on {row.resource} {binding.name}",
    )
    assert stand.destination.cluster.read(topic) == {
        partition: [] for partition in range(PARTITIONS)
    }
