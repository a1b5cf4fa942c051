"""An intermediate topic whose configuration changes under a running service."""

from __future__ import annotations

from tests.conftest import Start
from tests.harness.kafka import Clusters, make_records
from tests.harness.service import STOP_S
from tests.harness.topic_configs import change

PARTITIONS = 2


def test_an_intermediate_topic_that_is_compacted_takes_no_envelopes(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Envelopes have no key: a stop that says what to set, with the next records; then the copy
    goes on.
    """
    intermediate = f"{topic}-proxy"
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, make_records(range(100), PARTITIONS))
    service = start(topic)
    clusters.wait_for_copy(topic, 100)
    change(clusters.destination, intermediate, cleanup_policy="compact")
    clusters.source.write(topic, make_records(range(100, 200), PARTITIONS))
    assert service.wait_for_exit(STOP_S) == 13, service.read_log_tail()
    assert f"TopicsUnfit: the intermediate topic {intermediate} has cleanup.policy=compact" in (
        service.log
    )
    change(clusters.destination, intermediate, cleanup_policy="delete")
    service = start(topic, "--stop-at-end")
    assert service.wait_for_exit() == 0, service.read_log_tail()
    assert clusters.differences(topic) == []
