"""A batch that a broker's disk has damaged: no consumer can read it, whoever waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.conftest import Start
from tests.harness.kafka import COPY_S, ROOT, UNFENCED, Cluster, Clusters, make_records, until
from tests.harness.service import stopped
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate
from tools.demo.broker import Broker

RECORDS = 30
OF_THE_BATCH = 15
"""A record of the second of three batches."""


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """One that is stopped, changed, and started again."""
    return Broker(tmp_path / "broker", ROOT / "jars" / "broker", 384, settings=UNFENCED)


def damage(broker: Broker, topic: str, part: bytes) -> Callable[[], None]:
    """Change one bit of the only segment of partition 0, at this part of it; returns what undoes
    it. The broker is stopped meanwhile.
    """
    broker.stop(timeout_s=60)
    (segment,) = (broker.folder / "data" / f"{topic}-0").glob("*.log")
    kept = segment.read_bytes()
    at = kept.rindex(part)
    segment.write_bytes(kept[:at] + bytes([kept[at] ^ 1]) + kept[at + 1 :])
    broker.start().wait()

    def undo() -> None:
        broker.stop(timeout_s=60)
        segment.write_bytes(kept)
        broker.start().wait()

    return undo


@pytest.mark.long
def test_a_damaged_batch_of_the_source(
    clusters: Clusters, topic: str, start: Start, broker: Broker
) -> None:
    """What is before it is copied, then the service ends and says where it is. When another replica
    has it, the copy goes on.
    """
    try:
        own = Clusters(Cluster(broker.start().wait()), clusters.destination)
        own.source.create(topic, 1)
        for first in range(0, RECORDS, 10):
            own.source.write(topic, make_records(range(first, first + 10), 1), linger_ms=200)
        undo = damage(broker, topic, b"%010d" % OF_THE_BATCH)
        more = {"source_bootstrap_servers": own.source.address}
        service = start(topic, **more)
        assert service.wait_for_exit(COPY_S) == 27
        assert (
            f"RecordRefused: the source's broker has a damaged batch in {topic}-0 at offset 10"
            in (service.log)
        )
        assert own.destination.read(topic)[0] == [
            record for _, record in make_records(range(10), 1)
        ]
        undo()
        service = start(topic, **more)
        own.wait_for_copy(topic, RECORDS)
        service.stop()
    finally:
        broker.kill()


def test_a_damaged_batch_of_the_intermediate_topic(
    clusters: Clusters, topic: str, start: Start, broker: Broker
) -> None:
    """The service ends and says what to delete; then it is written again, and the copy is exact."""
    try:
        own = Clusters(clusters.source, Cluster(broker.start().wait()))
        own.source.create(topic, 1)
        own.source.write(topic, make_records(range(RECORDS), 1))
        more = {"destination_bootstrap_servers": own.destination.address}
        service = start(topic, "deduplicator", **more)
        wait_for_frontiers(service, 1)
        service.stop()
        records = [(0, n, record) for n, (_, record) in enumerate(make_records(range(RECORDS), 1))]
        envelopes = wrap_records(own, topic, records)
        write_intermediate(own, topic, topic, envelopes)
        damage(broker, f"{topic}-proxy", b"%010d" % OF_THE_BATCH)
        stopped(start(topic, "deduplicator", **more), 24, "ForeignRecord", f"{topic}-proxy-0 is")
        tp = TopicPartition(f"{topic}-proxy", 0, -1)
        own.destination.admin.delete_records([tp])[tp].result()
        service = start(topic, "deduplicator", **more)
        until(lambda: service.http_get("/readyz")[0] == 200, "the worker reads again")
        write_intermediate(own, topic, topic, envelopes)
        own.wait_for_copy(topic, RECORDS)
        service.stop()
    finally:
        broker.kill()
