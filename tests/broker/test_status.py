"""`reo status` and `reo lag` on real brokers: each stage's lag is its own, the rates are those of
the copy, and what clusters do not tell is called unknown.

Stage one is played by hand (`tests.harness.stage_one`), so each stage can be held still.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from common import settings as reo_settings
from common.errors import LagsBehind
from reo.progress.lag import check_limits
from reo.progress.partition_progress import Lag
from reo.progress.status import Watcher
from tests.conftest import Start
from tests.harness.commands import COMMAND_S, ESCAPE, as_json, everything, on_a_terminal, reo
from tests.harness.kafka import ROOT, Clusters, make_records, until
from tests.harness.recovery import (
    CONSUMER_PROTOCOL,
    FIRST_RECORDS,
    PARTITIONS,
    add_source_offsets,
    copy_and_stop,
    wait_for_empty_group,
)
from tests.harness.service import build_environment
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate

HALF = FIRST_RECORDS // PARTITIONS
NOTHING: dict[str, Any] = {"records": 0, "seconds": 0.0}
RECORDS = make_records(range(2 * FIRST_RECORDS), PARTITIONS)
"""The first half is copied before."""


def feed_the_rest(clusters: Clusters, topic: str) -> None:
    """What stage one does with the second half."""
    write_intermediate(
        clusters,
        topic,
        topic,
        wrap_records(clusters, topic, add_source_offsets(RECORDS, FIRST_RECORDS)),
    )


def lags(clusters: Clusters, topic: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What both commands say, once: the total of `lag`, and `status`; they have to agree on the
    records.
    """
    lag, status = as_json(clusters, topic, "lag"), as_json(clusters, topic, "status")
    assert [
        row["lag"][stage]["records"] for row in status["partitions"] for stage in lag["total"]
    ] == [row[stage]["records"] for row in lag["partitions"] for stage in lag["total"]]
    assert {stage: of["records"] for stage, of in status["lag"].items()} == {
        stage: of["records"] for stage, of in lag["total"].items()
    }
    return lag["total"], status


def test_each_stage_has_its_own_lag(clusters: Clusters, topic: str, start: Start) -> None:
    """Nothing copied; all copied; stage one still; stage two stopped; all copied again: whose lag
    it is, since when, and whether stage two runs.
    """
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, make_records(range(10), PARTITIONS))
    before = [everything(cluster, topic) for cluster in (clusters.source, clusters.destination)]
    total, status = lags(clusters, topic)
    assert (total["stage_one"]["records"], total["stage_two"], total["both"]["records"]) == (
        10,
        NOTHING,
        10,
    )
    assert [row["frontier"] for row in status["partitions"]] == [None, None]
    assert (
        status["stage_two"]
        == "does not run: its consumer group does not exist. Stage two never ran, or the group was"
        " deleted or has expired"
    )
    assert [
        everything(cluster, topic) for cluster in (clusters.source, clusters.destination)
    ] == before, "a look has changed something"
    clusters.source.delete(topic)

    copy_and_stop(clusters, topic, start, RECORDS, **CONSUMER_PROTOCOL)
    service = start(topic, "deduplicator", **CONSUMER_PROTOCOL)
    wait_for_frontiers(service, PARTITIONS)
    total, status = lags(clusters, topic)
    assert total == {"stage_one": NOTHING, "stage_two": NOTHING, "both": NOTHING}
    assert [
        (row["source_end"], row["stage_one_offset"], row["frontier"])
        for row in status["partitions"]
    ] == [(HALF, HALF, HALF - 1)] * PARTITIONS
    assert (
        status["progress"],
        status["stage_two"].split(":")[0],
        list(status["group"]["members"].values()),
    ) == ("all is copied", "runs", [PARTITIONS])
    assert (status["last_error"], status["would_stop"]) == (None, None)

    clusters.source.write(topic, RECORDS[FIRST_RECORDS:])
    written_s, asked_s = RECORDS[FIRST_RECORDS][1].timestamp_ms / 1000, time.time()
    total, _ = lags(clusters, topic)
    assert (total["stage_one"]["records"], total["stage_two"], total["both"]["records"]) == (
        FIRST_RECORDS,
        NOTHING,
        FIRST_RECORDS,
    )
    assert asked_s - written_s - 1 < total["both"]["seconds"] < time.time() - written_s + 1, (
        "the first record that waits is as old as its timestamp says"
    )

    service.stop()
    wait_for_empty_group(clusters.destination, topic)
    fed_s = time.time()
    feed_the_rest(clusters, topic)
    before = [everything(cluster, topic) for cluster in (clusters.source, clusters.destination)]
    total, status = lags(clusters, topic)
    assert (total["stage_one"], total["stage_two"]["records"], total["both"]["records"]) == (
        NOTHING,
        FIRST_RECORDS,
        FIRST_RECORDS,
    )
    assert 0 < total["stage_two"]["seconds"] < time.time() - fed_s + 1, (
        "it waits since it was written to the intermediate topic"
    )
    assert (
        as_json(clusters, topic, "lag")["total"]["stage_two"]["seconds"]
        > total["stage_two"]["seconds"]
    )
    assert status["stage_two"].startswith("does not run")
    assert "whether it runs is unknown from outside" in status["stage_one"]
    assert f"{FIRST_RECORDS} records wait" in status["progress"]
    assert [
        everything(cluster, topic) for cluster in (clusters.source, clusters.destination)
    ] == before, "a look has changed something"

    exceeded = reo(clusters, topic, "lag", "--max-records", str(FIRST_RECORDS - 1), exit_code=36)
    assert (
        f"{FIRST_RECORDS} records, more than --max-records {FIRST_RECORDS - 1}" in exceeded.stderr
    )
    assert (
        reo(clusters, topic, "lag", "--max-records", str(FIRST_RECORDS))
        .stdout.splitlines()[-1]
        .split()[0]
        == "total"
    )
    assert (
        "more than --max-seconds 5"
        in reo(clusters, topic, "lag", "--max-seconds", "5", exit_code=36).stderr
    )

    service = start(topic, "deduplicator", **CONSUMER_PROTOCOL)
    clusters.wait_for_copy(topic, 2 * FIRST_RECORDS)
    until(lambda: as_json(clusters, topic, "lag")["total"]["both"] == NOTHING, "nothing waits")
    service.stop()


