"""What stands around the copy: metrics, health and readiness on one port."""

from __future__ import annotations

import json
import re
import signal
import socket
from importlib.metadata import version
from pathlib import Path
from typing import Any

import prometheus_client.parser

from reo.version import VERSION
from tests.conftest import Start
from tests.harness.commands import as_json
from tests.harness.failpoint_marker import wait_for_failpoint
from tests.harness.kafka import COPY_S, Clusters, make_records, until
from tests.harness.promql import at_a_glance
from tests.harness.service import Service, send_signal

NAMED = {
    "reo_records_in",
    "reo_records_out",
    "reo_records_dropped",
    "reo_transactions",
    "reo_transaction_seconds",
    "reo_lag_records",
    "reo_frontier_offset",
    "reo_run_epoch",
    "reo_rebalances",
    "reo_heartbeat_seconds",
    "reo_ready",
    "reo_lag_seconds",
    "reo_source_end_offset",
    "reo_copy_seconds",
    "reo_transaction_records",
}
RECORDS = 1000


def test_metrics_health_and_readiness_on_one_port(
    clusters: Clusters, topic: str, start: Start, tmp_path: Path
) -> None:
    """/livez is 200 from the start, /readyz only once both stages work, /metrics counts exactly
    what was copied, with lag 0 at the end.
    """
    clusters.source.create(topic, 2)
    clusters.source.write(topic, make_records(range(RECORDS), 2))
    service = start(topic, freeze_at=f"one: started:1:{tmp_path / 'frozen'}")
    stage_one = wait_for_failpoint(tmp_path / "frozen", "one: started")
    until(lambda: service.http_get("/livez") == (200, "ok\n"), "the service is alive")
    status, reason = service.http_get("/readyz")
    assert status == 503
    assert "replicator 0 is not working: it " in reason
    send_signal(stage_one, signal.SIGCONT)
    until(lambda: service.http_get("/readyz") == (200, "ok\n"), "the service is ready", COPY_S)
    assert service.http_get("/nowhere")[0] == 404

    clusters.wait_for_copy(topic, RECORDS)
    assert_counted(service, topic)
    assert_all_is_there(service)

    def read_status() -> dict[str, Any] | None:
        status: dict[str, Any] = json.loads(service.http_get("/status")[1] or "{}")
        return status if status.get("ready") else None

    said = until(read_status, "the service says that it is ready")
    says_the_same(said, as_json(clusters, topic, "status"))

    assert_a_kill_is_seen(service, topic)
    service.stop()


def is_disturbed(service: Service) -> bool:
    """Whether a run or a process has ended, or the end of a transaction is not known: then records
    can be read, dropped and counted again.
    """
    return bool(
        service.metric("reo_runs_total")
        or service.metric("reo_stage_restarts_total")
        or service.metric("reo_transactions_total", outcome="unknown")
    )


def assert_counted(service: Service, topic: str) -> None:
    """Each record once, and nothing is left to copy."""
    for name, stage in (
        ("reo_records_out_total", "deduplicator"),
        ("reo_records_in_total", "replicator"),
    ):
        until(
            lambda name=name, stage=stage: (
                service.metric(name, stage=stage, topic=topic) == RECORDS or is_disturbed(service)
            ),
            f"all records are counted: {name}",
        )
    until(lambda: service.metric("reo_lag_records") == 0, "nothing lags behind")
    until(lambda: service.metric("reo_lag_seconds") == 0, "nothing waits")
    until(
        lambda: service.metric("reo_source_end_offset", topic=topic, partition="1") == RECORDS // 2,
        "the source's end is there",
    )
    until(
        lambda: (
            service.metric("reo_frontier_offset", topic=topic, partition="1") == RECORDS // 2 - 1
        ),
        "the frontier is there",
    )
    assert service.metric("reo_transaction_records_sum") == RECORDS or is_disturbed(service)
    assert service.metric("reo_copy_seconds_count", topic=topic) >= 2, (
        "each partition had a transaction with records"
    )
    assert service.metric("reo_copy_seconds_bucket", topic=topic, le="3600.0") == 0, (
        "the records are of 2023"
    )
    assert service.metric("reo_records_dropped_total") == 0 or is_disturbed(service)
    assert service.metric("reo_transactions_total", outcome="committed") >= 2
    assert service.metric("reo_run_epoch") > 0


