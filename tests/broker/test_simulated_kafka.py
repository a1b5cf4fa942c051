"""Compares the simulated Kafka with real brokers: the same calls have the same results, codes and
flags.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tests.conftest import make_topic_name
from tests.harness import (
    kafka_scripts_groups,
    kafka_scripts_reading,
    kafka_scripts_records,
    kafka_scripts_topics,
    kafka_scripts_transactions,
)
from tests.harness.kafka import UNFENCED, Clusters, find_jars, until
from tests.harness.kafka_scripts import ScriptContext
from tools.demo.broker import Broker
from tools.simulator.kafka import Cluster, Network, clients
from tools.simulator.schedule import START_UNIX_S, Process, Schedule

Script = Callable[[ScriptContext], None]
SCRIPTS: tuple[Script, ...] = (
    *kafka_scripts_transactions.SCRIPTS,
    *kafka_scripts_records.SCRIPTS,
    *kafka_scripts_reading.SCRIPTS,
    *kafka_scripts_topics.SCRIPTS,
    *kafka_scripts_groups.SCRIPTS,
)
LONGEST_SCRIPT = kafka_scripts_transactions.time_out
"""It is started first: the brokers check for timeouts every 10 s."""
PARALLEL_SCRIPTS = 6
Notes = list[tuple[str, Any]]


def run_on_simulated(script: Script, seed: int, is_older: bool = False) -> Notes:
    """The results of a script on a simulated cluster."""
    schedule = Schedule(seed)
    network = Network(schedule)
    network.clusters["simulated:9092"] = Cluster(schedule, "simulated", is_older=is_older)
    notes: list[Notes] = []
    ended: list[BaseException | None] = []

    def work() -> None:
        context = ScriptContext(
            clients(network),
            "simulated:9092",
            f"name-{seed}",
            schedule.sleep,
            lambda: (START_UNIX_S + schedule.now) * 1000,
            lambda work: schedule.start(process, work),
        )
        notes.append(context.notes)
        script(context)

    process = Process("script", on_end=ended.append)
    schedule.start(process, work)
    schedule.run(3600, lambda: not process.is_alive)
    schedule.close()
    assert ended, "the script has not ended in an hour"
    if ended[0] is not None:
        raise ended[0]
    return notes[0]


def run_on_real(script: Script, address: str) -> Notes:
    """The results of a script on a real cluster."""
    context = ScriptContext(
        (Consumer, Producer, AdminClient),
        address,
        make_topic_name(script.__name__),
        time.sleep,
        lambda: time.time() * 1000,
        lambda work: threading.Thread(target=work, daemon=True).start(),
    )
    script(context)
    return context.notes


Answers = dict[str, Future[Notes]]


def run_on_broker(address: str) -> Iterator[Answers]:
    """The results of each script on a real broker. Scripts run in parallel, because they mostly
    wait. The first runs alone: it creates the internal topics.
    """
    first, *others = SCRIPTS
    with ThreadPoolExecutor(PARALLEL_SCRIPTS) as pool:
        answers = {first.__name__: pool.submit(run_on_real, first, address)}
        wait(answers.values())
        longest_first = sorted(others, key=lambda script: script is not LONGEST_SCRIPT)
        yield answers | {
            script.__name__: pool.submit(run_on_real, script, address) for script in longest_first
        }


@pytest.fixture(scope="module")
def answers(clusters: Clusters) -> Iterator[Answers]:
    """Of Kafka 4.3."""
    yield from run_on_broker(clusters.source.address)


@pytest.fixture(scope="module")
def older_answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    """Of Kafka 3.9."""
    broker = Broker(
        tmp_path_factory.mktemp("older") / "broker", find_jars("3.9"), settings=UNFENCED
    )
    try:
        yield from run_on_broker(broker.start().wait().address)
    finally:
        broker.kill()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_answers_are_those_of_a_real_broker(answers: Answers, script: Script) -> None:
    """Every value, error code and flag, whatever the seed."""
    real = until(answers[script.__name__].done, "the broker has answered", 120) and (
        answers[script.__name__].result()
    )
    for seed in range(3):
        assert run_on_simulated(script, seed) == real


@pytest.mark.long
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_answers_are_those_of_an_older_broker(older_answers: Answers, script: Script) -> None:
    """Kafka 3.9 as well."""
    answer = older_answers[script.__name__]
    until(answer.done, "the broker has answered", 120)
    assert run_on_simulated(script, 0, is_older=True) == answer.result()
