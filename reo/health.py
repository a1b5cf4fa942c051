"""One port for the whole service: /metrics, /livez, /readyz.

All three read the same thing, the metric files of the service's processes (`common.pulse`). A process that hangs stops beating: /livez then says
which one. /readyz says which one does not do its work, and what it waits for. What is late is not ready, whatever it said last: so it is in /metrics too.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, Counter, Metric, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.multiprocess import MultiProcessCollector

from common.errors import SettingsInvalid
from common.pulse import REASONS, Reason

SILENT_S = 60.0
"""A stage whose last sign of life is older hangs."""
LATE_S = 15.0
"""A stage whose last sign of life is older is stuck in a call, most probably to a server that is away: it is not ready. Longer than any step of real work."""
TRIES = 10
Processes = Callable[[], Iterable[tuple[str, str, float]]]
"""Stage, worker and Unix time of the start of each process that should live now; 0 for one that was not started yet."""


@dataclass(frozen=True, slots=True)
class Health:
    """The state of the service in words; empty lists are good."""

    silent: list[str]
    not_ready: list[str]


class Quiet(WSGIRequestHandler):
    """Probes come every few seconds; they are not worth a line each."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
        """Say nothing."""


RESTARTS = Counter("reo_stage_restarts", "Processes that the supervisor started again.", ("stage",))
"""The supervisor's own; it has no file, it serves itself."""


class Files:
    """The metric files of all processes; a file that a process is just making is empty for a moment, and read again."""

    def __init__(self, folder: str) -> None:
        self.files = MultiProcessCollector(None, path=folder)

    def collect(self) -> Iterable[Metric]:
        """What they say now."""
        for _ in range(TRIES - 1):
            try:
                return with_late(self.files.collect(), time.time())
            except (struct.error, FileNotFoundError):
                time.sleep(0.02)
        return with_late(self.files.collect(), time.time())


def with_late(found: Iterable[Metric], now: float) -> list[Metric]:
    """The same, but nobody is ready whose last sign of life is too old."""
    metrics = list(found)
    by_name = {metric.name: metric.samples for metric in metrics}
    late = {(sample.labels["stage"], sample.labels["worker"]) for sample in by_name.get("reo_heartbeat_seconds", []) if now - sample.value > LATE_S}
    samples = by_name.get("reo_ready", [])
    samples[:] = [sample._replace(value=0.0) if (sample.labels["stage"], sample.labels["worker"]) in late else sample for sample in samples]
    return metrics


def registry(folder: str) -> CollectorRegistry:
    """The metrics of all processes of the service, dead ones' counters included, and the supervisor's."""
    collected = CollectorRegistry()
    collected.register(cast(Any, Files(folder)))
    collected.register(RESTARTS)
    return collected


def health(metrics: CollectorRegistry, processes: Iterable[tuple[str, str, float]]) -> Health:
    """What the heartbeats say of the processes that should live."""
    gauges: dict[tuple[str, str, str], float] = {}
    waits: dict[tuple[str, str], Reason] = {}
    for family in metrics.collect():
        for sample in family.samples:
            if family.name in ("reo_heartbeat_seconds", "reo_ready"):
                gauges[family.name, sample.labels["stage"], sample.labels["worker"]] = sample.value
            elif family.name == "reo_waiting" and sample.value:
                waits[sample.labels["stage"], sample.labels["worker"]] = cast(Reason, sample.labels["reason"])
    silent, not_ready = [], []
    for stage, worker, started in processes:
        seen = max(started, gauges.get(("reo_heartbeat_seconds", stage, worker), 0.0)) or time.time()
        age_s = time.time() - seen
        if age_s > SILENT_S:
            silent.append(f"{stage} {worker} gave no sign of life for {age_s:.0f} s")
        if gauges.get(("reo_ready", stage, worker), 0.0) < 1:
            waits_for = REASONS[waits.get((stage, worker), "start")]
            why = f"gave no sign of life for {age_s:.0f} s" if age_s > LATE_S else f"waits for {waits_for}"
            not_ready.append(f"{stage} {worker} is not working: it {why}")
    return Health(silent, not_ready)


def serve(address: str, port: int, folder: str, processes: Processes) -> int:
    """Answer on this address (empty: all of the host's) and port, in a thread, until the process ends; returns the port. SettingsInvalid when it is taken."""
    metrics = registry(folder)
    metrics_app = make_wsgi_app(metrics)

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return cast(Iterable[bytes], metrics_app(environ, start_response))
        if path not in ("/livez", "/readyz"):
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"/metrics, /livez or /readyz\n"]
        found = health(metrics, processes())
        wrong = found.silent + (found.not_ready if path == "/readyz" else [])
        start_response("503 Service Unavailable" if wrong else "200 OK", [("Content-Type", "text/plain")])
        return [("\n".join(wrong) or "ok").encode() + b"\n"]

    try:
        server = make_server(address, port, app, ThreadingWSGIServer, Quiet)
    except OSError as taken:
        raise SettingsInvalid(f"metrics.port {port}{f' of metrics.address {address}' if address else ''} cannot be opened ({taken.strerror}): "
                              "set REO_METRICS_PORT to a free one") from None
    threading.Thread(target=server.serve_forever, daemon=True, name="metrics").start()
    return int(server.server_port)
