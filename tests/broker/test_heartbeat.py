"""`reo heartbeat` on real brokers: what it says of a path that works, and of one that does not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from typing import Any

from tests.harness.commands import COMMAND_S, reo
from tests.harness.kafka import ROOT, Clusters, until
from tests.harness.service import build_environment
from tools.demo import fair_share
from tools.demo.broker import free_port


def test_the_age_follows_what_arrives(clusters: Clusters, topic: str) -> None:
    """Nothing arrives: the age is the time since the start. A heartbeat that is copied sets it
    back, one of another sender and a record of something else do not. The metric says the same, and
    Ctrl-C ends with 0.
    """
    clusters.source.create(topic, 1)
    clusters.destination.create(topic, 2)
    port = free_port()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "reo", "heartbeat", topic),
            *("--every", "0.2", "--port", str(port), "--json"),
        ],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"]} | build_environment(clusters, topic, {}),
    )

    def read_line() -> dict[str, Any]:
        assert process.stdout
        return dict(json.loads(process.stdout.readline()))

    try:
        first, second = read_line(), read_line()
        assert (first["topic"], first["took_s"], second["took_s"]) == (topic, None, None)
        assert second["age_s"] > first["age_s"] > 0
        copying = clusters.destination.producer()
        for value in (b"no heartbeat", b'{"sender": "another", "written_s": 1}', b"[]"):
            copying.produce(topic, value, partition=1)
        assert copying.flush(30) == 0
        assert read_line()["took_s"] is None
        heartbeats = until(lambda: clusters.source.read(topic).get(0), "a heartbeat is written")
        copying.produce(topic, heartbeats[-1].value, partition=0)
        assert copying.flush(30) == 0
        line = read_line()
        while line["took_s"] is None:
            line = read_line()
        assert 0 < line["took_s"] <= line["age_s"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            served = answer.read().decode()
        assert f'reo_heartbeat_record_age_seconds{{topic="{topic}"}} ' in served
        process.send_signal(signal.SIGINT)
        assert fair_share.wait(process, COMMAND_S) == 0
    finally:
        process.kill()
        process.wait()


def test_what_nothing_copies_is_refused(clusters: Clusters, topic: str) -> None:
    """A topic without a rule, or that is not there: one error, and nothing is created."""
    refused = reo(clusters, topic, "heartbeat", f"{topic}-other", exit_code=2)
    assert f"{topic}-other, which no rule copies" in refused.stderr
    missing = reo(clusters, topic, "heartbeat", topic, exit_code=11)
    assert f"topic {topic} does not exist at the source cluster. Create it" in missing.stderr
