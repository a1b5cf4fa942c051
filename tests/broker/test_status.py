"""`reo status` on real brokers: the rates are those of the copy, and what a start would stop with,
an open transaction too, is shown.

Stage one is played by hand (`tests.harness.stage_one`), so each stage can be held still.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

from confluent_kafka import TopicPartition

from common import settings as reo_settings
from common.envelope import Head, compute_identity
from reo.progress.status import Watcher
from tests.conftest import Start
from tests.harness.commands import COMMAND_S, ESCAPE, as_json, on_a_terminal, reo
from tests.harness.copy_judge import Record
from tests.harness.kafka import ROOT, Clusters, make_records, until
from tests.harness.recovery import (
    FIRST_RECORDS,
    PARTITIONS,
    add_source_offsets,
    copy_and_stop,
    read_frontiers,
)
from tests.harness.service import build_environment
from tests.harness.stage_one import (
    RECORDS_MAX,
    create_epoch,
    wait_for_frontiers,
    wrap_records,
    write_intermediate,
)
from tools.demo import fair_share
from tools.envelope_encoder import encode

HALF = FIRST_RECORDS // PARTITIONS
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


def test_rates_are_those_of_the_copy(clusters: Clusters, topic: str, start: Start) -> None:
    """Between two looks 100 records were copied: both stages have that rate, and stage one is seen
    to run.
    """
    copy_and_stop(clusters, topic, start, RECORDS)
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, PARTITIONS)
    watcher = Watcher(reo_settings.load(build_environment(clusters, topic, {})))
    clusters.source.write(topic, RECORDS[FIRST_RECORDS:])
    feed_the_rest(clusters, topic)
    clusters.wait_for_copy(topic, 2 * FIRST_RECORDS)
    until(
        lambda: (
            read_frontiers(clusters.destination, topic)
            == dict.fromkeys(range(PARTITIONS), 2 * HALF - 1)
        ),
        "the frontiers are there",
    )
    seen = watcher.take_status()
    service.stop()
    took_s = seen.now.taken_at_s - seen.before.taken_at_s
    assert [tuple(round(rate * took_s) for rate in rates) for rates in seen.rates.values()] == [
        (HALF, HALF)
    ] * PARTITIONS
    assert seen.describe_stage_one(time.time() * 1000).startswith("runs")
    assert seen.describe_progress().endswith("records/s are copied")


def test_for_whom_a_new_run_waits(clusters: Clusters, topic: str, start: Start) -> None:
    """Its epoch is on the intermediate topic, behind what stage two has not read: the partitions
    are named, and how much is unread, until stage two has read it.
    """
    copy_and_stop(clusters, topic, start, RECORDS)
    clusters.source.write(topic, RECORDS[FIRST_RECORDS:])
    cluster_id, topic_id = clusters.source.topic_id(topic)
    begun = Head(compute_identity(cluster_id, topic, topic_id), create_epoch(), 0, -1, -1)
    (_, unread), *_ = wrap_records(
        clusters, topic, add_source_offsets(RECORDS, FIRST_RECORDS), begun.epoch - 1
    )
    write_intermediate(clusters, topic, topic, [(0, unread), (0, Record(None, encode(begun)))])
    status = as_json(clusters, topic, "status")
    assert status["stage_one"].endswith(
        f"its newest run waits until stage two has read {topic}-proxy-0 (2 envelopes)"
    )
    assert [row["unread"] for row in status["partitions"]] == [2, 0]
    assert status["partitions"][0]["epoch"] == begun.epoch
    service = start(topic, "deduplicator")
    until(
        lambda: "waits until" not in as_json(clusters, topic, "status")["stage_one"],
        "stage two has read it",
    )
    assert read_frontiers(clusters.destination, topic) == {0: HALF + RECORDS_MAX - 1, 1: HALF - 1}
    service.stop()


def test_what_a_start_would_stop_with(clusters: Clusters, topic: str, start: Start) -> None:
    """A source that lost what was not copied is said, with the exit code that the service would
    have; the look itself is no failure.
    """
    copy_and_stop(clusters, topic, start, RECORDS)
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
    copy_and_stop(clusters, topic, start, RECORDS)
    assert as_json(clusters, topic, "status")["undecided"] == {}
    end = clusters.destination.end_offsets(topic)[0]
    producer = clusters.destination.producer(
        transactional_id=f"{topic}-open", transaction_timeout_ms=900_000
    )
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
    copy_and_stop(clusters, topic, start, RECORDS)
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
    assert fair_share.wait(process, COMMAND_S) == 0
    assert [line["application"] for line in lines] == [f"reo-{topic}"] * 3
