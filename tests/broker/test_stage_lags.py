"""Each stage's lag on real brokers, as `reo lag` and `reo status` say it: whose it is, since when,
and whether stage two runs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from tests.broker.test_status import HALF, RECORDS, feed_the_rest
from tests.conftest import Start
from tests.harness.commands import as_json, everything, reo
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.recovery import (
    FIRST_RECORDS,
    PARTITIONS,
    copy_and_stop,
    wait_for_empty_group,
)
from tests.harness.stage_one import wait_for_frontiers

NOTHING: dict[str, Any] = {"records": 0, "seconds": 0.0}


def read_lags(clusters: Clusters, topic: str) -> tuple[dict[str, Any], dict[str, Any]]:
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


@contextlib.contextmanager
def assert_unchanged(clusters: Clusters, topic: str) -> Iterator[None]:
    """What is done meanwhile leaves both clusters as they were."""
    before = [everything(cluster, topic) for cluster in (clusters.source, clusters.destination)]
    yield
    assert [
        everything(cluster, topic) for cluster in (clusters.source, clusters.destination)
    ] == before, "a look has changed something"


def check_lag_without_a_copy(clusters: Clusters, topic: str) -> None:
    """Ten records, of which nothing is copied: all of it is stage one's, and stage two does not
    run.
    """
    total, status = read_lags(clusters, topic)
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


def check_no_lag(clusters: Clusters, topic: str) -> None:
    """The first half is copied, and stage two runs."""
    total, status = read_lags(clusters, topic)
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


def check_lag_of_stage_one(clusters: Clusters, topic: str) -> None:
    """The second half is at the source only."""
    written_s, asked_s = RECORDS[FIRST_RECORDS][1].timestamp_ms / 1000, time.time()
    total, _ = read_lags(clusters, topic)
    assert (total["stage_one"]["records"], total["stage_two"], total["both"]["records"]) == (
        FIRST_RECORDS,
        NOTHING,
        FIRST_RECORDS,
    )
    assert asked_s - written_s - 1 < total["both"]["seconds"] < time.time() - written_s + 1, (
        "the first record that waits is as old as its timestamp says"
    )


def check_lag_of_stage_two(clusters: Clusters, topic: str, fed_s: float) -> None:
    """The second half waits in the intermediate topic since then, and stage two does not run."""
    total, status = read_lags(clusters, topic)
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


def check_bounds_of_lag(clusters: Clusters, topic: str) -> None:
    """With a bound that is exceeded the command fails, with 36."""
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


def test_each_stage_has_its_own_lag(clusters: Clusters, topic: str, start: Start) -> None:
    """Nothing copied; all copied; stage one still; stage two stopped; all copied again: whose lag
    it is, since when, and whether stage two runs.
    """
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, make_records(range(10), PARTITIONS))
    with assert_unchanged(clusters, topic):
        check_lag_without_a_copy(clusters, topic)
    clusters.source.delete(topic)

    copy_and_stop(clusters, topic, start, RECORDS)
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, PARTITIONS)
    check_no_lag(clusters, topic)

    clusters.source.write(topic, RECORDS[FIRST_RECORDS:])
    check_lag_of_stage_one(clusters, topic)

    service.stop()
    wait_for_empty_group(clusters.destination, topic)
    fed_s = time.time()
    feed_the_rest(clusters, topic)
    with assert_unchanged(clusters, topic):
        check_lag_of_stage_two(clusters, topic, fed_s)
    check_bounds_of_lag(clusters, topic)

    service = start(topic, "deduplicator")
    clusters.wait_for_copy(topic, 2 * FIRST_RECORDS)
    until(lambda: as_json(clusters, topic, "lag")["total"]["both"] == NOTHING, "nothing waits")
    service.stop()
