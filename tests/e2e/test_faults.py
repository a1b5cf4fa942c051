"""A seeded sample of the fault campaign (`make faults`), and what SIGTERM leaves behind.

Each story proves that its harm was done, under a steady load: something is always on its way. A
printed seed chooses the moments; REO_TEST_SEED repeats one.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.e2e.test_sigterm import stop_in_time
from tests.harness.copy_judge import compare_partitions
from tests.harness.kafka import COPY_S, Clusters, find_jars, until
from tests.harness.service import Service
from tools.faults.judged_run import run_story
from tools.faults.load import Load
from tools.faults.stories import ALL
from tools.faults.testbed import start_clusters

PARTITIONS = 4
SEED = int(os.environ.get("REO_TEST_SEED") or random.SystemRandom().randrange(10**6))
SMALL_TRANSACTIONS = {"deduplicator_transaction_records": "500"}
"""More of them: stage two takes some seconds for the whole."""
UNENDING = {"deduplicator_transaction_timeout_ms": "600000"}
"""Of itself no transaction ends during a test: what is left open stays open."""
SAMPLE = (
    "SIGKILL of the JVM",
    "SIGKILL of everything, empty disk",
    "SIGSTOP between offsets and commit",
)
"""Kills of one stage alone, at each of its points: tests/e2e/test_crash_points.py; of the JVM:
tests/e2e/test_events.py; frozen workers: tests/e2e/test_postgresql.py; both stages, between brokers
of two versions: tests/e2e/test_older_kafka.py.
"""


@pytest.mark.long  # `make demo` kills everything too
@pytest.mark.parametrize("compiled", ["yes", "no"])
@pytest.mark.parametrize("story", SAMPLE)
def test_the_copy_is_exact_after(
    clusters: Clusters, tmp_path: Path, story: str, compiled: str
) -> None:
    """The story's harm is done while records flow; the copy becomes exact, the counters agree, no
    transaction stays open; by C and by Python.
    """
    result = run_story(ALL[story], clusters, SEED, tmp_path, deduplicator_compiled=compiled)
    assert result.is_good, f"{result.verdict}\nREO_TEST_SEED={SEED}, hits {result.hits}"
    assert result.verdict == "exact"
    assert result.compiled is (compiled == "yes")
    assert result.records > result.aborted > 0


@pytest.mark.long
def test_a_worker_outlives_its_destination_broker(tmp_path: Path) -> None:
    """The broker, of its own, is killed twice. Meanwhile the group expires the worker, which then
    gets its partitions again from a coordinator that its clients may have forgotten.

    The broker is of 3.9: one of 4.3 that starts again can lose the markers of a transaction
    (KAFKA-20734), which is a stop (`tests.broker.test_lost_markers`).
    """
    story = ALL["broker SIGKILL, destination"]
    with start_clusters(tmp_path / "brokers", story.brokers, find_jars("3.9")) as clusters:
        result = run_story(story, clusters, SEED, tmp_path)
    assert result.is_good, f"{result.verdict}\nREO_TEST_SEED={SEED}, hits {result.hits}"
    assert result.hits["SIGKILL of a broker"] == 2


@pytest.mark.long
def test_sigterm_stops_in_ten_seconds_and_leaves_no_transaction_open(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """In the middle of the work SIGTERM ends all processes in ten seconds with 0; readers are held
    up by nothing, and what is there is a beginning.
    """
    clusters.source.create(topic, PARTITIONS)
    with Load(clusters.source, topic, PARTITIONS, 5000) as load:

        def copy() -> Service:
            before = clusters.destination.count_offsets(topic)
            service = start(topic, **SMALL_TRANSACTIONS, **UNENDING)
            until(
                lambda: clusters.destination.count_offsets(topic) > before + 10_000,
                "records flow",
                COPY_S,
            )
            return service

        service = stop_in_time(copy, may_be_killed=False)
        assert load.is_alive(), "there was nothing to be in the middle of"
    # the JVM may say something behind it
    assert any(line.endswith("the service has stopped") for line in service.log.splitlines())
    until(
        lambda: clusters.destination.has_no_open_transaction(topic), "no transaction is left open"
    )
    source, copied = clusters.source.read(topic), clusters.destination.read(topic)
    assert {
        partition: copied[partition] == source[partition][: len(copied[partition])]
        for partition in copied
    } == dict.fromkeys(range(PARTITIONS), True)
    assert sum(map(len, copied.values())) < sum(map(len, source.values()))
    again = start(topic, "--stop-at-end")
    assert again.wait_for_exit() == 0, again.read_log_tail()
    assert compare_partitions(source, clusters.destination.read(topic)) == [], again.read_log_tail()


def test_sigterm_stops_a_service_that_is_still_starting(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """SIGTERM while Spark is not up yet is no different: ten seconds, exit code 0, nothing left."""
    clusters.source.create(topic, PARTITIONS)

    def begin() -> Service:
        service = start(topic, **UNENDING)
        until(lambda: service.find_pid("jvm"), "the JVM is being started")
        return service

    stop_in_time(begin, may_be_killed=False)
    until(
        lambda: clusters.destination.has_no_open_transaction(topic), "no transaction is left open"
    )
