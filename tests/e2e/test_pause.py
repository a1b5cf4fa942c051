"""A topic that is paused, while the service goes on with the others."""

from __future__ import annotations

import json

from tests.conftest import Start
from tests.harness.commands import reo_with
from tests.harness.copy_judge import Record
from tests.harness.kafka import COPY_S, Clusters, make_records, until
from tests.harness.merged_topics import build_topics_environment
from tests.harness.service import Service

BATCH = 1000


def write(clusters: Clusters, topic: str, batch: int) -> None:
    """The next records of a source topic."""
    records: list[tuple[int, Record]] = make_records(range(batch * BATCH, (batch + 1) * BATCH), 2)
    clusters.source.write(topic, records)


def read_halted(service: Service) -> dict[str, str]:
    """What /status says of topics that are halted."""
    halted = json.loads(service.http_get("/status")[1])["halted"]
    return {name: state["kind"] for name, state in halted.items()}


def wait_for(clusters: Clusters, name: str, batches: int) -> None:
    """Wait until so many batches are copied."""
    until(
        lambda: (
            clusters.destination.partitions(name)
            and sum(map(len, clusters.destination.read(name).values())) == batches * BATCH
        ),
        f"{name} has {batches} batches",
        COPY_S,
    )


def wait_for_halt(service: Service, name: str, value: int, state: str = "paused") -> None:
    """Wait until the service is ready, and says whether this topic is halted."""
    until(
        lambda: (
            service.metric("reo_route_halted", topic=name, state=state) == value
            and service.http_get("/readyz")[0] == 200
        ),
        f"the service is ready, and says of {name} that it is {state}: {value}",
        COPY_S,
    )


def check_who_names_it(service: Service, environment: dict[str, str], paused: str) -> None:
    """All that shows the service, and whoever would wait for the topic."""
    assert service.http_get("/readyz")[1] == f"ok\n{paused} is paused\n"
    assert read_halted(service) == {paused: "paused"}
    assert f"halted      {paused} is paused since" in reo_with(environment, "status").stdout
    checked = reo_with(environment, "check").stdout
    assert f"ok      halted topics: {paused} is paused since" in checked
    assert f"reo resume {paused}\n" in checked
    waits = reo_with(environment, "verify", "--wait", "60", exit_code=36).stderr
    assert f"{paused} is paused since" in waits
    plan = reo_with(environment, "cutover", "plan", exit_code=38).stderr
    assert f"{paused} is paused since" in plan


def test_a_topic_is_paused_while_another_goes_on(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """What is paused stands still while the other topic is copied, also after a new start of the
    service; metrics, readiness, /status and `reo status` say so, and who would wait for it is told.
    Resumed, it goes on: both copies are exact.
    """
    paused, other = f"{topic}-paused", f"{topic}-other"
    for name in (paused, other):
        clusters.source.create(name, 2)
        write(clusters, name, 0)
    environment = build_topics_environment(clusters, topic, f"{paused},{other}")
    service = start(topic, environment=environment)

    for name in (paused, other):
        wait_for(clusters, name, 1)
    refused = reo_with(environment, "pause", f"{topic}-pausd", exit_code=2)
    assert f"did you mean {paused}?" in refused.stderr
    assert (
        ": paused; the service follows in about two"
        in reo_with(environment, "pause", paused).stdout
    )
    assert "paused already" in reo_with(environment, "pause", paused).stdout
    wait_for_halt(service, paused, 1)
    until(lambda: service.metric("reo_runs_total", reason="switched") >= 1, "the run ended", COPY_S)
    before = clusters.destination.read(paused)
    write(clusters, paused, 1)
    write(clusters, other, 1)
    wait_for(clusters, other, 2)
    check_who_names_it(service, environment, paused)
    reo_with(environment, "pause", other)
    until(
        lambda: (
            service.http_get("/readyz") == (200, f"ok\n{other} is paused\n{paused} is paused\n")
        ),
        "a service with nothing to do is ready",
        COPY_S,
    )
    reo_with(environment, "resume", other)
    service.stop()

    service = start(topic, environment=environment)
    write(clusters, other, 2)
    wait_for(clusters, other, 3)
    wait_for_halt(service, paused, 1)
    assert clusters.destination.read(paused) == before
    service.stop()
    for words in (("run", "--stop-at-end"), ("run", "deduplicator", "--stop-at-end")):
        ended = reo_with(environment, *words, exit_code=36, timeout_s=COPY_S)
        assert f"{paused} is paused since" in ended.stdout + ended.stderr

    service = start(topic, environment=environment)
    assert "(it was paused since" in reo_with(environment, "resume", paused).stdout
    wait_for(clusters, paused, 2)
    wait_for_halt(service, paused, 0)
    service.stop()
    for name in (paused, other):
        assert clusters.differences(name, name) == []
