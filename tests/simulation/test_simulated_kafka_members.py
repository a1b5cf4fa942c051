"""Members of a group on the simulated Kafka: several processes that join, die, stand still and come
back. No broker is needed.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition

from tests.harness.kafka_scripts import ScriptContext
from tests.harness.simulation import TOPIC, Simulation


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_a_member_that_is_not_heard_of(fault: str) -> None:
    """After its session the other one has its partitions; one that wakes up learns that it lost
    them, and shares again.
    """
    simulation = Simulation(partitions=2)
    assigned: dict[str, set[int]] = {"first": set(), "second": set()}
    lost: list[str] = []

    def work(name: str, context: ScriptContext) -> None:
        consumer = context.member()

        def on_assign(_: Any, partitions: list[TopicPartition]) -> None:
            assigned[name] |= {one.partition for one in partitions}
            consumer.assign([TopicPartition(TOPIC, one.partition, 0) for one in partitions])

        def on_gone(_: Any, partitions: list[TopicPartition]) -> None:
            assigned[name] -= {one.partition for one in partitions}
            consumer.unassign()

        def on_lost(_: Any, partitions: list[TopicPartition]) -> None:
            lost.append(name)
            on_gone(_, partitions)

        consumer.subscribe([TOPIC], on_assign=on_assign, on_revoke=on_gone, on_lost=on_lost)
        while True:
            consumer.poll(0.5)

    first, _ = (
        simulation.start(name, lambda context, name=name: work(name, context)) for name in assigned
    )
    simulation.run(60)
    assert {len(topic_partitions) for topic_partitions in assigned.values()} == {1}
    (simulation.schedule.kill if fault == "killed" else simulation.schedule.freeze)(first)
    simulation.run(3)
    assert len(assigned["second"]) == 1
    simulation.run(100)
    assert assigned["second"] == {0, 1}
    if fault == "frozen":
        simulation.schedule.thaw(first)
        simulation.run(100)
        assert lost == ["first"]
        assert {len(topic_partitions) for topic_partitions in assigned.values()} == {1}
        assert assigned["first"] != assigned["second"]


@pytest.mark.parametrize("seed", range(20))
def test_members_that_join_at_once(seed: int) -> None:
    """Both have a part soon, also when the second one joins before the first one has its answer."""
    simulation = Simulation(seed, partitions=2)
    assigned: dict[str, int] = {}

    def work(name: str, context: ScriptContext) -> None:
        consumer = context.member()
        consumer.subscribe(
            [TOPIC], on_assign=lambda _, partitions: assigned.update({name: len(partitions)})
        )
        while True:
            consumer.poll(0.5)

    for name in ("first", "second"):
        simulation.start(name, lambda context, name=name: work(name, context))
    simulation.run(3)
    assert assigned == {"first": 1, "second": 1}
