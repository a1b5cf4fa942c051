"""Readiness and lag are true while something is away: what a process says of itself
(`common.liveness`), and what is made of it (`reo.service.health`).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Metric
from prometheus_client.mmap_dict import MmapedDict

from common.background_probe import Probe
from common.errors import ClusterUnreachable
from common.liveness import BEAT_S, LATE_S, SILENT_S, Liveness
from common.routes import TopicPartition
from common.settings import Settings, load
from reo.service import health, startup
from reo.service.health import MetricFiles, assess_health, mark_late_not_ready
from reo.service.supervisor import Supervisor
from tests.unit.common.conftest import Clock
from tests.unit.common.settings.test_settings import GOOD
from tools.demo.broker import free_port

HERE = TopicPartition("orders-proxy", 0)


def read_gauge(name: str, **labels: str) -> float | None:
    """A gauge of this process."""
    return REGISTRY.get_sample_value(name, labels)


def test_readiness_returns_with_work_only(still: Clock) -> None:
    """A process that waits says why, and is not ready until it has worked; a sign of life alone is
    no work.
    """
    liveness, who = Liveness("test-ready", 1), {"stage": "test-ready", "worker": "1"}
    assert read_gauge("reo_waiting", **who, reason="start") == 1
    liveness.set_ready()
    assert (read_gauge("reo_ready", **who), read_gauge("reo_waiting", **who, reason="start")) == (
        1,
        0,
    )
    liveness.report_waiting("database")
    liveness.beat()
    assert (
        read_gauge("reo_ready", **who),
        read_gauge("reo_waiting", **who, reason="database"),
    ) == (0, 1)
    liveness.report_waiting("destination")
    assert (
        read_gauge("reo_waiting", **who, reason="database"),
        read_gauge("reo_waiting", **who, reason="destination"),
    ) == (0, 1)
    liveness.set_ready()
    assert (
        read_gauge("reo_ready", **who),
        read_gauge("reo_waiting", **who, reason="destination"),
    ) == (1, 0)


def test_a_process_that_stood_still_has_to_work_first(still: Clock) -> None:
    """It was not ready meanwhile, for its heartbeat was late; the next heartbeat says nothing about
    the servers that it did not ask.
    """
    liveness, who = Liveness("test-still", 0), {"stage": "test-still", "worker": "0"}
    liveness.set_ready()
    still.now += LATE_S
    liveness.beat()
    assert read_gauge("reo_ready", **who) == 1
    still.now += LATE_S + 0.1
    liveness.beat()
    assert (
        read_gauge("reo_ready", **who),
        read_gauge("reo_waiting", **who, reason="standstill"),
    ) == (0, 1)
    liveness.set_ready()
    assert read_gauge("reo_ready", **who) == 1


def test_a_sign_of_life_is_written_down_now_and_then(still: Clock) -> None:
    """It is given for each record; also a clock that was set back does not silence it."""
    liveness, who = Liveness("test-beat", 0), {"stage": "test-beat", "worker": "0"}
    first = still.now
    for step_s, seen in (
        (BEAT_S / 2, first),
        (BEAT_S, first + 1.5 * BEAT_S),
        (-3600.0, first + 1.5 * BEAT_S - 3600),
    ):
        still.now += step_s
        liveness.beat()
        assert read_gauge("reo_heartbeat_seconds", **who) == seen


def test_the_lag_grows_while_nobody_knows(still: Clock) -> None:
    """Nothing was seen to wait, then a server went away: it may wait since then. Partitions that
    are another worker's have no lag here, and do not grow.
    """
    liveness = Liveness("test-lag", 0)
    there = HERE._replace(partition=1)
    liveness.lag.report(HERE, 0, None)
    liveness.lag.report(there, 5000, int(still.now * 1000) - 400_000)
    assert read_gauge("reo_lag_seconds", stage="test-lag", topic=HERE.topic, partition="1") == 400
    liveness.lag.keep_only({HERE})
    assert read_gauge("reo_lag_records", stage="test-lag", topic=HERE.topic, partition="1") == 0
    still.now += 7
    liveness.report_waiting("destination")
    assert read_gauge("reo_lag_seconds", stage="test-lag", topic=HERE.topic, partition="0") == 7
    assert read_gauge("reo_lag_seconds", stage="test-lag", topic=HERE.topic, partition="1") == 0
    assert liveness.lag.report(HERE, 0, None) == 0


def gauges(still: Clock, heartbeat_age_s: float, ready: float, reason: str = "") -> list[Metric]:
    """What one process has written down."""
    labels = {"stage": "deduplicator", "worker": "0"}
    found = [
        Metric("reo_heartbeat_seconds", "", "gauge"),
        Metric("reo_ready", "", "gauge"),
        Metric("reo_waiting", "", "gauge"),
    ]
    found[0].add_sample("reo_heartbeat_seconds", labels, still.now - heartbeat_age_s)
    found[1].add_sample("reo_ready", labels, ready)
    if reason:
        found[2].add_sample("reo_waiting", labels | {"reason": reason}, 1.0)
    return found


@pytest.mark.parametrize(
    ("age_s", "ready", "reason", "silent", "not_ready"),
    [
        (1.0, 1.0, "", [], []),
        (
            1.0,
            0.0,
            "database",
            [],
            ["deduplicator 0 is not working: it waits for an answer of destination.class"],
        ),
        (1.0, 0.0, "", [], ["deduplicator 0 is not working: it waits for its start"]),
        (
            LATE_S + 1,
            1.0,
            "",
            [],
            ["deduplicator 0 is not working: it gave no sign of life for 16 s"],
        ),
        (
            SILENT_S + 1,
            1.0,
            "",
            ["deduplicator 0 gave no sign of life for 61 s"],
            ["deduplicator 0 is not working: it gave no sign of life for 61 s"],
        ),
    ],
)
def test_what_is_late_is_not_ready(
    still: Clock,
    monkeypatch: pytest.MonkeyPatch,
    age_s: float,
    ready: float,
    reason: str,
    silent: list[str],
    not_ready: list[str],
) -> None:
    """A process that is stuck in a call keeps the last thing that it said; it is not believed,
    neither by /readyz nor in /metrics.
    """
    monkeypatch.setattr("reo.service.health.time", SimpleNamespace(time=still))
    metrics = mark_late_not_ready(gauges(still, age_s, ready, reason), still.now)
    found = assess_health(
        cast(Any, SimpleNamespace(collect=lambda: metrics)), [("deduplicator", "0", 0.0)]
    )
    assert (found.silent, found.not_ready) == (silent, not_ready)
    assert [f"{process} is not working: it {why}" for process, why in found.waits.items()] == [
        re.sub(r"gave (.*) for \d+ s", r"gives \1", text) for text in not_ready
    ], "a reason that stays is the same text"
    assert metrics[1].samples[0].value == (0.0 if not_ready else 1.0)


def test_an_empty_metric_file_is_passed_over(tmp_path: Path) -> None:
    """A process was killed between the creation of the file and its first value; those of the
    others are read.
    """
    (tmp_path / "gauge_livemostrecent_1.db").touch()
    written = MmapedDict(str(tmp_path / "counter_2.db"))
    written.write_value('["reo_runs", "reo_runs_total", {}, "Runs."]', 3.0, 0.0)
    written.close()
    (family,) = MetricFiles(str(tmp_path)).collect()
    assert [(sample.name, sample.value) for sample in family.samples] == [("reo_runs_total", 3.0)]


@pytest.mark.parametrize("now_ahead", ["the start", "the last heartbeat"])
@pytest.mark.parametrize("is_silent", [False, True])
def test_a_process_that_hangs_is_found_although_the_clock_was_set_back(
    still: Clock, monkeypatch: pytest.MonkeyPatch, is_silent: bool, now_ahead: str
) -> None:
    """Its start is an hour ahead now; or it was started since, in place of one whose last heartbeat
    is an hour ahead.
    """
    monkeypatch.setattr("reo.service.health.time", SimpleNamespace(time=still))
    ages_s = [-3600.0, SILENT_S + 1 if is_silent else 1.0]
    start_s, heartbeat_s = ages_s if now_ahead == "the start" else reversed(ages_s)
    metrics = gauges(still, heartbeat_s, 1.0)
    collector = cast(Any, SimpleNamespace(collect=lambda: metrics))
    found = assess_health(collector, [("deduplicator", "0", still.now - start_s)])
    assert bool(found.silent) == is_silent


def test_a_server_that_does_not_answer_is_away(still: Clock) -> None:
    """What is known stays known, but no longer for current; an answer makes it so again. Also after
    an error that nobody expected.
    """
    answers: list[int | Exception] = [7, ClusterUnreachable("no answer"), TypeError("defect"), 9]

    def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    probe = Probe(ask, 0, 5.0)
    for passed_s, answer, answered in (
        (4.0, 7, True),
        (5.1, 7, False),
        (1.0, 7, False),
        (1.0, 9, True),
    ):
        still.now += passed_s
        probe.run_once()
        assert (probe.answer, probe.has_answered) == (answer, answered)


@pytest.mark.usefixtures("empty_jars")
def test_nobody_is_ready_before_its_process_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port answers before: each process that is to be started is waited for already, and is not
    called silent.
    """
    seen: list[list[tuple[str, str, float]]] = []

    listers: list[health.Processes] = []

    def open_server(*asked: Any, **_: Any) -> None:
        listers.append(asked[3])

    def serve(_: None) -> None:
        seen.append(list(listers[0]()))
        raise InterruptedError

    monkeypatch.setattr(startup, "prepare_clusters", lambda *_: {})
    monkeypatch.setattr("replicator.spark.java.find_version", lambda: "21.0.2")
    monkeypatch.setattr(health, "open_server", open_server)
    monkeypatch.setattr(health, "serve", serve)
    with pytest.raises(InterruptedError):
        Supervisor(
            load(GOOD | {"REO_DEDUPLICATOR_WORKERS": "2"}),
            ("deduplicator", "replicator"),
            lambda: False,
        ).run()
    assert seen == [
        [("deduplicator", "0", 0.0), ("deduplicator", "1", 0.0), ("replicator", "0", 0.0)]
    ]
    found = health.assess_health(CollectorRegistry(), seen[0])
    assert (found.silent, len(found.not_ready)) == ([], 3)


def test_the_port_answers_while_the_clusters_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is alive and not ready: what asks must not take it for a process that hangs."""
    port, answers = free_port(), dict.fromkeys(("/livez", "/readyz"), 0)

    def ask() -> None:
        for path in answers:
            asked = HTTPConnection("127.0.0.1", port, timeout=10)
            asked.request("GET", path)
            answers[path] = asked.getresponse().status

    def prepare(_: Settings, __: Sequence[str], stopping: Callable[[], bool]) -> None:
        asking = threading.Thread(target=ask)
        asking.start()
        while asking.is_alive():
            assert not stopping()

    monkeypatch.setattr(startup, "prepare_clusters", prepare)
    settings = load(GOOD | {"REO_METRICS_PORT": str(port)})
    assert Supervisor(settings, ("deduplicator",), lambda: False).run() == 0
    assert answers == {"/livez": 200, "/readyz": 503}
