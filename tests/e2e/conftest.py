"""Fixtures of the tests of stage one's sink: one Spark session for all tests of a module, because a
start takes seconds, and a destination behind a proxy. And of those of the Helm chart.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.conftest import make_topic_name
from tests.harness.helm import HELM, package_chart
from tests.harness.kafka import Cluster, Clusters
from tests.harness.sink import SinkRuns, start_spark
from tools.faults.proxy import Proxy

REQUEST_TIMEOUT_MS = "2000"
"""How long the producer waits for an answer."""


@pytest.fixture(scope="module")
def between(clusters: Clusters, proxied: tuple[Cluster, Proxy]) -> Clusters:
    """The source, and a destination behind a proxy."""
    return Clusters(clusters.source, proxied[0])


@pytest.fixture(scope="module")
def proxy(proxied: tuple[Cluster, Proxy]) -> Proxy:
    """In front of the destination."""
    return proxied[1]


@pytest.fixture(scope="module")
def spark(between: Clusters) -> Iterator[SparkSession]:
    """One session for all tests: a start takes seconds."""
    with start_spark(between) as session:
        yield session


@pytest.fixture
def runs(
    spark: SparkSession, between: Clusters, proxy: Proxy, request: pytest.FixtureRequest
) -> Iterator[SinkRuns]:
    """Runs of a topic of this test; the network is whole again at the end, and no query is left."""
    yield SinkRuns(
        spark,
        between,
        make_topic_name(request.node.name),
        {
            "destination_bootstrap_servers": proxy.address,
            "intermediate_producer_options_request_timeout_ms": REQUEST_TIMEOUT_MS,
        },
    )
    proxy.half_open = False
    proxy.rules.clear()
    for running in spark.streams.active:
        running.stop()


@pytest.fixture(scope="module")
def helm() -> str:
    """The program."""
    return HELM


@pytest.fixture(scope="module")
def package(helm: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as it is released."""
    return package_chart(helm, tmp_path_factory.mktemp("chart"))