def test_rates_are_those_of_the_copy(clusters: Clusters, topic: str, start: Start) -> None:
    """Between two looks 100 records were copied: both stages have that rate, and stage one is seen
    to run.
    """
    copy_and_stop(clusters, topic, start, RECORDS, **CONSUMER_PROTOCOL)
    service = start(topic, "deduplicator", **CONSUMER_PROTOCOL)
    wait_for_frontiers(service, PARTITIONS)
    watcher = Watcher(reo_settings.load(build_environment(clusters, topic, {})))
    clusters.source.write(topic, RECORDS[FIRST_RECORDS:])
    feed_the_rest(clusters, topic)
    clusters.wait_for_copy(topic, 2 * FIRST_RECORDS)
    until(
        lambda: all(
            service.metric("reo_frontier_offset", topic=topic, partition=str(partition))
            == 2 * HALF - 1
            for partition in range(PARTITIONS)
        ),
        "the frontiers are there",
    )
    seen = watcher.take_status()
    service.stop()
    took_s = seen.now.taken_at_s - seen.before.taken_at_s
    assert [tuple(round(rate * took_s) for rate in rates) for rates in seen.rates.values()] == [
        (HALF, HALF)
    ] * PARTITIONS
    assert seen.stage_one(time.time() * 1000).startswith("runs")
    assert seen.progress().endswith("records/s are copied")


def test_what_a_start_would_stop_with(clusters: Clusters, topic: str, start: Start) -> None:
    """A source that lost what was not copied is said, with the exit code that the service would
    have; the look itself is no failure.
    """
    copy_and_stop(clusters, topic, start, RECORDS, **CONSUMER_PROTOCOL)
    clusters.source.write(topic, RECORDS[FIRST_RECORDS:])
    for answer in clusters.source.admin.delete_records(
        [TopicPartition(topic, 0, HALF + 5)]
    ).values():
        answer.result()
    status = as_json(clusters, topic, "status")
    assert (status["would_stop"]["error"], status["would_stop"]["exit_code"]) == (
        "SourceTruncated",
        20,
    )
    assert "A start would stop now: " in reo(clusters, topic, "status").stdout


def test_a_transaction_that_stays_open_is_shown(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Where it begins, when both looks have it; and not when there is none."""
    copy_and_stop(clusters, topic, start, RECORDS, **CONSUMER_PROTOCOL)
    assert as_json(clusters, topic, "status")["undecided"] == {}
    end = clusters.destination.end_offsets(topic)[0]
    producer = clusters.destination.producer(transactional_id=f"{topic}-open")
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(30) == 0
    assert as_json(clusters, topic, "status")["undecided"] == {f"{topic}-0": end}
    assert (
        f"{topic}-0: a transaction is open from offset {end} on"
        in reo(clusters, topic, "status").stdout
    )
    producer.abort_transaction(30)


def test_watching(clusters: Clusters, topic: str, start: Start) -> None:
    """On a terminal a table that is renewed in its place; with --json a line each time, until
    Ctrl-C, exit code 0; on a pipe one table, and the end.
    """
    copy_and_stop(clusters, topic, start, RECORDS, **CONSUMER_PROTOCOL)
    given = build_environment(clusters, topic, {})
    assert ESCAPE in on_a_terminal(given, "status", "--watch", "--every", "0.2", until="last error")
    assert reo(clusters, topic, "status", "--watch").stdout.count("last error") == 1
    process = subprocess.Popen(
        [sys.executable, "-m", "reo", "status", "--watch", "--json", "--every", "0.1"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], **given},
    )
    assert process.stdout is not None
    lines = [json.loads(process.stdout.readline()) for _ in range(3)]
    process.send_signal(signal.SIGINT)
    assert process.wait(COMMAND_S) == 0
    assert [line["application"] for line in lines] == [f"reo-{topic}"] * 3


def test_how_far_behind_is_too_far() -> None:
    """Both bounds are said when both are exceeded; a bound itself is allowed; seconds that are not
    known exceed nothing.
    """
    for lag in (Lag(5, 2.0), Lag(5, None), Lag(0, 0.0)):
        check_limits(lag, 5, 2.0)
    check_limits(Lag(10**9, 10.0**9), None, None)
    with pytest.raises(
        LagsBehind,
        match=(
            r"6 records, more than --max-records 5 and by 2\.1 seconds, more than --max-seconds 2"
        ),
    ):
        check_limits(Lag(6, 2.1), 5, 2.0)
