"""Configurations of topics and brokers that change under a running stage two, on real brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Start
from tests.harness.kafka import COPY_S, ROOT, Cluster, Clusters, make_records
from tests.harness.recovery import (
    FIRST_RECORDS,
    PARTITIONS,
    copy_more,
    resume_copy,
    start_and_copy,
)
from tests.harness.service import stopped
from tests.harness.topic_configs import change
from tools.demo.broker import Broker
from tools.faults.proxy import Proxy


@pytest.mark.parametrize("compiled", ["yes", "no"])
def test_no_record_gets_another_timestamp(
    clusters: Clusters, topic: str, start: Start, compiled: str
) -> None:
    """The destination topic gets LogAppendTime: the first transaction after that is aborted. With
    CreateTime again, the next start goes on.
    """
    records = make_records(range(FIRST_RECORDS + 40), PARTITIONS)
    service = start_and_copy(clusters, topic, start, records, deduplicator_compiled=compiled)
    copied = clusters.destination.read(topic)
    change(clusters.destination, topic, message_timestamp_type="LogAppendTime")
    copy_more(clusters, topic, service, records, FIRST_RECORDS)
    stopped(service, 13, "TopicsUnfit", f"{topic} has message.timestamp.type=LogAppendTime")
    assert clusters.destination.read(topic) == copied
    change(clusters.destination, topic, message_timestamp_type="CreateTime")
    resume_copy(clusters, topic, start, records, len(records), deduplicator_compiled=compiled)


def test_a_batch_that_came_twice_is_written_again(
    clusters: Clusters, proxied: tuple[Cluster, Proxy], topic: str, start: Start
) -> None:
    """Of one whose answer was lost, brokers report a timestamp of theirs, which no record has: that
    is no stop.
    """
    destination, proxy = proxied
    both = Clusters(clusters.source, destination)
    records = make_records(range(FIRST_RECORDS + 40), PARTITIONS)
    service = start_and_copy(
        both, topic, start, records, destination_bootstrap_servers=proxy.address
    )
    rule = proxy.add_rule("swallow_answer", "Produce", client_id=f"{topic}-deduplicator-0")
    copy_more(both, topic, service, records, FIRST_RECORDS)
    assert rule.answered.wait(COPY_S)
    proxy.cut_all()
    both.wait_for_copy(topic, len(records))
    assert "brokers may have replaced the timestamps" in service.log
    assert both.differences(topic) == []
    service.stop()


def test_a_lower_limit_on_batches_refuses_no_small_record(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """A batch of the producer's is larger than the topic takes by now, its records are not: a new
    worker sends smaller ones.
    """
    records = make_records(range(FIRST_RECORDS + 4000), PARTITIONS)
    service = start_and_copy(clusters, topic, start, records)
    change(clusters.destination, topic, max_message_bytes="10000")
    copy_more(clusters, topic, service, records, FIRST_RECORDS)
    clusters.wait_for_copy(topic, len(records))
    assert clusters.differences(topic) == []
    assert f"the topic {topic} takes batches of up to 10000 bytes" in service.log
    service.stop()


@pytest.mark.parametrize(
    "config",
    [
        {"cleanup_policy": "compact"},
        {"message_timestamp_before_max_ms": "3600000"},
        {"max_message_bytes": "150"},
    ],
    ids=str,
)
def test_a_topic_that_refuses_records_names_what_to_change(
    clusters: Clusters, topic: str, start: Start, config: dict[str, str]
) -> None:
    """With the first record that it refuses; nothing is missing when it takes them again."""
    records = [
        (partition, record._replace(key=None))
        for partition, record in make_records(range(FIRST_RECORDS + 40), PARTITIONS)
    ]
    service = start_and_copy(clusters, topic, start, records)
    # the log cleaner, which looks every 15 s, would delete records without a key meanwhile: it
    # leaves a log alone whose share of dirty records is not above this
    change(clusters.destination, topic, min_cleanable_dirty_ratio="1.0")
    change(clusters.destination, topic, **config)
    copy_more(clusters, topic, service, records, FIRST_RECORDS)
    (name,) = config
    stopped(service, 27, "RecordRefused", name.replace("_", "."))
    change(clusters.destination, topic, **dict.fromkeys(config))
    resume_copy(clusters, topic, start, records, len(records))


def test_broker_settings_that_refuse_the_copy_end_the_service(
    clusters: Clusters, topic: str, start: Start, tmp_path: Path
) -> None:
    """The destination's brokers come back with another limit, which a worker meets while it runs: a
    stop that names the setting. When it is as before, the copy goes on where it was.
    """
    broker = Broker(tmp_path / "destination", ROOT / "jars" / "broker", 384)
    records = make_records(range(FIRST_RECORDS + 40), PARTITIONS)

    def restart(setting: str, value: int) -> Clusters:
        broker.stop(timeout_s=60)
        with (broker.folder / "server.properties").open("a") as properties:
            properties.write(f"{setting}={value}\n")  # the last of several lines counts
        return Clusters(clusters.source, Cluster(broker.start().wait()))

    try:
        own = Clusters(clusters.source, Cluster(broker.start().wait()))
        more = {"destination_bootstrap_servers": own.destination.address}
        service = start_and_copy(own, topic, start, records, **more)
        own = restart("offset.metadata.max.bytes", 100)
        copy_more(own, topic, service, records, FIRST_RECORDS)
        stopped(service, 13, "TopicsUnfit", "set offset.metadata.max.bytes")
        restart("offset.metadata.max.bytes", 4096)
        for setting in ("transaction.max.timeout.ms", "group.max.session.timeout.ms"):
            restart(setting, 7000)
            stopped(start(topic, "deduplicator", **more), 2, "SettingsInvalid", setting)
            own = restart(setting, 900_000)
        resume_copy(own, topic, start, records, len(records), **more)
    finally:
        broker.kill()
