"""Processes are killed while they copy; the copy is exact all the same.

Each test proves that its fault happened while it mattered: right after the kill, the destination does not have all records yet
(`Cluster.written` is an upper bound on them). A printed seed chooses the moments; REO_TEST_SEED repeats one.

The source is written once; every test copies it to a topic of its own.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Callable

import pytest

from tests.conftest import Start, unique
from tests.judge import Partitions, verdict
from tests.kafka import COPY_S, Clusters, Service, kill, spread, until

RECORDS = 240_000
PARTITIONS = 4
SEED = int(os.environ.get("REO_TEST_SEED") or random.SystemRandom().randrange(10**6))
SMALL_TRANSACTIONS = {"deduplicator_transaction_records": "500"}
"""More of them, so that a random moment meets every step of one; and stage two takes some seconds for the whole."""
STOP_S = 10
RUN_BEGINS = "begins at {"


@pytest.fixture(scope="module")
def source(clusters: Clusters) -> tuple[str, Partitions]:
    """The source topic and what the judge reads there."""
    topic = clusters.source.create(unique("faults"), PARTITIONS)
    clusters.source.write(topic, spread(range(RECORDS), PARTITIONS))
    found = clusters.source.read(topic)
    assert sum(map(len, found.values())) == RECORDS
    return topic, found


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Chooses the moments; its seed is printed with a failed test."""
    print(f"REO_TEST_SEED={SEED}")
    return random.Random(f"{SEED} {request.node.name}")


def wait_for_progress(clusters: Clusters, service: Service, topic: str, chance: random.Random, share_most: float) -> None:
    """Wait until the topic has grown by a random share of all records, and then for another moment of up to 50 ms."""
    began = clusters.destination.written(topic, PARTITIONS)
    wanted = began + chance.uniform(0.01, share_most) * RECORDS
    def enough() -> bool:
        assert service.process.poll() is None, f"the service has ended already:\n{service.tail()}"
        return clusters.destination.written(topic, PARTITIONS) >= wanted

    until(enough, f"{topic} has {wanted:.0f} records", COPY_S)
    time.sleep(chance.uniform(0, 0.05))  # the moment itself is what is random here: there is nothing to poll for


def assert_it_mattered(clusters: Clusters, copy: str) -> None:
    """There is something left to copy after the kill."""
    written = clusters.destination.written(copy, PARTITIONS)
    assert written < RECORDS, f"killed too late to prove anything: {written} of {RECORDS} records were written"


def kill_stage(service: Service, stage: str) -> int:
    """SIGKILL to a stage's process; returns its number."""
    pid = until(lambda: service.pid_of(stage), f"{stage} lives")
    kill(pid)
    return pid


STAGES = {
    "stage one": ("replicator",),
    "its JVM": ("jvm",),
    "stage two": ("deduplicator",),
    "both": ("replicator", "deduplicator"),
}
KILLS = {"stage one": 2, "its JVM": 1, "stage two": 2, "both": 2}


@pytest.mark.parametrize("victim", STAGES)
def test_a_killed_stage_is_started_again_and_the_copy_is_exact(
        clusters: Clusters, source: tuple[str, Partitions], topic: str, start: Start, chance: random.Random, victim: str) -> None:
    """SIGKILL at random moments while records are still to be copied: the service goes on and ends with an exact copy."""
    clusters.destination.create(topic, PARTITIONS)
    clusters.destination.create(f"{topic}-proxy", PARTITIONS)
    service = start(source[0], "--stop-at-end", destination_topic=topic, **SMALL_TRANSACTIONS)
    watched = topic if victim == "stage two" else f"{topic}-proxy"
    killed: set[int] = set()
    runs = 0
    for _ in range(KILLS[victim]):
        if victim != "stage two":  # a stage one that is only starting would be an easy victim
            until(lambda runs=runs: service.log.count(RUN_BEGINS) > runs, "a run of stage one has begun")
            runs = service.log.count(RUN_BEGINS)
        wait_for_progress(clusters, service, watched, chance, 0.15)
        killed.update(kill_stage(service, stage) for stage in STAGES[victim])
        assert_it_mattered(clusters, topic)
        runs = service.log.count(RUN_BEGINS)
    assert service.ends() == 0, service.tail()
    assert len(killed) == KILLS[victim] * len(STAGES[victim])
    deaths = re.findall(r" reo: (\w+)-0 ended ", service.log)
    assert len(deaths) == len(killed), f"the supervisor has to see each death, and no other: {deaths}\n{service.tail()}"
    assert verdict(source[1], clusters.destination.read(topic)) == [], service.tail()


def whole_group(service: Service) -> None:
    """SIGKILL to all at once, as a machine does that is switched off."""
    os.killpg(service.process.pid, signal.SIGKILL)


def supervisor_only(service: Service) -> None:
    """SIGKILL to the first process alone, as the kernel does when memory is short."""
    kill(service.process.pid)


def test_a_killed_service_starts_with_nothing_and_the_copy_is_exact(
        clusters: Clusters, source: tuple[str, Partitions], topic: str, start: Start, chance: random.Random) -> None:
    """The whole service is killed, then the supervisor alone (which takes all along); each time its folder is deleted and a new one started: exact."""
    clusters.destination.create(topic, PARTITIONS)
    ways: tuple[Callable[[Service], None], ...] = (whole_group, supervisor_only)
    for way in ways:
        service = start(source[0], "--stop-at-end", destination_topic=topic, **SMALL_TRANSACTIONS)
        wait_for_progress(clusters, service, topic, chance, 0.3)
        way(service)
        assert_it_mattered(clusters, topic)
        assert service.process.wait(5) == -signal.SIGKILL
        until(lambda service=service: not service.living(), "no process outlives the supervisor", 10)
        service.forget_all()
    last = start(source[0], "--stop-at-end", destination_topic=topic)
    assert last.ends() == 0, last.tail()
    assert verdict(source[1], clusters.destination.read(topic)) == [], last.tail()


def test_sigterm_stops_in_ten_seconds_and_leaves_no_transaction_open(
        clusters: Clusters, source: tuple[str, Partitions], topic: str, start: Start, chance: random.Random) -> None:
    """In the middle of the work SIGTERM ends all processes in ten seconds with 0; readers are held up by nothing, and what is there is a beginning."""
    clusters.destination.create(topic, PARTITIONS)
    service = start(source[0], destination_topic=topic, **SMALL_TRANSACTIONS)
    wait_for_progress(clusters, service, topic, chance, 0.2)
    took = service.stop()
    assert clusters.destination.no_transaction_is_open(topic)
    assert_it_mattered(clusters, topic)
    assert took <= STOP_S
    copy = clusters.destination.read(topic)
    assert {partition: copy[partition] == source[1][partition][:len(copy[partition])] for partition in copy} == dict.fromkeys(range(PARTITIONS), True)
    again = start(source[0], "--stop-at-end", destination_topic=topic)
    assert again.ends() == 0, again.tail()
    assert verdict(source[1], clusters.destination.read(topic)) == [], again.tail()


def test_sigterm_stops_a_service_that_is_still_starting(clusters: Clusters, source: tuple[str, Partitions], topic: str, start: Start) -> None:
    """SIGTERM while Spark is not up yet is no different: ten seconds, exit code 0, nothing left."""
    service = start(source[0], destination_topic=topic)
    until(lambda: service.pid_of("jvm"), "the JVM is being started")
    assert service.stop() <= STOP_S
    assert clusters.destination.no_transaction_is_open(topic)
