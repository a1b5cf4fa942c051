"""An open transaction of the source: nothing behind it can be copied, and everything that tells of
lag says so. No Spark is needed to see it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from prometheus_client import REGISTRY

from common import source_pool
from common.settings import load
from common.source_pool import SourceSnapshot
from replicator.runs.snapshot import ClusterSnapshot
from replicator.runs.watch import Watch
from replicator.stage import Stage
from tests.conftest import Start
from tests.harness.commands import reo
from tests.harness.kafka import Clusters, until
from tests.harness.service import build_environment
from tests.harness.stage_one import wait_for_frontiers
from tests.harness.stage_without_engine import create_stage, create_watch

RECORDS = 5


class Seen(NamedTuple):
    """The gauges of stage one."""

    lag: float | None
    open_s: float | None


def read_metrics(topic: str) -> Seen:
    """Now."""
    place = {"topic": topic, "partition": "0"}
    return Seen(
        REGISTRY.get_sample_value("reo_lag_records", {"stage": "replicator", **place}),
        REGISTRY.get_sample_value("reo_source_open_transaction_seconds", place),
    )


def wait_for_metrics(
    stage: Stage, watch: Watch, topic: str, is_right: Callable[[Seen], bool]
) -> None:
    """Look at the run until its gauges are right: a look may get no answer. The run goes on."""

    def look() -> bool:
        assert stage._evaluate_run(watch) is None
        return is_right(read_metrics(topic))

    until(look, "the gauges are right")


def make_slow(watch: Watch) -> ClusterSnapshot:
    """Let the last snapshot say that nothing has moved for a minute; returns it."""
    before = watch.last_snapshot
    assert before is not None
    slow = watch.last_snapshot = replace(
        before,
        partitions={
            tp: replace(partition, progressed_at_s=partition.progressed_at_s - 60)
            for tp, partition in before.partitions.items()
        },
    )
    return slow


def test_an_open_transaction_of_the_source_is_lag(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """In the metrics, in `reo lag` and `reo status`, and when candidates are compared; nothing of
    it is left when it is aborted.
    """
    clusters.source.create(topic, 1)
    on = load(build_environment(clusters, topic, {}))
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, 1)
    stage = create_stage(on)
    plan = stage.planner.plan()
    assert plan is not None
    watch = create_watch(stage, plan)
    producer = clusters.source.producer(transactional_id=topic, transaction_timeout_ms=900_000)
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=0)
    producer.flush(30)
    assert (
        clusters.source.end_offsets(topic),
        clusters.source.end_offsets(topic, stable=True),
    ) == ({0: RECORDS}, {0: 0})
    wait_for_metrics(stage, watch, topic, lambda seen: seen.lag == RECORDS and bool(seen.open_s))
    slow = make_slow(watch)
    wait_for_metrics(
        stage,
        watch,
        topic,
        lambda seen: watch.last_snapshot is not slow and seen.lag == RECORDS,
    )
    assert watch.is_progressing(), "there is nothing that stage one could do"
    snapshot = source_pool.take_snapshot(on)
    assert isinstance(snapshot, SourceSnapshot)
    assert (snapshot.stable_end_sum, sum(snapshot.ends.values())) == (0, RECORDS)
    assert reo(clusters, topic, "lag").stdout.split()[-6:] == [
        str(RECORDS),
        "?",
        "0",
        "0.0",
        str(RECORDS),
        "?",
    ]
    assert (
        f"{topic}-0 at the source: a transaction is open from offset 0 on"
        in reo(clusters, topic, "status").stdout
    )
    producer.abort_transaction(30)
    until(lambda: clusters.source.has_no_open_transaction(topic), "it is aborted")
    wait_for_metrics(stage, watch, topic, lambda seen: seen == Seen(0, 0))
    assert "a transaction is open" not in reo(clusters, topic, "status").stdout
