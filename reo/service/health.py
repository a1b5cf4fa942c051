"""The HTTP server of the whole service: /metrics, /livez, /readyz, /status.

All of them read the metric files of the service's processes (`common.liveness`). A process that
hangs sends no heartbeats: /livez then names it. /readyz names each process that does not do its
work, and what it waits for. A process whose heartbeat is late is not ready, whatever its own gauge
says; /metrics shows that too.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from socketserver import TCPServer
from types import MappingProxyType
from typing import Any, NamedTuple, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import confluent_kafka
import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Info, Metric, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.multiprocess import MultiProcessCollector

from common import otel_resource
from common.errors import SettingsInvalid
from common.liveness import LATE_S, REASONS, is_silent
from common.metrics import LIVENESS_FILES
from deduplicator import compiled_path
from reo.version import VERSION

log = logging.getLogger(__name__)
TRIES = 10
Processes = Callable[[], Iterable[tuple[str, str, float]]]
"""Stage, worker and start time (Unix) of each process that should run now; 0 for one that has not
been started yet.
"""


class Health(NamedTuple):
    """The problems of the service as text; empty lists when there are none."""

    silent: list[str]
    not_ready: list[str]
    waits: Mapping[str, str] = MappingProxyType({})
    """Why each process that is not ready does not work, without figures that change."""


Describe = Callable[[CollectorRegistry, Health], dict[str, Any]]
"""What /status says, for JSON."""


class SilentRequestHandler(WSGIRequestHandler):
    """Does not log requests: probes come every few seconds."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
        """Log nothing."""


class Server(ThreadingWSGIServer):
    """On IPv4 and IPv6, where the address is empty: a pod can have one of them alone."""

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        if ":" in address[0] or (not address[0] and socket.has_dualstack_ipv6()):
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Without a look for the host's name, which can wait for a name server."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]
        self.setup_environ()


RESTARTS = Counter("reo_stage_restarts", "Processes that the supervisor started again.", ("stage",))
"""Counted by the supervisor itself, which has no metric file."""
BUILD_INFO = Gauge(
    "reo_build_info",
    "1, with what the service is made of. `compiled`: yes when stage two's compiled path was built"
    " and can be used.",
    ("version", "python", "confluent_kafka", "librdkafka", "compiled"),
)


class MetricFiles:
    """The metric files of all processes. An empty one says nothing yet: its process is just
    creating it, or was killed at that moment. When one is removed meanwhile, all are read again.
    """

    def __init__(self, folder: str, pattern: str = "*.db") -> None:
        self.folder = Path(folder)
        self.pattern = pattern

    def collect(self) -> Iterable[Metric]:
        """Their present metrics."""
        for _ in range(TRIES - 1):
            with contextlib.suppress(FileNotFoundError):
                return self._read()
            time.sleep(0.02)
        return self._read()

    def _read(self) -> list[Metric]:
        files = [str(file) for file in self.folder.glob(self.pattern) if file.stat().st_size]
        return mark_late_not_ready(MultiProcessCollector.merge(files), time.time())


def mark_late_not_ready(families: Iterable[Metric], now: float) -> list[Metric]:
    """Set `reo_ready` to 0 for each process whose last heartbeat is older than LATE_S."""
    metrics = list(families)
    by_name = {metric.name: metric for metric in metrics}
    heartbeats, ready = by_name.get("reo_heartbeat_seconds"), by_name.get("reo_ready")
    if heartbeats and ready:
        late = [sample.labels for sample in heartbeats.samples if now - sample.value > LATE_S]
        ready.samples = [
            sample._replace(value=0.0) if sample.labels in late else sample
            for sample in ready.samples
        ]
    return metrics


def read_values(
    registry: CollectorRegistry, names: Container[str], *labels: str
) -> dict[tuple[str, ...], float]:
    """The values of these metrics, by name and by the values of these labels; empty for a label
    that a metric does not have.
    """
    return {
        (sample.name, *(sample.labels.get(label, "") for label in labels)): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name in names
    }


def build_registry(folder: str) -> CollectorRegistry:
    """The metrics of all processes of the service, including the counters of ended ones, and the
    supervisor's.
    """
    registry = CollectorRegistry()
    for collector in (cast(Any, MetricFiles(folder)), RESTARTS, BUILD_INFO):
        registry.register(collector)
    resource = otel_resource.read_attributes(os.environ)
    if resource:
        target = Info("target", "OpenTelemetry's resource attributes.", registry=registry)
        target.info(otel_resource.build_labels(resource))
    return registry


def build_liveness_registry(folder: str) -> CollectorRegistry:
    """What `assess_health` needs, in small files: to read the metrics of 2,000 partitions takes
    half a second of processor time.
    """
    registry = CollectorRegistry()
    registry.register(cast(Any, MetricFiles(folder, LIVENESS_FILES)))
    return registry


