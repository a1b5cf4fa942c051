"""What stage one asks of the candidates that it copies from: one that stands still is not waited
for longer than is said, and one with new leaders is well.

Its watch, its health check and the questions for offsets, without a JVM, on real brokers.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient
from prometheus_client import REGISTRY

from common.errors import ClusterUnreachable, SourceRecreated
from common.kafka import partition_offsets, source_topics, topic_creation
from common.kafka.clients import create_admin_client
from common.routes import TopicPartition
from common.settings import Settings, load
from common.source_pool import SourcePool, SourceTopics
from replicator.runs.run import Plan
from replicator.runs.watch import Watch
from replicator.stage import Stage
from tests.harness.identical_sources import (
    PARTITIONS,
    QUICK_FAILOVER,
    Candidates,
    create_identical_topics,
    freeze_broker,
    join_addresses,
    restore_brokers,
)
from tests.harness.kafka import ROOT, UNFENCED, Cluster, Clusters, until
from tests.harness.stage_without_engine import create_stage, create_watch
from tools.demo.broker import Broker

UNHEALTHY_ROUNDS = 8
"""After a change of leaders, of half a second each; 58 were seen where a client was left to
itself.
"""
RESTLESS = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "2000"}
"""The controller takes this broker's partitions away every other second and gives them back at the
next heartbeat, with a new leader epoch.
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that can be harmed; the shared source is the other candidate."""
    broker = Broker(
        tmp_path_factory.mktemp("candidate") / "broker", ROOT / "jars" / "broker", 384, UNFENCED
    )
    try:
        yield Cluster(broker.start().wait())
    finally:
        broker.kill()


@pytest.fixture(autouse=True)
def well(alone: Cluster) -> Iterator[None]:
    """It answers at the end of a test."""
    yield
    assert alone.broker.process
    alone.broker.process.send_signal(signal.SIGCONT)


@pytest.fixture
def candidates(alone: Cluster, clusters: Clusters) -> Candidates:
    """Both."""
    return alone, clusters.source


def load_candidate_settings(
    candidates: Iterable[Cluster], clusters: Clusters, topic: str, mode: str = "failover"
) -> Settings:
    """A copy from these."""
    return load(
        {f"REO_{name.upper()}": value for name, value in QUICK_FAILOVER.items()}
        | {
            "REO_SOURCE_BOOTSTRAP_SERVERS": join_addresses(candidates),
            "REO_SOURCE_TOPIC": topic,
            "REO_SOURCE_MODE": mode,
            "REO_DESTINATION_BOOTSTRAP_SERVERS": clusters.destination.address,
        }
    )


def watch_first_candidate(
    candidates: Iterable[Cluster], clusters: Clusters, topic: str, mode: str
) -> tuple[Stage, Watch]:
    """Stage one without its JVM, as it watches a run on the first candidate."""
    settings = load_candidate_settings(candidates, clusters, topic, mode)
    on = settings.select_source(settings.source_cluster)
    sources = topic_creation.prepare_topics(on)
    stage = create_stage(settings)
    stage.pool.current = 0
    identities = {route: source.identity for route, source in sources.items()}
    begins = dict.fromkeys(source_topics.list_intermediate_partitions(sources), 0)
    return stage, create_watch(stage, Plan(1, on, sources, identities, begins, {}))


@pytest.mark.parametrize("mode", ["failover", "single"])
def test_what_the_watch_says_of_a_topic_that_was_recreated(
    clusters: Clusters, candidates: Candidates, topic: str, mode: str
) -> None:
    """It ends the run where there may be another candidate, and the service where there is none.
    (Spark's query may fail before; here there is none.)
    """
    one, _ = candidates
    create_identical_topics(candidates, topic, 0)
    stage, watch = watch_first_candidate(
        candidates if mode == "failover" else (one,), clusters, topic, mode
    )
    assert stage._evaluate_run(watch) is None
    one.delete(topic)
    one.create(topic, PARTITIONS)
    if mode == "failover":
        until(lambda: stage._evaluate_run(watch) == "lost", "the run is ended")
    else:
        with pytest.raises(SourceRecreated):
            until(lambda: stage._evaluate_run(watch), "the service is ended")


def test_a_candidate_is_not_waited_for_longer_than_is_said(
    clusters: Clusters, candidates: Candidates, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands still in the middle of a look at it: every question that follows ends after
    `source.request_timeout_ms`, so that another can be taken.
    """
    one, _ = candidates
    create_identical_topics(candidates, topic, 0)
    stage, watch = watch_first_candidate(candidates, clusters, topic, "failover")
    assert stage._evaluate_run(watch) is None
    described, asked = source_topics.describe_sources, TimeOuts(stage.clients.source_admin)
    stage.clients.source_admin = cast(AdminClient, asked)

    def then_still(*arguments: Any) -> SourceTopics:
        restore_brokers((one,))
        found = described(*arguments)
        asked.found.clear()
        freeze_broker(one)
        return found

    monkeypatch.setattr(source_topics, "describe_sources", then_still)
    until(
        lambda: stage._evaluate_run(watch) is None and asked.found,
        "it stands still in the middle of a look at it",
    )
    assert set(asked.found) == {int(QUICK_FAILOVER["source_request_timeout_ms"]) / 1000}


class TimeOuts:
    """A client, and how long its questions may wait."""

    def __init__(self, client: AdminClient) -> None:
        self.client = client
        self.found: list[float | None] = []

    def list_offsets(self, *arguments: Any, **more: Any) -> Any:
        """Offsets."""
        self.found.append(more.get("request_timeout"))
        return self.client.list_offsets(*arguments, **more)

    def __getattr__(self, name: str) -> Any:
        """All else that a client does."""
        return getattr(self.client, name)


@pytest.mark.long
def test_a_change_of_leaders_does_not_make_a_candidate_unhealthy_for_long(
    clusters: Clusters,
    candidates: Candidates,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that is told that it has an old leader epoch does not ask for the new one
    (librdkafka 2.16): for half a minute, if nobody tells it to.
    """
    broker = Broker(tmp_path / "restless", ROOT / "jars" / "broker", 384, RESTLESS)
    with contextlib.ExitStack() as stack:
        stack.callback(broker.kill)
        restless = Cluster(broker.start().wait())
        restless.create(topic, 1)
        candidates[1].create(topic, 1)
        settings = load_candidate_settings((restless, candidates[1]), clusters, topic)
        pool, tp = SourcePool(settings), TopicPartition(topic, 0)
        seen: list[dict[int, int | None]] = []
        monkeypatch.setattr(
            pool, "evaluate_round", lambda watermarks: seen.append(dict(watermarks))
        )

        def healthy() -> bool:
            rounds = len(seen)
            until(lambda: [pool.poll([tp])] and len(seen) > rounds, "a round of answers")
            return None not in seen[-1].values()

        def count_answers() -> int:
            """The rounds, without those that a broker that stands still did not answer."""
            labels = {"candidate": restless.address, "error": "_TIMED_OUT"}
            timeouts = REGISTRY.get_sample_value("reo_source_errors_total", labels)
            return len(seen) - int(timeouts or 0)

        def leader_epoch() -> int:
            """-1 while the broker, which is fenced again and again, does not answer."""
            with contextlib.suppress(ClusterUnreachable):
                return (
                    partition_offsets.list_stable_ends(
                        create_admin_client(settings.source_cluster, settings), [tp]
                    )[tp].leader_epoch
                    or 0
                )
            return -1

        until(healthy, "both answer")
        for _ in range(2):
            before = until(lambda: leader_epoch() + 1, "the partition's leader epoch is known") - 1
            until(
                lambda before=before: leader_epoch() > before,
                "the partition has a new leader epoch",
            )
            answers = count_answers()
            until(healthy, "both answer again")
            assert count_answers() - answers <= UNHEALTHY_ROUNDS


def test_a_broker_that_stands_still_has_no_offsets(candidates: Candidates, topic: str) -> None:
    """A question for offsets that is not answered is ClusterUnreachable: the client hands out a
    number, which would be taken for a truncated topic.
    """
    one, _ = candidates
    one.create(topic, 1)
    settings = load(
        {
            "REO_SOURCE_BOOTSTRAP_SERVERS": one.address,
            "REO_SOURCE_TOPIC": topic,
            "REO_DESTINATION_BOOTSTRAP_SERVERS": one.address,
        }
    )
    client = create_admin_client(settings.source_cluster, settings)
    assert partition_offsets.list_end_offsets(client, [TopicPartition(topic, 0)]) == {
        TopicPartition(topic, 0): 0
    }
    freeze_broker(one)
    with pytest.raises(ClusterUnreachable):
        partition_offsets.list_end_offsets(client, [TopicPartition(topic, 0)], timeout_s=1)
