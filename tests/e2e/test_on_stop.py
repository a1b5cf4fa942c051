"""With `on_stop=route`, an error of one topic stops this topic alone."""

from __future__ import annotations

import json

from tests.conftest import Start
from tests.e2e.test_pause import wait_for, wait_for_halt, write
from tests.harness.commands import reo_with
from tests.harness.kafka import Clusters
from tests.harness.merged_topics import build_topics_environment
from tests.harness.topic_configs import change


def test_topics_stop_alone_and_go_on(clusters: Clusters, topic: str, start: Start) -> None:
    """One stops in stage two, as its destination would replace timestamps, one in stage one, as its
    source was recreated; the third is copied all the time, by the same processes. Each stop is in
    the metrics, /readyz and `reo status`, also after a new start, and the first topic goes on
    exactly when the cause is repaired.
    """
    unfit, recreated, good = (f"{topic}-{name}" for name in ("unfit", "recreated", "good"))
    names = (unfit, recreated, good)
    for name in names:
        clusters.source.create(name, 2)
        write(clusters, name, 0)
    environment = build_topics_environment(clusters, topic, ",".join(names), on_stop="route")
    service = start(topic, environment=environment)
    for name in names:
        wait_for(clusters, name, 1)
    pids = [service.find_pid(stage) for stage in ("replicator", "deduplicator")]

    change(clusters.destination, unfit, message_timestamp_type="LogAppendTime")
    for name in (unfit, good):
        write(clusters, name, 1)
    wait_for(clusters, good, 2)
    wait_for_halt(service, unfit, 1, "stopped")
    for stage in ("replicator", "deduplicator"):
        service.signal(stage, "SIGSTOP")  # or it could find that there is no topic
    clusters.source.delete(recreated)
    clusters.source.create(recreated, 2)
    for stage in ("replicator", "deduplicator"):
        service.signal(stage, "SIGCONT")
    wait_for_halt(service, recreated, 1, "stopped")
    write(clusters, good, 2)
    wait_for(clusters, good, 3)
    assert [service.find_pid(stage) for stage in ("replicator", "deduplicator")] == pids
    assert service.http_get("/readyz")[1] == (f"ok\n{recreated} is stopped\n{unfit} is stopped\n")
    halted = json.loads(reo_with(environment, "status", "--json").stdout)["halted"]
    assert {name: (state["kind"], state["exit_code"]) for name, state in halted.items()} == {
        unfit: ("stopped", 13),
        recreated: ("stopped", 21),
    }
    assert "LogAppendTime" in halted[unfit]["text"]
    wait_for(clusters, unfit, 1)
    service.stop()

    change(clusters.destination, unfit, message_timestamp_type="CreateTime")
    service = start(topic, environment=environment)
    wait_for_halt(service, unfit, 1, "stopped")
    reo_with(environment, "resume", unfit)
    wait_for(clusters, unfit, 2)
    wait_for_halt(service, unfit, 0, "stopped")
    service.stop()
    for name in (unfit, good):
        assert clusters.differences(name, name) == []
