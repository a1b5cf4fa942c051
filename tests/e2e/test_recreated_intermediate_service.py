"""The whole service under load, while somebody deletes its intermediate topic, with and without
creating it again: a new run writes again what was lost, no process ends, and the copy is exact.
(With stage two alone: `tests/broker/test_recreated_intermediate.py`; with every other fault, many
times: `faults/stories`.)
"""

from __future__ import annotations

from contextlib import suppress

from confluent_kafka import KafkaException

from tests.conftest import Start
from tests.harness.kafka import COPY_S, Clusters, until
from tests.harness.service import Service
from tools.faults.load import Load

PARTITIONS = 2
PROGRESS = 1000


def wait_for_progress(service: Service) -> None:
    """Wait until many more records are copied."""
    before = service.metric("reo_records_out_total")
    until(
        lambda: service.metric("reo_records_out_total") >= before + PROGRESS,
        "records are copied",
        COPY_S,
    )


def test_a_deleted_topic_costs_a_repeated_read(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """First the service creates it again, then somebody else does, or the service was faster."""
    clusters.source.create(topic, PARTITIONS)
    service = start(topic)
    with Load(clusters.source.for_another_thread(), topic, PARTITIONS, 500) as load:
        wait_for_progress(service)
        first_id = clusters.destination.topic_id(f"{topic}-proxy")
        clusters.destination.admin.delete_topics([f"{topic}-proxy"])[f"{topic}-proxy"].result()
        wait_for_progress(service)
        second_id = clusters.destination.topic_id(f"{topic}-proxy")
        clusters.destination.admin.delete_topics([f"{topic}-proxy"])[f"{topic}-proxy"].result()
        with suppress(KafkaException):
            clusters.destination.create(f"{topic}-proxy", PARTITIONS)
        wait_for_progress(service)
        third_id = clusters.destination.topic_id(f"{topic}-proxy")
    assert len({first_id, second_id, third_id}) == 3
    clusters.wait_for_copy(topic, load.produced - load.aborted)
    assert service.process.poll() is None, service.read_log_tail()
    assert service.metric("reo_stage_restarts_total") == 0
    assert service.errors == []
    service.stop()
