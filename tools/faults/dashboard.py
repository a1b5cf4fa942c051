"""`make dashboard GRAFANA=/usr/share/grafana`: docs/dashboard.png, the dashboard during a copy with
faults.

All data in it is real: brokers, a service with several identical sources, Prometheus and Grafana
are real, with the files of deploy/ as docker-compose.yml mounts them, and Chromium draws the page.
Each process is killed; the JVM once more while stage two is stopped, so that it writes duplicates,
which stage two must drop; then the current source is down for a while. Debian's packages
`prometheus` and `chromium` and an installed Grafana have to be there; nothing else of this
repository needs them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from common.parent_death_signal import set_parent_death_signal
from tests.harness.judge import Record
from tests.harness.kafka import ROOT, Cluster, Clusters, make_record, until
from tests.harness.prometheus import Prometheus
from tests.harness.service import Service, send_signal
from tools.demo.broker import free_port
from tools.faults.load import Load
from tools.faults.run import PARTITIONS, RUN_BEGINS, Run
from tools.faults.stories.candidates import FAILOVER, IdenticalFeed
from tools.faults.testbed import IdenticalCluster, start_clusters

TOPIC = "orders"
DEPLOY = ROOT / "deploy" / "grafana"
WIDTH, CELL, HEAD = 1600, 38, 24
"""Pixels: the width of the page, the height of a row of Grafana's grid, and the margin around the
grid.
"""
APART_S = 45
"""Between two faults, so that each is visible separately."""
AWAY_S = 20
FROZEN_S = 5
LOADS_S = 30


@contextmanager
def start_grafana(home: Path, folder: Path, prometheus: Prometheus) -> Iterator[str]:
    """A Grafana with our provisioning and the compose file's settings, both with this machine's
    addresses and folders; its address.
    """
    port = free_port()
    replacements = {
        "http://prometheus:9090": f"http://127.0.0.1:{prometheus.port}",
        "/etc/grafana": str(DEPLOY),
    }

    def replace_paths(text: str) -> str:
        for original, replacement in replacements.items():
            text = text.replace(original, replacement)
        return text

    for path in (DEPLOY / "provisioning").rglob("*.yml"):
        copy = folder / path.relative_to(DEPLOY)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(replace_paths(path.read_text()))
    compose_environment = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"][
        "grafana"
    ]["environment"]
    environment = {name: replace_paths(value) for name, value in compose_environment.items()} | {
        "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(port),
        "GF_PATHS_DATA": str(folder),
        "GF_PATHS_LOGS": str(folder / "log"),
        "GF_PATHS_PROVISIONING": str(folder / "provisioning"),
        "GF_PATHS_PLUGINS": str(folder / "plugins"),
    }
    with (folder / "grafana.log").open("wb") as log:
        process = subprocess.Popen(
            [home / "bin" / "grafana", "server", "--homepath", home],
            env=os.environ | environment,
            preexec_fn=set_parent_death_signal,
            stdout=log,
            stderr=log,
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def read_grafana_version(address: str) -> str:
    """The version of Grafana when it responds; empty before."""
    try:
        with urllib.request.urlopen(f"{address}/api/health", timeout=5) as answer:  # noqa: S310
            return str(json.load(answer)["version"])
    except OSError:
        return ""


def draw_dashboard(address: str, minutes: float, to: Path) -> None:
    """The dashboard's last minutes: the whole page, and a picture of its first row for README."""
    panels = json.loads((DEPLOY / "dashboards" / "reo.json").read_text())["panels"]
    rows = [panel["gridPos"]["y"] for panel in panels if panel["type"] == "row"]
    last = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    for bottom, file in ((last, to), (rows[1], to.with_stem(f"{to.stem}-first-row"))):
        _take_screenshot(address, minutes, HEAD + CELL * bottom, file)


