"""SIGTERM ends the service within ten seconds with exit code 0, whatever it waits for: a
connection, a cluster, a commit, a rebalance.

While Spark starts, and in the middle of the work: `tests/e2e/test_faults.py`. Here one broker is
both clusters, and a proxy before it keeps the answer that the service waits for.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol

import pytest

from tests.harness.kafka import COPY_S, Cluster, Clusters, make_records, until
from tests.harness.recovery import add_source_offsets
from tests.harness.service import KILLED, Service, build_environment
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate
from tools.demo import fair_share
from tools.faults.proxy import Proxy
from tools.faults.proxy_rule import EVERY

STOP_S = 10
RECORDS = 20
QUICK = {"deduplicator_transaction_timeout_ms": "6000", "deduplicator_session_timeout_ms": "6000"}


class Begin(Protocol):
    """Starts a service that copies a new topic of the broker to another one through the proxy."""

    def __call__(self, *arguments: str, **more: str) -> Service:
        """Keyword arguments are settings."""


@pytest.fixture
def proxy(proxied: tuple[Cluster, Proxy]) -> Iterator[Proxy]:
    """The proxy; no fault outlives its test."""
    proxy = proxied[1]
    yield proxy
    for rule in proxy.rules:
        rule.release()
    proxy.rules.clear()
    proxy.half_open = False


@pytest.fixture
def begin(
    proxied: tuple[Cluster, Proxy], topic: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Begin]:
    """The source topic has one partition; what still lives at the end of the test is killed."""
    cluster, proxy = proxied
    started: list[Service] = []

    def start(*arguments: str, **more: str) -> Service:
        through = {
            "destination_topic": f"{topic}-copy",
            "destination_bootstrap_servers": proxy.address,
            **QUICK,
            **more,
        }
        service = Service(
            tmp_path_factory.mktemp("service") / "tmp",
            build_environment(Clusters(cluster, cluster), topic, through),
            arguments,
        )
        started.append(service)
        return service.start()

    cluster.create(topic, 1)
    yield start
    for service in started:
        service.kill_all()
        print(service.read_log_tail())


def stop_in_time(begin_to_wait: Callable[[], Service], may_be_killed: bool = True) -> Service:
    """SIGTERM ends a service that waits so within STOP_S; returns the service. The supervisor kills
    a process that does not end in time.

    A machine that stands still makes it longer, so it is measured up to three times: what waits for
    too long does so each time.
    """
    for _ in range(3):
        service = begin_to_wait()
        service.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            fair_share.wait(service.process, STOP_S)
            service.stop()  # has ended with 0, and nothing is left
            if may_be_killed or KILLED not in service.log:
                return service
        service.stop()
    raise AssertionError(f"it takes more than {STOP_S} s:\n{service.read_log_tail()}")


@pytest.mark.parametrize("side", ["source", "destination"])
def test_while_it_connects(begin: Begin, side: str) -> None:
    """A cluster takes the connection and says nothing; the start would wait a minute for it."""
    with contextlib.ExitStack() as sockets:

        def connect() -> Service:
            # of its own: another service may still be about to connect to the one before
            silent = sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
            service = begin(
                **{f"{side}_bootstrap_servers": f"127.0.0.1:{silent.getsockname()[1]}"},
                connect_timeout_s="60",
            )
            sockets.enter_context(silent.accept()[0])
            return service

        stop_in_time(connect)


def test_while_it_waits_for_a_cluster(begin: Begin, proxy: Proxy) -> None:
    """A running service whose destination keeps its connections and no longer answers."""

    def wait_for_cluster() -> Service:
        proxy.half_open = False
        service = begin("deduplicator")
        wait_for_frontiers(service, 1)
        proxy.half_open = True
        words = "waits for an answer of the destination cluster"
        until(lambda: words in service.http_get("/readyz")[1], "it waits")
        return service

    stop_in_time(wait_for_cluster)


def test_while_it_commits(
    begin: Begin, proxied: tuple[Cluster, Proxy], proxy: Proxy, topic: str
) -> None:
    """The request that ends the transaction has not arrived. Nobody can know whether it still does:
    the next start copies what is missing, once.
    """
    clusters, copy = Clusters(proxied[0], proxied[0]), f"{topic}-copy"
    starts = count(1)

    def commit() -> Service:
        for rule in proxy.rules:
            rule.release()
        proxy.rules.clear()
        service = begin("deduplicator")
        wait_for_frontiers(service, 1)
        end = next(starts) * RECORDS
        written = make_records(range(end), 1)
        proxied[0].write(topic, written[-RECORDS:])
        held = proxy.add_rule("hold", "EndTxn", topic, times=EVERY)
        write_intermediate(
            clusters,
            topic,
            copy,
            wrap_records(clusters, topic, add_source_offsets(written, end - RECORDS)),
        )
        until(lambda: held.hits, "a commit is held")
        return service

    stop_in_time(commit)
    for rule in proxy.rules:
        rule.release()
    again = begin("deduplicator")
    # the copy can be complete already, and a Python that still starts has no signal handlers
    again.wait_for_log("deduplicator-0 started")
    until(
        lambda: proxied[0].count_offsets(copy) >= RECORDS and not clusters.differences(topic, copy),
        "the copy is exact",
        COPY_S,
    )
    again.stop()


@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
def test_while_the_group_rebalances(begin: Begin, proxy: Proxy, topic: str, api: str) -> None:
    """The group's coordinator has not answered the request of a new member."""
    held = proxy.add_rule("hold", api, topic, times=EVERY)

    def join() -> Service:
        before = held.hits
        service = begin("deduplicator")
        until(lambda: held.hits > before, "a request is held")
        return service

    stop_in_time(join)
