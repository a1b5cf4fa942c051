"""`filter.sql` with real Spark on real brokers: what passes is copied once; what does not pass is
no stall, and no end missed. What the sink writes: `tests/e2e/test_sink.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition

from tests.conftest import Start
from tests.harness.commands import run_python
from tests.harness.copy_judge import Record, compare_partitions
from tests.harness.filter_functions import passing
from tests.harness.kafka import COPY_S, Clusters, make_record, make_records, until
from tests.harness.recovery import read_frontiers
from tests.harness.service import send_signal, stopped

PARTITIONS = 2
RECORDS = 3000
THIRDS = "cast(substring(cast(value as string), 1, 10) as int) % 3 > 0"
SHORT_BATCHES = {"replicator_batch_s": "5"}

LOOKED_AT = """
import sys
from common.errors import SettingsInvalid
from common.routes import Route
from common.settings import load
from common.kafka.topics import Topic
from replicator import sql_filter
from replicator.spark import session
environment = {"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1", "REO_SOURCE_TOPIC": "t"}
environment["REO_DESTINATION_BOOTSTRAP_SERVERS"] = "b:1"
spark = session.start_session(load(environment), 1)
for asked in sys.argv[1:]:
    try:
        sql_filter.check_condition(spark, asked)
        print("taken")
    except SettingsInvalid as refused:
        print(refused)
"""
ASKED = {
    "partition = 0 and headers[0].key = 'a'": "taken",
    "exists(headers, h -> h.key = 'a' and cast(h.value as string) = 'b')": "taken",
    "get_json_object(cast(value as string), '$.kind') = 'order' and timestamp > '2024-01-01'": (
        "taken"
    ),
    "nobody = 1": "UNRESOLVED_COLUMN",
    "value >": "PARSE_SYNTAX_ERROR",
    "key": "FILTER_NOT_BOOLEAN",
    "count(*) > 1": "INVALID_WHERE_CONDITION",
    "rand() > 0.5": "different results for the same record",
    "uuid() = 'x'": "different results for the same record",
    "(select 1) = 1": "different results for the same record",
}
"""Conditions, and a part of what is said of them."""


def source(clusters: Clusters, topic: str) -> list[tuple[int, Record]]:
    """A source of plain records."""
    clusters.source.create(topic, PARTITIONS)
    written = make_records(range(RECORDS), PARTITIONS)
    clusters.source.write(topic, written)
    return written


def empty(clusters: Clusters, topic: str) -> None:
    """Delete all that the source has, as retention does with a quiet topic."""
    for partition, end in clusters.source.end_offsets(topic).items():
        tp = TopicPartition(topic, partition, end)
        clusters.source.admin.delete_records([tp])[tp].result()


def differences(
    clusters: Clusters, topic: str, passes: Callable[[list[Record]], list[Record]] = passing
) -> list[str]:
    """The judge's verdict on what passes."""
    return compare_partitions(
        {partition: passes(records) for partition, records in clusters.source.read(topic).items()},
        clusters.destination.read(topic),
    )


def test_conditions_are_refused_with_what_spark_says() -> None:
    """What is no condition, and what is none of the record alone."""
    said = run_python(LOOKED_AT, *ASKED, check=True).stdout.splitlines()
    assert len(said) == len(ASKED), said
    assert [
        line
        for (condition, part), line in zip(ASKED.items(), said, strict=True)
        if part not in line
    ] == []
    assert not any("stacktrace" in line or "at org." in line for line in said)


def test_a_bad_condition_is_a_stop(clusters: Clusters, topic: str, start: Start) -> None:
    """Spark's message, the exit code of wrong settings, and nothing copied."""
    source(clusters, topic)
    service = start(topic, filter_sql="nobody = 1")
    stopped(service, 2, "SettingsInvalid", "filter.sql", "UNRESOLVED_COLUMN", timeout_s=COPY_S)
    assert "run with epoch" not in service.log
    assert clusters.destination.count_offsets(topic) == 0