def set_build_info() -> None:
    """Say what this service is made of."""
    try:
        compiled_path.load_library()
        compiled = "yes"
    except compiled_path.CompiledPathUnavailable:
        compiled = "no"
    clients = confluent_kafka.__version__, confluent_kafka.libversion()[0]
    BUILD_INFO.labels(VERSION, platform.python_version(), *clients, compiled).set(1)


def assess_health(
    metrics: CollectorRegistry, processes: Iterable[tuple[str, str, float]]
) -> Health:
    """Which of the processes that should run hang or are not ready."""
    names = ("reo_heartbeat_seconds", "reo_ready", "reo_waiting")
    gauges = read_values(metrics, names, "stage", "worker", "reason")
    waits: dict[str, str] = {}
    health, now = Health([], [], waits), time.time()
    for stage, worker, started in processes:
        last = gauges.get(("reo_heartbeat_seconds", stage, worker, ""), 0.0)
        # what is later than now is from before the clock was set back
        heartbeat = max((at for at in (started, last) if at <= now), default=now) or now
        silence = f"gave no sign of life for {now - heartbeat:.0f} s"
        if is_silent(heartbeat, now):
            health.silent.append(f"{stage} {worker} {silence}")
        if gauges.get(("reo_ready", stage, worker, ""), 0.0) < 1:
            waits_for = next(
                (
                    text
                    for reason, text in REASONS.items()
                    if gauges.get(("reo_waiting", stage, worker, reason))
                ),
                REASONS["start"],
            )
            is_late = now - heartbeat > LATE_S
            why = silence if is_late else f"waits for {waits_for}"
            waits[f"{stage} {worker}"] = "gives no sign of life" if is_late else why
            health.not_ready.append(f"{stage} {worker} is not working: it {why}")
    return health


def find_halted(metrics: CollectorRegistry) -> dict[str, str]:
    """By source topic: the routes of which nothing is read, and what halts them."""
    gauges = read_values(metrics, ("reo_route_halted",), "topic", "state")
    return {topic: state for (_, topic, state), value in sorted(gauges.items()) if value}


def open_server(
    address: str,
    port: int,
    folder: str,
    processes: Processes,
    describe: Describe,
    any_port: bool = False,
) -> WSGIServer:
    """A server on this address (empty: all addresses of the host) and port, which answers by
    `serve_next` and `serve`. SettingsInvalid when it cannot be opened; with `any_port` a free one
    takes the place of a port that is taken.
    """
    registry, liveness = build_registry(folder), build_liveness_registry(folder)
    set_build_info()
    metrics_app = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return cast(Iterable[bytes], metrics_app(environ, start_response))
        if path not in ("/livez", "/readyz", "/status"):
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"/metrics, /livez, /readyz or /status\n"]
        health = assess_health(liveness, processes())
        if path == "/status":
            start_response("200 OK", [("Content-Type", "application/json")])
            return [orjson.dumps(describe(registry, health)), b"\n"]
        problems = health.silent + (health.not_ready if path == "/readyz" else [])
        start_response(
            "503 Service Unavailable" if problems else "200 OK", [("Content-Type", "text/plain")]
        )
        lines = problems or ["ok"]
        if path == "/readyz":  # what a user asked for is no reason to hold up a rollout
            lines += [f"{topic} is {state}" for topic, state in find_halted(liveness).items()]
        return ["\n".join(lines).encode() + b"\n"]

    try:
        return open_port(address, port, app)
    except OSError as error:
        if any_port and error.errno == errno.EADDRINUSE:
            log.warning("metrics.port %d is taken: the metrics are on another one", port)
            return open_server(address, 0, folder, processes, describe)
        where = f"{port} of metrics.address {address}" if address else port
        remedy = find_remedy(error, "REO_METRICS_PORT")
        raise SettingsInvalid(
            f"metrics.port {where} cannot be opened ({error.strerror}): {remedy}"
        ) from None


def open_port(address: str, port: int, app: Any) -> WSGIServer:
    """A server that answers with this WSGI application; OSError when there can be none."""
    return make_server(address, port, app, Server, SilentRequestHandler)


def find_remedy(error: OSError, port: str) -> str:
    """What to do about a port that cannot be opened, which has this name."""
    if error.errno == errno.EADDRINUSE:
        return f"set {port} to a free one"
    if error.errno == errno.EACCES:
        return f"set {port} to 1024 or more"
    return "set REO_METRICS_ADDRESS to an address of this host, or remove it for all of them"


def serve_next(server: WSGIServer) -> None:
    """Answer the request that waits, if there is one: for the time in which this process forks, and
    may have no thread that serves.
    """
    server.timeout = 0
    server.handle_request()


def serve(server: WSGIServer) -> None:
    """Answer in a thread until the process ends."""
    threading.Thread(target=server.serve_forever, daemon=True, name="metrics").start()
