"""With `log.format=json` all that the service's processes say is events, also what the JVM says and
what a crash leaves behind.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import orjson

from tests.conftest import Start
from tests.harness.kafka import ROOT, Clusters, make_records, until
from tests.harness.log_events import ALWAYS
from tests.harness.service import RESTARTED, Service, build_environment, send_signal

JVMS_REMARKS = ("WARNING: ", "Picked up ")
"""What a JVM prints at each start begins with one of these."""
WARNS = """
from common.settings import load
from replicator.spark import session
environment = {"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1", "REO_SOURCE_TOPIC": "t"}
environment |= {"REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1", "REO_LOG_FORMAT": "json"}
jvm = session.start_session(load(environment), 1).sparkContext._jvm
reason = jvm.java.lang.IllegalStateException("a \\"reason\\"")
jvm.org.slf4j.LoggerFactory.getLogger("here").warn("two\\nlines", reason)
"""


def parse_events(service: Service) -> list[dict[str, Any]]:
    """Every line, as JSON."""
    return [orjson.loads(line) for line in service.log.splitlines()]


def test_every_line_is_an_event(clusters: Clusters, topic: str, start: Start) -> None:
    """Both stages copy, the JVM is killed and replaced, the service is stopped: each line has time,
    level, stage and event.

    What is about a partition or a run has it in fields of its own, and the crash is an ERROR with
    its reason. OpenTelemetry's resource is in each line, and at /metrics.
    """
    clusters.source.create(topic, 2)
    clusters.source.write(topic, make_records(range(100), 2))
    environment = build_environment(clusters, topic, {"log_format": "json"})
    service = start(topic, environment=environment | {"OTEL_SERVICE_NAME": "orders"})
    clusters.wait_for_copy(topic, 100)
    send_signal(until(lambda: service.find_pid("jvm"), "the JVM lives"))
    clusters.source.write(topic, make_records(range(100, 200), 2))
    until(
        lambda: service.metric("reo_stage_restarts_total", stage="replicator") >= 1,
        "stage one is started again",
    )
    clusters.wait_for_copy(topic, 200)
    assert 'target_info{service_name="orders"} 1.0' in service.http_get("/metrics")[1]
    service.stop()
    events = parse_events(service)
    assert {line["stage"] for line in events if "resource" not in line} <= {"replicator-jvm"}
    assert [line for line in events if not set(line) >= ALWAYS] == []
    # a JVM on a busy machine may warn of it
    assert {line["stage"] for line in events} - {"replicator-jvm"} == {
        "reo",
        "replicator",
        "deduplicator-0",
    }
    begun = [line for line in events if "begins at {" in line["event"]]
    assert len(begun) >= 2
    assert len({line["epoch"] for line in begun}) == len(begun)
    assert begun[0]["starts"] == {f"{topic}-0": 0, f"{topic}-1": 0}
    assert {
        (line["topic"], line["partition"], line["offset"])
        for line in events
        if ": first frontier, the copy begins at" in line["event"]
    } == {(topic, 0, 0), (topic, 1, 0)}
    wrong = [line for line in events if line["level"] in ("ERROR", "CRITICAL")]
    named = [line for line in wrong if "error" in line]  # a client's have none
    assert {line["error"] for line in named} <= RESTARTED, wrong
    assert [
        line["event"]
        for line in named
        if (line["stage"], line["error"], line["exit_code"]) == ("replicator", "StageFailed", 1)
        and "JVM" in line["event"]
    ], wrong
    assert [
        line["event"]
        for line in events
        if line["stage"] == "replicator" and line["event"].startswith(JVMS_REMARKS)
    ] == [], "nobody is told what is no news"


def test_an_end_has_its_error_and_exit_code(clusters: Clusters, topic: str, start: Start) -> None:
    """A stop is one ERROR; so is one before the settings are known."""
    service = start(topic, log_format="json")
    assert service.wait_for_exit() == 11
    (said,) = (line for line in parse_events(service) if line["level"] == "ERROR")
    assert (said["error"], said["exit_code"]) == ("TopicMissing", 11)
    wrong = start(topic, log_format="json", metrics_port="many")
    assert wrong.wait_for_exit() == 2
    (said,) = parse_events(wrong)
    assert (said["error"], said["exit_code"], said["stage"]) == ("SettingsInvalid", 2, "reo")


def test_the_jvm_speaks_json_too() -> None:
    """Level, logger and the exception's reason are fields, and two lines of a message are one
    event.
    """
    done = subprocess.run(
        [sys.executable, "-c", WARNS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    events = [orjson.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    (said,) = (line for line in events if line.get("logger") == "here")
    assert set(said) >= ALWAYS
    assert (said["level"], said["stage"], said["event"], said["exception"]) == (
        "WARN",
        "replicator-jvm",
        "two\nlines",
        'a "reason"',
    )