@pytest.mark.long
def test_a_record_that_the_condition_can_not_decide_is_a_stop(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """A cast that fails at a record is named with Spark's message, and not tried for ever."""
    clusters.source.create(topic, 1)
    clusters.source.write(topic, [(0, Record(b"k", b"1", (), 1)), (0, Record(b"k", b"one", (), 1))])
    service = start(topic, "--stop-at-end", filter_sql="cast(cast(value as string) as int) > 0")
    assert service.wait_for_exit() == 35, service.read_log_tail()
    line = next(line for line in service.errors if "FilterFailed" in line)
    assert "CAST_INVALID_INPUT" in line
    assert "try_cast" in line


def test_what_passes_is_exact_while_both_stages_are_killed(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Followed live: killed on the way, the copy has what passes; then the lag becomes 0 though the
    last records do not pass, and no run is called stalled.
    """
    source(clusters, topic)
    service = start(topic, filter_sql=THIRDS, **SHORT_BATCHES)
    until(lambda: clusters.destination.count_offsets(topic) > 0, "records flow", COPY_S)
    for stage in ("replicator", "deduplicator"):
        send_signal(until(lambda stage=stage: service.find_pid(stage), f"{stage} lives"))
        clusters.source.write(
            topic,
            [
                (n % PARTITIONS, make_record(n))
                for n in range(RECORDS, 2 * RECORDS)
                if (n % 2 == 0) == (stage == "replicator")
            ],
        )
    until(
        lambda: (
            clusters.destination.count_offsets(topic) >= RECORDS * 4 // 3
            and not differences(clusters, topic)
        ),
        "what passes is copied",
        COPY_S,
    )
    clusters.source.write(topic, [(0, make_record(3 * n)) for n in range(RECORDS, RECORDS + 50)])
    end = sum(clusters.source.end_offsets(topic).values())
    until(
        lambda: service.metric("reo_source_end_offset", topic=topic) == end,
        "the filtered records are seen",
        COPY_S,
    )
    until(
        lambda: service.metric("reo_lag_records", stage="replicator") == 0,
        "nothing lags behind",
        COPY_S,
    )
    stalled = service.metric("reo_runs_total", reason="stalled")
    assert service.metric("reo_stage_restarts_total", stage="replicator") >= 1
    end = sum(clusters.source.end_offsets(topic).values())
    until(
        lambda: service.metric("reo_frontier_offset") == end - PARTITIONS,
        "what was left out is written down",
        COPY_S,
    )
    assert service.metric("reo_runs_total", reason="stalled") == stalled
    service.stop()
    assert differences(clusters, topic) == []
    copied = clusters.destination.count_offsets(topic)
    empty(clusters, topic)
    again = start(topic, "--stop-at-end", filter_sql=THIRDS)
    assert again.wait_for_exit() == 0, again.read_log_tail()
    assert clusters.destination.count_offsets(topic) == copied


@pytest.mark.long
@pytest.mark.parametrize(
    ("condition", "there"),
    [
        ("offset < 0", 0),
        ("partition = 0 and offset < 1000", 1000),
    ],
    ids=["nothing passes", "a beginning passes"],
)
def test_the_end_is_found_behind_what_does_not_pass(
    clusters: Clusters, topic: str, start: Start, condition: str, there: int
) -> None:
    """--stop-at-end ends with exit code 0; again it ends too, also when retention has deleted what
    was left out, and nothing is copied twice.
    """
    source(clusters, topic)
    passed = clusters.source.read(topic)[0][:there]
    last = {partition: end - 1 for partition, end in clusters.source.end_offsets(topic).items()}

    def copy_to_end(**filters: str) -> None:
        service = start(topic, "--stop-at-end", **filters)
        assert service.wait_for_exit() == 0, service.read_log_tail()
        assert read_frontiers(clusters.destination, topic) == last
        copy = clusters.destination.read(topic)
        assert [copy[0], copy[1]] == [passed, []]

    copy_to_end(filter_sql=condition)
    copy_to_end(filter_sql=condition)
    empty(clusters, topic)
    copy_to_end(filter_sql=condition)
    copy_to_end()  # what was left out is not taken for a loss when the filter is no more
