"""More partitions than one batch of __consumer_offsets takes, on real brokers: their offsets are
committed in several requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.kafka.consumer_group import Commit, Group
from common.kafka.partition_offsets import COMMIT_PARTITIONS_MAX
from common.routes import TopicPartition
from common.settings import load
from tests.conftest import Start
from tests.harness.copy_judge import Record
from tests.harness.kafka import Clusters, make_record, until
from tests.harness.own_store import write_example
from tests.harness.service import build_environment
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate
from tests.harness.topic_configs import change

PARTITIONS = 240
BATCH_BYTES_MAX = 40_000
"""What one request has needs 31,000, and all partitions 74,000."""


@pytest.fixture
def small_batches(clusters: Clusters, topic: str) -> Iterator[None]:
    """The destination's offsets topic takes small batches only."""
    make_offsets_topic(clusters, topic)
    change(clusters.destination, "__consumer_offsets", max_message_bytes=str(BATCH_BYTES_MAX))
    yield
    change(clusters.destination, "__consumer_offsets", max_message_bytes=None)


def make_offsets_topic(clusters: Clusters, topic: str) -> None:
    """The first commit of any group creates it."""
    name = clusters.destination.create(f"{topic}-any", 1)
    settings = load(build_environment(clusters, topic, {"application": f"{topic}-any"}))
    Group(settings).commit({TopicPartition(name, 0): Commit(0)})


def make_source(clusters: Clusters, topic: str, partitions: int) -> list[tuple[int, Record]]:
    """A record in each partition of the source."""
    records = [(partition, make_record(partition)) for partition in range(partitions)]
    clusters.source.create(topic, partitions)
    clusters.source.write(topic, records)
    return records


def copy_and_commit_again(
    clusters: Clusters, topic: str, start: Start, partitions: int, **more: str
) -> None:
    """One worker takes over all partitions, and copies their records. Then, as `reo recover` would,
    a group without members gets all its offsets again.
    """
    records = make_source(clusters, topic, partitions)
    service = start(topic, "deduplicator", **more)
    wait_for_frontiers(service, partitions)
    source_records = [(partition, 0, record) for partition, record in records]
    write_intermediate(clusters, topic, topic, wrap_records(clusters, topic, source_records))
    until(
        lambda: service.metric("reo_records_out_total", stage="deduplicator") == partitions,
        "every record is written",
    )
    service.stop()
    if not more:
        assert clusters.differences(topic, topic) == []
    group = Group(load(build_environment(clusters, topic, more)))
    tps = [TopicPartition(f"{topic}-proxy", partition) for partition in range(partitions)]
    commits = group.list_commits(tps)
    assert {tp: commit.offset for tp, commit in commits.items()} == dict.fromkeys(tps, 1)
    again = {tp: commit._replace(offset=0) for tp, commit in commits.items()}
    group.commit(again)
    assert group.list_commits(tps) == again


@pytest.mark.usefixtures("small_batches")
def test_a_worker_commits_more_partitions_than_fit_into_a_batch(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """First frontiers are committed for all partitions in one transaction."""
    assert PARTITIONS > 2 * COMMIT_PARTITIONS_MAX
    copy_and_commit_again(clusters, topic, start, PARTITIONS)


@pytest.mark.usefixtures("small_batches")
def test_a_store_of_the_users_commits_more_partitions_than_fit_into_a_batch(
    clusters: Clusters,
    topic: str,
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its offsets are committed without a transaction."""
    write_example(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    store = {
        "destination_class": "own_store:SqliteStore",
        "destination_options": f'{{"file": "{tmp_path / "own.db"}"}}',
    }
    copy_and_commit_again(clusters, topic, start, PARTITIONS, **store)
