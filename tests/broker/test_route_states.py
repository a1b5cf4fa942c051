"""Where it is kept which routes are paused, on a real broker."""

from __future__ import annotations

import pytest

from common import settings as reo_settings
from common.errors import FrontierUnreadable, LagsBehind
from common.kafka.consumer_group import Commit
from common.route_states import HaltedRoutes, RouteState, RouteStates
from common.routes import TopicPartition
from tests.broker.test_status import RECORDS, feed_the_rest
from tests.conftest import Start
from tests.harness.commands import reo
from tests.harness.kafka import Clusters, until
from tests.harness.recovery import FIRST_RECORDS, copy_and_stop
from tests.harness.service import build_environment

PAUSED = RouteState("paused", 1_000_000_000_000, "somebody@somewhere")


def test_a_pause_outlives_its_offset(clusters: Clusters, topic: str) -> None:
    """Brokers delete the offsets of a group without members after a week, and with their topic: a
    stage commits a pause again that the group has lost. A new process knows it, and only `reo
    resume` ends it.
    """
    clusters.source.create(topic, 1)
    settings = reo_settings.load(build_environment(clusters, topic, {}))
    missing = reo(clusters, topic, "pause", topic, exit_code=11).stderr
    assert f"{topic}-proxy" in missing
    clusters.destination.create(f"{topic}-proxy", 1)
    states, halted = RouteStates(settings), HaltedRoutes(settings)
    states.write({f"{topic}-proxy": PAUSED})
    halted.add(settings.build_routes())
    halted.probe.run_once()
    assert halted.halted == {topic: PAUSED}
    clusters.destination.admin.delete_consumer_groups([states.name])[states.name].result()
    assert states.read([f"{topic}-proxy"]) == {}
    halted.probe.run_once()
    assert halted.topics == {f"{topic}-proxy"}
    assert states.read([f"{topic}-proxy"]) == {f"{topic}-proxy": PAUSED}
    assert "it was paused since 2001-09-09" in reo(clusters, topic, "resume", topic).stdout
    halted.probe.run_once()
    assert halted.topics == frozenset()
    assert "running already" in reo(clusters, topic, "resume", topic).stdout


def test_a_topic_is_resumed_that_has_lost_its_intermediate_topic(
    clusters: Clusters, topic: str
) -> None:
    """The state is deleted with it, and a process that knows the pause cannot commit it again: it
    waits for `reo resume`, which creates the topic, and commits what no process has forgotten.
    """
    clusters.source.create(topic, 2)
    intermediate_topic = f"{topic}-proxy"
    clusters.destination.create(intermediate_topic, 2)
    settings = reo_settings.load(build_environment(clusters, topic, {}))
    states, halted = RouteStates(settings), HaltedRoutes(settings)
    states.write({intermediate_topic: PAUSED})
    halted.add(settings.build_routes())
    halted.probe.run_once()
    clusters.destination.delete(intermediate_topic)
    until(lambda: states.read([intermediate_topic]) == {}, "the state is gone")
    halted.probe.run_once()
    assert halted.topics == {intermediate_topic}
    assert "running already" in reo(clusters, topic, "resume", topic).stdout
    assert clusters.destination.partitions(intermediate_topic) == 2
    until(
        lambda: halted.probe.run_once() is None and not halted.topics, "it is resumed for a process"
    )


@pytest.mark.parametrize("metadata", ["", "[]", '{"v":1,"s":"frozen","at":1,"by":""}', '{"v":2}'])
def test_what_is_no_state_is_not_guessed(clusters: Clusters, topic: str, metadata: str) -> None:
    """An offset in that group with anything else in its metadata is an error that says what to
    do.
    """
    clusters.destination.create(f"{topic}-proxy", 1)
    states = RouteStates(reo_settings.load(build_environment(clusters, topic, {})))
    states.commit({TopicPartition(f"{topic}-proxy", 0): Commit(0, metadata)})
    with pytest.raises(FrontierUnreadable, match=f"{topic}-proxy-0 in group .* delete the group"):
        states.read([f"{topic}-proxy"])


def test_stage_two_alone_ends_at_a_halted_topic(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """With envelopes that nobody has read, `--stop-at-end` ends with 36; resumed, with an exact
    copy.
    """
    copy_and_stop(clusters, topic, start, RECORDS)
    clusters.source.write(topic, RECORDS[FIRST_RECORDS:])
    feed_the_rest(clusters, topic)
    reo(clusters, topic, "pause", topic)
    service = start(topic, "deduplicator", "--stop-at-end")
    assert service.wait_for_exit() == LagsBehind.exit_code, service.read_log_tail()
    assert f"{topic} is paused since" in service.log
    assert sum(map(len, clusters.destination.read(topic).values())) == FIRST_RECORDS
    reo(clusters, topic, "resume", topic)
    service = start(topic, "deduplicator", "--stop-at-end")
    assert service.wait_for_exit() == 0, service.read_log_tail()
    assert clusters.differences(topic, topic) == []