def assert_all_is_there(service: Service) -> None:
    """The metrics that a page or the dashboard names, and what the service was built from."""
    families = {
        family.name
        for family in prometheus_client.parser.text_string_to_metric_families(
            service.http_get("/metrics")[1]
        )
    }
    assert families >= NAMED | at_a_glance(), (
        "what the dashboard's first row asks for is there from the beginning"
    )

    (build,) = [
        line
        for line in service.http_get("/metrics")[1].splitlines()
        if line.startswith("reo_build_info")
    ]
    assert f'version="{VERSION}"' in build
    assert 'confluent_kafka="{}"'.format(version("confluent-kafka")) in build
    assert 'compiled="yes"' in build


def says_the_same(inside: dict[str, Any], outside: dict[str, Any]) -> None:
    """/status has every key of `reo status --json`, and what the service knows is what the clusters
    say; the rest is null.
    """
    assert set(inside) == {*outside, "ready"}
    assert (inside["stage_one"], inside["stage_two"], inside["progress"]) == (
        "works",
        "works",
        "all is copied",
    )
    assert inside["lag"] == outside["lag"]
    for ours, theirs in zip(inside["partitions"], outside["partitions"], strict=True):
        assert set(ours) == set(theirs)
        known = {key: value for key, value in ours.items() if value is not None and key != "rate"}
        assert known == {key: theirs[key] for key in known}
        assert set(known) == {"topic", "partition", "last_stable_offset", "frontier", "lag"}


def assert_a_kill_is_seen(service: Service, topic: str) -> None:
    """By the metrics and /status; and nothing that was counted is lost."""
    counted = service.metric("reo_records_out_total", stage="deduplicator", topic=topic)
    before = service.metric("reo_stage_restarts_total", stage="deduplicator")
    victim = until(lambda: service.find_pid("deduplicator"), "stage two lives")
    send_signal(victim)
    until(
        lambda: service.metric("reo_stage_restarts_total", stage="deduplicator") > before,
        "the kill is counted",
    )
    error = json.loads(service.http_get("/status")[1])["last_error"]
    until(lambda: service.http_get("/readyz")[0] == 200, "it is ready again")
    assert (
        service.metric("reo_records_out_total", stage="deduplicator", topic=topic)
        >= counted
        >= RECORDS
    ), "what a dead process had counted is not lost"
    assert (error["error"], error["exit_code"]) == (None, -signal.SIGKILL)
    assert re.fullmatch(
        r"deduplicator-0 ended at \S+ \(SIGKILL\): its log says why", error["message"]
    )


def test_a_port_that_is_taken_is_named(clusters: Clusters, topic: str, start: Start) -> None:
    """Two services cannot share a port: the second ends with the settings' exit code, says which
    setting, and has created nothing.
    """
    other = f"{topic}-other"
    clusters.source.create(topic, 1)
    clusters.source.create(other, 1)
    first = start(topic, "deduplicator")
    until(lambda: first.http_get("/livez")[0] == 200, "the first service has its port")
    second = start(
        other,
        "deduplicator",
        metrics_port=first.environment["REO_METRICS_PORT"],
    )
    assert second.wait_for_exit() == 2
    assert "REO_METRICS_PORT" in second.log
    assert clusters.destination.partitions(other) == 0
    assert clusters.destination.partitions(f"{other}-proxy") == 0
    first.stop()


def test_a_copy_that_ends_needs_no_port_of_its_own(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """With --stop-at-end the metrics go to another port where theirs is taken, which is said, and
    the copy ends as it should.
    """
    clusters.source.create(topic, 1)
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        service = start(topic, "deduplicator", "--stop-at-end", metrics_port=str(port))
        assert service.wait_for_exit() == 0, service.read_log_tail()
    assert f"metrics.port {port} is taken" in service.log
    assert not service.errors
