"""A source that loses records is a named stop, however far it has grown since; what a source may
delete is none.

A broker's disk is set back to what it was before the last records were copied, and then gets more
records than it lost: offsets and identity are what a source that lost nothing would have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import TopicPartition as ClientTopicPartition

from common.errors import ClusterUnreachable, SourceTruncated
from common.frontier import LastRecord
from common.kafka.clients import create_admin_client, create_reader
from common.routes import TopicPartition
from common.settings import Settings, load
from replicator.runs.last_record_check import LastCopied, check_source_history
from replicator.runs.planner import Planner
from replicator.runs.watch import Watch
from replicator.stage import Stage
from tests.conftest import Start, make_topic_name
from tests.harness.compared_sides import wait_for_markers
from tests.harness.disk import keep_disk, set_disk_back
from tests.harness.kafka import ROOT, Cluster, Clusters, make_record, make_records, until
from tests.harness.last_record import make_last_record
from tests.harness.producing import produce_records
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate
from tests.harness.stage_without_engine import create_stage, create_watch
from tools.demo.broker import Broker

BEFORE, LOST, REGROWN = 20, 10, 50


@dataclass
class Copies:
    """Of one source, whose disk was set back; and what watched the plain one all the time."""

    settings: dict[str, Settings]
    stage: Stage
    watch: Watch

    def evaluate_once_answered(self) -> bool:
        """False while a cluster does not answer."""
        with contextlib.suppress(ClusterUnreachable):
            self.stage._evaluate_sample(self.watch)
            return True
        return False


def create_planner(settings: Settings) -> Planner:
    """As stage one makes it."""
    return create_stage(settings).planner


def watch_planned_run(settings: Settings) -> tuple[Stage, Watch]:
    """What follows a run that was planned now."""
    stage = create_stage(settings)
    plan = stage.planner.plan()
    assert plan is not None
    watch = create_watch(stage, plan)
    assert stage._evaluate_run(watch) is None
    return stage, watch


@pytest.fixture(scope="module")
def copies(
    clusters: Clusters, start_for_module: Start, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Copies]:
    """Three copies of BEFORE + LOST records; then the source has BEFORE of them, and REGROWN
    others, which are more than it lost. Stage two runs: without it nothing is planned.
    """
    broker = Broker(tmp_path_factory.mktemp("source"), ROOT / "jars" / "broker", 384)
    try:
        source = Cluster(broker.start().wait())
        both = Clusters(source, clusters.destination)
        topic = source.create(make_topic_name("set-back"), 1)
        source.write(topic, make_records(range(BEFORE), 1))
        keep_disk(broker)
        source.write(topic, make_records(range(BEFORE, BEFORE + LOST), 1))
        records = [(0, number, make_record(number)) for number in range(BEFORE + LOST)]
        more = {
            "plain": {"destination_topic": f"{topic}-plain"},
            "filtered": {
                "destination_topic": f"{topic}-filtered",
                "filter_function": "tests.harness.filter_functions:none",
            },
            "mapped": {
                "source_topic": "",
                "topics": f"{topic}={topic}-mapped:key",
                "application": f"{topic}-mapped",
            },
        }
        settings = {}
        for name, own in more.items():
            service = start_for_module(
                topic, "deduplicator", source_bootstrap_servers=source.address, **own
            )
            wait_for_frontiers(service, 1)
            write_intermediate(both, topic, f"{topic}-{name}", wrap_records(both, topic, records))
            until(
                lambda service=service: service.metric("reo_frontier_offset") == BEFORE + LOST - 1,
                f"{name}: all is copied",
            )
            settings[name] = load(service.environment)
        stage, watch = watch_planned_run(settings["plain"])
        broker.kill()
        set_disk_back(broker)
        broker.start().wait()
        until(lambda: source.end_offsets(topic) == {0: BEFORE}, "the source has lost records")
        source.write(topic, make_records(range(1000, 1000 + REGROWN), 1))
        yield Copies(settings, stage, watch)
    finally:
        broker.kill()


@pytest.mark.parametrize("name", ["plain", "filtered", "mapped"])
def test_a_source_that_lost_records_is_a_stop_after_a_restart(copies: Copies, name: str) -> None:
    """The next run is not planned, although the source is the same topic and goes beyond the
    frontier; whatever was written of what was copied.
    """
    with pytest.raises(
        SourceTruncated,
        match=f"another record at offset {BEFORE + LOST - 1} than the one that was copied",
    ):
        create_planner(copies.settings[name]).plan()


@pytest.mark.long  # the simulator tells this story in every run
def test_a_source_that_lost_records_is_a_stop_with_failover(copies: Copies) -> None:
    """When no candidate has what was copied last, the copy stops, as with one source."""
    environment = copies.settings["plain"].build_environment()
    with pytest.raises(SourceTruncated, match="another record at offset"):
        create_planner(load(environment | {"REO_SOURCE_MODE": "failover"})).plan()


@pytest.mark.long  # the simulator tells this story in every run
def test_a_source_that_lost_records_is_a_stop_while_a_run_lives(copies: Copies) -> None:
    """What watched before the loss compares what was copied by then, when it has not seen the
    source for a while or sees another leader.
    """
    with pytest.raises(SourceTruncated, match="another record at offset"):
        until(copies.evaluate_once_answered, "the clusters answer")


def compare(clusters: Clusters, topic: str, last: LastRecord, frontier: int = -1) -> None:
    """Compare partition 0 of a topic of the source."""
    settings = load(
        {
            "REO_SOURCE_BOOTSTRAP_SERVERS": clusters.source.address,
            "REO_SOURCE_TOPIC": topic,
            "REO_DESTINATION_BOOTSTRAP_SERVERS": clusters.destination.address,
        }
    )
    consumer = create_reader(settings.source_cluster, settings)
    try:
        check_source_history(
            settings,
            create_admin_client(settings.source_cluster, settings),
            consumer,
            {TopicPartition(topic, 0): LastCopied(last, max(frontier, last.source_offset))},
        )
    finally:
        consumer.close()


def test_an_open_transaction_before_the_last_copied_record_is_a_loss(
    clusters: Clusters, topic: str
) -> None:
    """The marker of a transaction was lost with the newest records: the last stable offset has gone
    back, and a reader of what was copied is told nothing.
    """
    clusters.source.create(topic, 1)
    producer = clusters.source.producer(transactional_id=topic)
    producer.init_transactions(30)
    producer.begin_transaction()
    produce_records(producer, topic, make_records(range(1), 1))
    assert producer.flush(30) == 0
    clusters.source.write(topic, make_records(range(1, 6), 1))
    with pytest.raises(
        SourceTruncated,
        match="open transaction at offset 0, before the last one copied, which was at 5",
    ):
        compare(clusters, topic, make_last_record(5))
    producer.abort_transaction(30)
    wait_for_markers(clusters.source, topic)
    compare(clusters, topic, make_last_record(5))


def test_what_a_source_may_delete_is_no_loss(clusters: Clusters, topic: str) -> None:
    """A record that is the same one is no loss, nor one that retention has taken. Another one is,
    and an end before it.
    """
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(10), 1))
    compare(clusters, topic, make_last_record(9))
    compare(clusters, topic, make_last_record(5))
    with pytest.raises(SourceTruncated, match="another record at offset 5"):
        compare(clusters, topic, make_last_record(9)._replace(source_offset=5))
    with pytest.raises(SourceTruncated, match="no record at offset 10 any more"):
        compare(clusters, topic, make_last_record(10))
    for end in (6, 10):
        tp = ClientTopicPartition(topic, 0, end)
        clusters.source.admin.delete_records([tp])[tp].result()
        compare(clusters, topic, make_last_record(5))


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_only_a_compacted_topic_may_lack_a_record_in_its_middle(
    clusters: Clusters, topic: str, policy: str
) -> None:
    """Offset 2 is a transaction's marker, which no reader ever sees: so is a record that compaction
    took. Behind the end compaction takes nothing.
    """
    clusters.source.create(topic, 1, cleanup_policy=policy)
    producer = clusters.source.producer(transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(2):
        producer.produce(topic, make_record(number).value, make_record(number).key, 0)
    producer.commit_transaction()
    until(lambda: clusters.source.has_no_open_transaction(topic), "the marker is there")
    clusters.source.write(topic, make_records(range(2, 4), 1))
    if policy == "compact":
        compare(clusters, topic, make_last_record(2))
    else:
        with pytest.raises(SourceTruncated, match="no record at offset 2 any more"):
            compare(clusters, topic, make_last_record(2))
    with pytest.raises(SourceTruncated, match="no record at offset 7 any more"):
        compare(clusters, topic, make_last_record(7))


def test_a_record_where_there_was_none_is_a_loss(clusters: Clusters, topic: str) -> None:
    """Up to the frontier there was nothing to see behind the last copied record: aborted ones were
    lost, and others came in their place.
    """
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(10), 1))
    compare(clusters, topic, make_last_record(9), 12)
    compare(clusters, topic, make_last_record(5), 5)
    with pytest.raises(SourceTruncated, match="a record at offset 6, where there was none"):
        compare(clusters, topic, make_last_record(5), 6)
    tp = ClientTopicPartition(topic, 0, 7)
    clusters.source.admin.delete_records([tp])[tp].result()
    compare(clusters, topic, make_last_record(5), 6)
    with pytest.raises(SourceTruncated, match="a record at offset 7, where there was none"):
        compare(clusters, topic, make_last_record(5), 7)
