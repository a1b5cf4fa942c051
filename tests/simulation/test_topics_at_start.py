"""A start creates, extends and describes topics while requests or answers are lost: it waits
`connect_timeout_s` for a cluster, as for every other request of a start.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic

from common import clock
from common.errors import ClusterUnreachable
from common.kafka import topic_creation, topics
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.settings import load
from tests.harness.kafka_scripts import ScriptContext
from tests.harness.simulation import TOPIC, Simulation
from tests.unit.common.settings.test_settings import GOOD
from tools.simulator.kafka import RequestOutcome
from tools.simulator.virtual_clock import VirtualClock

NEW = "new"
CLUSTER = load(GOOD).destination_cluster
TIMEOUT_S = 3 * REQUEST_TIMEOUT_S


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    """One cluster; time is virtual."""
    simulation = Simulation()
    put_back = clock.replace(VirtualClock(simulation.schedule))
    yield simulation
    put_back()


@pytest.mark.parametrize("outcome", ["lost", "answer lost"])
@pytest.mark.parametrize("api", ["CreateTopics", "CreatePartitions", "DescribeConfigs"])
def test_a_lost_request_is_sent_again(
    simulation: Simulation, api: str, outcome: RequestOutcome
) -> None:
    """A topic that an earlier attempt created is not another process's: nothing is missing."""
    simulation.outcomes[api] = [outcome, outcome]

    def start(context: ScriptContext) -> None:
        for name, partitions in ((NEW, 2), (TOPIC, 3)):
            existing = topics.look_up(CLUSTER, context.admin, [name], TIMEOUT_S).get(name)
            creator = topic_creation.TopicCreator(CLUSTER, context.admin, TIMEOUT_S)
            creator.create_or_extend(existing, NewTopic(name, partitions, 1))
            described = topics.look_up(CLUSTER, context.admin, [name], TIMEOUT_S)[name]
            simulation.note(name, described.partitions)
        config = topics.describe_config(context.admin, CLUSTER, NEW, TIMEOUT_S)
        simulation.note("config", config["cleanup.policy"].value)

    simulation.start("start", start)
    simulation.run()
    assert simulation.outcomes[api] == [], "both were lost"
    assert [(who, what) for _, who, what in simulation.story] == [
        (NEW, 2),
        (TOPIC, 3),
        ("config", "delete"),
    ]


@pytest.mark.parametrize("api", ["CreateTopics", "CreatePartitions", "DescribeConfigs"])
def test_a_cluster_without_answers_is_named_in_time(simulation: Simulation, api: str) -> None:
    """When the time is over, and not with the first request."""
    simulation.outcomes[api] = ["lost"] * 100
    name = NEW if api == "CreateTopics" else TOPIC

    def start(context: ScriptContext) -> None:
        existing = topics.look_up(CLUSTER, context.admin, [name], TIMEOUT_S).get(name)

        def ask() -> None:
            if api == "DescribeConfigs":
                topics.describe_config(context.admin, CLUSTER, name, TIMEOUT_S)
            else:
                creator = topic_creation.TopicCreator(CLUSTER, context.admin, TIMEOUT_S)
                creator.create_or_extend(existing, NewTopic(name, 2, 1))

        begin_s = simulation.schedule.now
        with pytest.raises(ClusterUnreachable) as raised:
            ask()
        simulation.note(str(raised.value), simulation.schedule.now - begin_s)

    simulation.start("start", start)
    simulation.run()
    [(_, message, waited_s)] = simulation.story
    assert name in message
    assert TIMEOUT_S <= waited_s < TIMEOUT_S + REQUEST_TIMEOUT_S + 1