def _take_screenshot(address: str, minutes: float, height: int, to: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="reo-chromium-") as profile:
        subprocess.run(
            [
                "chromium",
                "--headless",
                *(["--no-sandbox"] if os.geteuid() == 0 else []),
                "--disable-gpu",
                "--no-first-run",
                "--disable-sync",
                "--disable-background-networking",
                "--disable-component-update",
                "--hide-scrollbars",
                f"--user-data-dir={profile}",
                f"--window-size={WIDTH},{height}",
                f"--virtual-time-budget={1000 * LOADS_S}",
                f"--screenshot={to}",
                f"{address}/d/reo/reo?kiosk&refresh=&from=now-{60 * minutes:.0f}s&to=now",
            ],
            check=True,
            timeout=4 * LOADS_S,
        )


def inject_faults(run: Run, service: Service, candidates: list[Cluster]) -> None:
    """Inject one fault of each kind, with a pause after each."""

    def wait_until_visible() -> None:
        run.wait_for_progress()
        time.sleep(APART_S)

    wait_until_visible()
    for stage in ("deduplicator", "jvm", "replicator"):
        run.kill_stage(service, stage)
        wait_until_visible()
    pid = until(lambda: service.find_pid("deduplicator"), "stage two lives")
    send_signal(pid, signal.SIGSTOP)
    run.record_fault("SIGSTOP of stage two")
    runs_before = service.log.count(RUN_BEGINS)
    run.kill_stage(service, "jvm")
    until(lambda: service.log.count(RUN_BEGINS) > runs_before, "a new run has begun")
    time.sleep(FROZEN_S)
    os.kill(pid, signal.SIGCONT)
    wait_until_visible()
    failed_broker = candidates[0].broker
    failed_broker.kill()
    run.record_fault("SIGKILL of the source's broker")
    until(
        lambda: service.metric("reo_source_switches_total") > 0,
        "the copy went over to another candidate",
    )
    time.sleep(AWAY_S)
    failed_broker.start().wait()
    wait_until_visible()


def make_current_record(number: int) -> Record:
    """A record with the current time, so that the dashboard shows its true age."""
    return make_record(number)._replace(timestamp_ms=time.time_ns() // 1_000_000)


def draw_copy(home: Path, testbed: Clusters, folder: Path, to: Path) -> str:
    """Copy, inject the faults, draw; then the copy must be exact. Returns the faults."""
    assert isinstance(testbed.source, IdenticalCluster)
    candidates = [testbed.source, *testbed.source.others]
    for candidate in candidates:
        candidate.create(TOPIC, PARTITIONS)
    load = Load(testbed.source, TOPIC, PARTITIONS, paused=True)
    run = Run(testbed, folder, random.Random(0), TOPIC, load)  # noqa: S311
    with IdenticalFeed(candidates, TOPIC, make_current_record):
        service = run.start(
            source_bootstrap_servers=";".join(candidate.address for candidate in candidates),
            **FAILOVER,
        )
        prometheus = Prometheus(folder, f"127.0.0.1:{service.environment['REO_METRICS_PORT']}")
        with start_grafana(home, folder, prometheus) as address:
            grafana_version = until(lambda: read_grafana_version(address), "Grafana answers")
            start_s = time.monotonic()
            inject_faults(run, service, candidates)
            draw_dashboard(address, (time.monotonic() - start_s) / 60, to)
        prometheus.end()
    Clusters(candidates[1], testbed.destination).wait_for_copy(
        TOPIC, candidates[1].count_offsets(TOPIC)
    )
    service.stop()
    return (
        f"Grafana {grafana_version}; "
        + ", ".join(f"{count} × {what}" for what, count in run.hits.items())
        + "; the copy is exact"
    )


def main() -> int:
    """Make the picture."""
    arguments = argparse.ArgumentParser(prog="make dashboard")
    arguments.add_argument(
        "grafana",
        type=Path,
        help="where Grafana is installed: the folder that has bin/grafana, conf and public",
    )
    arguments.add_argument("--out", type=Path, default=ROOT / "docs" / "dashboard.png")
    options = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="reo-dashboard-") as folder,
        start_clusters(Path(folder) / "brokers", "identical") as testbed,
    ):
        print(draw_copy(options.grafana.resolve(), testbed, Path(folder), options.out.resolve()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
