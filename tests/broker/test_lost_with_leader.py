"""Envelopes that a real broker lost, unread: they cost a repeated read and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.frontier import decode
from common.settings import load
from tests.conftest import Start
from tests.harness.disk import keep_disk, set_disk_back
from tests.harness.kafka import ROOT, Cluster, Clusters, make_record, make_records, until
from tests.harness.recovery import read_commits
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate
from tests.harness.stage_without_engine import create_stage, create_watch
from tools.demo.broker import Broker


@pytest.fixture
def fragile(clusters: Clusters, tmp_path: Path) -> Iterator[Clusters]:
    """The destination is a broker of this test's own."""
    broker = Broker(tmp_path / "destination", ROOT / "jars" / "broker", 384)
    try:
        yield Clusters(clusters.source, Cluster(broker.start().wait()))
    finally:
        broker.kill()


def test_what_a_real_broker_lost_is_copied_again(
    fragile: Clusters, topic: str, start: Start
) -> None:
    """Its disk is set back by envelopes that stage two has not read, and later ones take their
    offsets. Stage one sees that the topic ends earlier, stage two that something is missing; the
    next run begins at the frontier.
    """
    fragile.source.create(topic, 1)
    fragile.source.write(topic, make_records(range(30), 1))
    address = fragile.destination.address
    service = start(topic, "deduplicator", destination_bootstrap_servers=address)
    wait_for_frontiers(service, 1)
    stage = create_stage(load(service.environment))

    def write_as_run(begin: int, end: int, epoch: int) -> None:
        records = [(0, offset, make_record(offset)) for offset in range(begin, end)]
        write_intermediate(fragile, topic, topic, wrap_records(fragile, topic, records, epoch))

    plan = stage.planner.plan()
    assert plan is not None
    stage.planner.begin_run()
    watch = create_watch(stage, plan)
    write_as_run(0, 10, plan.epoch)
    until(
        lambda: (
            len(fragile.destination.read(topic)[0]) == 10
            and fragile.destination.has_no_open_transaction(topic)
        ),
        "ten are copied, and all markers are written",
    )
    service.stop()
    keep_disk(fragile.destination.broker)
    write_as_run(10, 20, plan.epoch)
    assert stage._evaluate_run(watch) is None
    fragile.destination.broker.kill()
    set_disk_back(fragile.destination.broker)
    fragile.destination.broker.start().wait()
    until(lambda: stage._evaluate_run(watch) == "gap", "stage one sees it")
    write_as_run(20, 30, plan.epoch)
    service = start(topic, "deduplicator", destination_bootstrap_servers=address)
    until(
        lambda: (
            (commit := read_commits(fragile.destination, topic).get(0))
            and decode(commit.metadata).gap == 19
        ),
        "stage two sees it",
    )
    plan_again = stage.planner.plan()
    assert plan_again is not None
    assert plan_again.epoch > plan.epoch
    assert set(plan_again.start_offsets.values()) == {10}
    write_as_run(10, 30, plan_again.epoch)
    fragile.wait_for_copy(topic, 30)
    service.stop()
