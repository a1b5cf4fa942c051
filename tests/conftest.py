"""Fixtures for tests with real clusters: two brokers (and a database) for the whole session, a
topic name, and services that are killed at the end.

The destination's broker deletes records that are older than a minute, unless the topic has its own
retention, and checks every second: a copy that does not keep the source's retention loses records
with old timestamps during the test.
"""

from __future__ import annotations

import os
import pathlib
import random
import re
import signal
import uuid
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from tests.harness.kafka import ROOT, UNFENCED, Cluster, Clusters, speed_up_jvms
from tests.harness.postgresql import Server
from tests.harness.service import Service, build_environment
from tools.demo.broker import Broker
from tools.faults.proxied_broker import make_proxied_broker
from tools.faults.proxy import Proxy

EAGER_RETENTION = {
    "log.retention.ms": "60000",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
}
SHORT_QUOTAS = {"quota.window.num": "3"}
"""Quotas are measured over 3 s instead of 11 s: a test of a quota is shorter."""


LONGEST_FIRST = (
    "test_failover",
    "test_recover",
    "test_recover_beginnings",
    "test_live_cutover",
    "test_cutover",
    "test_offsets_sync",
    "test_older_kafka",
    "test_permissions",
    "test_bad_input",
    "test_refused_at_start",
    "test_security",
    "test_mapping",
    "test_shared_destination",
    "test_throttling",
    "test_offsets",
    "test_untranslatable_offsets",
    "test_crash_points",
    "test_faults",
    "test_postgresql_check",
    "test_filter_sql",
    "test_stage_lags",
    "test_status",
    "test_follow",
    "test_dry_run",
    "test_dry_run_of_a_copy",
    "test_start",
    "test_comparison",
    "test_comparison_beginnings",
    "test_many_topics",
    "test_postgresql",
    "test_header_names",
    "test_hanging",
    "test_service",
    "test_metrics_port",
    "test_postgresql_mirror",
    "test_postgresql_copy",
    "test_sigterm",
    "test_filter_function",
    "test_filter_options",
    "test_own_destination",
    "test_history",
    "test_spark_cluster",
    "test_client_options_service",
    "test_verify",
    "test_late_endtxn",
)
"""The slowest files, as `make test` reports at its end: they start first, because one that starts
last runs alone at the end.
"""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Six processes on two processors, because most of the time tests wait. Unit tests compute, and
    every further process has to collect them all.
    """
    units = ROOT / "tests" / "unit"
    only_units = all(
        (config.invocation_params.dir / argument.split("::")[0]).is_relative_to(units)
        for argument in config.args
    )
    return 2 if only_units else 6


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files first; with REO_TEST_ORDER=<seed> files, and tests in them, in an order that the
    seed decides: no test may depend on another.
    """
    seed = os.environ.get("REO_TEST_ORDER")
    if seed is None:
        items.sort(
            key=lambda item: (
                LONGEST_FIRST.index(item.path.stem)
                if item.path.stem in LONGEST_FIRST
                else len(LONGEST_FIRST)
            )
        )
        return
    rng = random.Random(seed)
    files = list(dict.fromkeys(item.path for item in items))
    rng.shuffle(files)
    rng.shuffle(items)
    items.sort(key=lambda item: files.index(item.path))


def pytest_configure() -> None:
    """Before anything is started."""
    speed_up_jvms()
    # a shell starts background jobs so; children would inherit it and ignore Ctrl-C
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Start(Protocol):
    """Starts a service that copies `topic`; keyword arguments are settings. `environment` replaces
    all defaults.
    """

    def __call__(
        self, topic: str, *arguments: str, environment: dict[str, str] | None = None, **more: str
    ) -> Service:
        """Start it."""


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """Two single-node clusters."""
    folder, jars = tmp_path_factory.mktemp("brokers"), ROOT / "jars" / "broker"
    source = Broker(folder / "source", jars, settings=SHORT_QUOTAS | UNFENCED)
    destination = Broker(
        folder / "destination", jars, settings=EAGER_RETENTION | SHORT_QUOTAS | UNFENCED
    )
    try:
        for broker in (source, destination):
            broker.start()
        yield Clusters(Cluster(source.wait()), Cluster(destination.wait()))
    finally:
        for broker in (source, destination):
            broker.kill()


@pytest.fixture(scope="session")
def database() -> Iterator[Server]:
    """A PostgreSQL server."""
    server = Server()
    try:
        yield server.make().start()
    finally:
        server.end()


def make_topic_name(name: str) -> str:
    """A new topic name that contains `name`."""
    return f"{re.sub(r'[^a-zA-Z0-9]+', '-', name).strip('-')[:60]}-{uuid.uuid4().hex[:6]}"


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Proxy]]:
    """A broker of the module's own, which the cluster asks directly, and the proxy in front of
    it.
    """
    broker, proxy = make_proxied_broker(
        tmp_path_factory.mktemp("proxied") / "broker", ROOT / "jars" / "broker"
    )
    broker.settings |= UNFENCED
    with proxy:
        try:
            yield Cluster(broker.start().wait()), proxy
        finally:
            broker.kill()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name for this test only; the topic is not created."""
    return make_topic_name(request.node.name)


@pytest.fixture(scope="module")
def start_for_module(
    clusters: Clusters, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Start]:
    """`start` for fixtures that several tests share."""
    yield from _start_services(clusters, lambda: tmp_path_factory.mktemp("service"))


@pytest.fixture
def start(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts services; those that still run at the end of the test are killed, and the logs are
    printed for a failed test.
    """
    yield from _start_services(clusters, lambda: tmp_path_factory.mktemp("service"))


def _start_services(clusters: Clusters, folder: Callable[[], pathlib.Path]) -> Iterator[Start]:
    started: list[Service] = []

    def begin(
        topic: str, *arguments: str, environment: dict[str, str] | None = None, **more: str
    ) -> Service:
        variables = environment or build_environment(clusters, topic, more)
        service = Service(folder() / "tmp", variables, arguments)
        started.append(service)
        return service.start()

    yield begin
    for number, service in enumerate(started):
        service.kill_all()
        print(
            f"--- service {number}: reo run {' '.join(service.arguments)}, exit code"
            f" {service.process.returncode}\n{service.read_log_tail()}"
        )
    assert [line for service in started for line in service.crashes] == []
