"""The intermediate topic loses everything under a running stage two: it is deleted and created again,
emptied, cut, or replaced by an older copy of itself. That costs a repeated read and nothing else.
"""

from __future__ import annotations

import pytest

from common.frontier import decode
from tests.conftest import Start
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.recovery import (
    FIRST_RECORDS,
    PARTITIONS,
    add_source_offsets,
    read_commits,
    wait_for_commits,
    wait_for_next_epoch,
)
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate


def recreate_intermediate(clusters: Clusters, topic: str, pause) -> None:
    """Another topic of the same name."""
    import time
    clusters.destination.delete(f"{topic}-proxy")
    time.sleep(pause)
    clusters.destination.create(f"{topic}-proxy", PARTITIONS)


@pytest.mark.parametrize("mapping", ["same", "key"])
@pytest.mark.parametrize("pause", [0, 15])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_topic_that_is_recreated_costs_a_repeated_read(
    clusters: Clusters, topic: str, start: Start, protocol: str, pause, mapping
) -> None:
    """The worker stays, and the group has its frontiers again."""
    clusters.source.create(topic, PARTITIONS)
    records = make_records(range(FIRST_RECORDS), PARTITIONS)
    clusters.source.write(topic, records)
    service = start(topic, "deduplicator", deduplicator_group_protocol=protocol, source_topic="", topics=f"{topic}={topic}:{mapping}")
    wait_for_frontiers(service, PARTITIONS)
    write_intermediate(
        clusters, topic, topic, wrap_records(clusters, topic, add_source_offsets(records))
    )
    until(lambda: sum(map(len,clusters.destination.read(topic).values()))== FIRST_RECORDS,"x")
    recreate_intermediate(clusters, topic, pause)
    import time
    t=time.time()
    while time.time()-t<30:
        x={p:(c.intermediate_offset, c.metadata[:60]) for p,c in read_commits(clusters.destination, topic).items()}
        if len(x)==2 or service.process.poll() is not None: break
        time.sleep(0.5)
    print(time.time()-t, x)
    more = make_records(range(FIRST_RECORDS, 2 * FIRST_RECORDS), PARTITIONS)
    clusters.source.write(topic, more)
    write_intermediate(
        clusters, topic, topic, wrap_records(clusters, topic, add_source_offsets([*records, *more]))
    )
    until(lambda: sum(map(len,clusters.destination.read(topic).values()))== 2*FIRST_RECORDS,"y",30)
    service.stop()
    assert 0
