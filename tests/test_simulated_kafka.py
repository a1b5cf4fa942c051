"""The simulated Kafka against real brokers: the same calls have the same answers, codes and flags."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from simulator.kafka import Cluster, Network, clients
from simulator.schedule import START_UNIX_S, Process, Schedule
from tests import kafka_scripts_groups, kafka_scripts_reading, kafka_scripts_transactions
from tests.conftest import unique
from tests.kafka import Clusters
from tests.kafka_scripts import World

Script = Callable[[World], None]
SCRIPTS: tuple[Script, ...] = (*kafka_scripts_transactions.SCRIPTS, *kafka_scripts_reading.SCRIPTS, *kafka_scripts_groups.SCRIPTS)
Notes = list[tuple[str, Any]]


def on_simulated(script: Script, seed: int) -> Notes:
    """What a script notes on a simulated cluster."""
    schedule = Schedule(seed)
    network = Network(schedule)
    network.clusters["simulated:9092"] = Cluster(schedule, "simulated")
    notes: list[Notes] = []
    ended: list[BaseException | None] = []

    def work() -> None:
        world = World(clients(network), "simulated:9092", f"name-{seed}", schedule.sleep, lambda: (START_UNIX_S + schedule.now) * 1000)
        notes.append(world.notes)
        script(world)

    process = Process("script", on_end=ended.append)
    schedule.start(process, work)
    schedule.run(3600, lambda: not process.is_alive)
    schedule.close()
    assert ended, "the script has not ended in an hour"
    if ended[0] is not None:
        raise ended[0]
    return notes[0]


def on_real(script: Script, address: str) -> Notes:
    """What a script notes on a real cluster."""
    world = World((Consumer, Producer, AdminClient), address, unique(script.__name__), time.sleep, lambda: time.time() * 1000)
    begun = time.time()
    script(world)
    print(script.__name__, time.time() - begun)
    return world.notes


@pytest.fixture(scope="module")
def answers(clusters: Clusters) -> Any:
    """Of a real broker to each script; they run side by side, since what they do is mostly to wait."""
    with ThreadPoolExecutor(len(SCRIPTS)) as pool:
        found: dict[str, Future[Notes]] = {script.__name__: pool.submit(on_real, script, clusters.source.address) for script in SCRIPTS}
        yield found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_answers_are_those_of_a_real_broker(answers: dict[str, Future[Notes]], script: Script) -> None:
    """Every value, error code and flag, whatever the seed."""
    real = answers[script.__name__].result(120)
    for seed in range(3):
        assert on_simulated(script, seed) == real
