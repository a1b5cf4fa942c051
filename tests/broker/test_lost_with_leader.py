"""Records of the intermediate topic that a real broker lost, unread, together with their leader
(`deduplicator.leader_change`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.frontier import decode
from demo.broker import Broker
from tests.conftest import Start
from tests.harness.disk import keep_disk, set_disk_back
from tests.harness.kafka import ROOT, Cluster, Clusters, make_record, make_records, until
from tests.harness.recovery import read_commits
from tests.harness.stage_one import (
    WrappedRecords,
    create_epoch,
    wait_for_frontiers,
    wrap_records,
    write_intermediate,
)


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
    """Its disk is set back by a whole batch that stage two has not read, and the next batch takes
    the offsets: only the leader epoch shows it.

    Stage two does what the next run needs: its frontier is the source's offset where it stopped,
    with an epoch that no run before it has.
    """
    fragile.source.create(topic, 1)
    fragile.source.write(topic, make_records(range(30), 1))
    service = start(
        topic, "deduplicator", destination_bootstrap_servers=fragile.destination.address
    )
    wait_for_frontiers(service, 1)
    epoch = create_epoch()

    def batch(begin: int, end: int, number: int, run: int = epoch) -> WrappedRecords:
        return wrap_records(
            fragile,
            topic,
            [(0, offset, make_record(offset)) for offset in range(begin, end)],
            run,
            number,
        )

    write_intermediate(fragile, topic, topic, batch(0, 10, 1))
    until(
        lambda: (
            len(fragile.destination.read(topic)[0]) == 10
            and fragile.destination.has_no_open_transaction(topic)
        ),
        "ten are copied, and all markers are written",
    )
    service.stop()
    keep_disk(fragile.destination.broker)
    write_intermediate(fragile, topic, topic, batch(10, 20, 2))
    fragile.destination.broker.kill()
    set_disk_back(fragile.destination.broker)
    fragile.destination.broker.start().wait()
    write_intermediate(fragile, topic, topic, batch(20, 30, 3))
    service = start(
        topic, "deduplicator", destination_bootstrap_servers=fragile.destination.address
    )
    service.wait_for_log("unread records of the batch before it may be lost")
    until(
        lambda: (
            (commit := read_commits(fragile.destination, topic).get(0))
            and decode(commit.metadata).rule.epoch > epoch
        ),
        "the epoch is raised",
    )
    write_intermediate(fragile, topic, topic, batch(10, 30, 1, create_epoch()))
    fragile.wait_for_copy(topic, 30)
    service.stop()
