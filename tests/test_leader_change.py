"""Records of the intermediate topic that are lost, unread, together with their leader (`deduplicator.leader_change`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from common.frontier import Link, RuleState, decode
from common.origin import Origin
from common.routes import Place
from deduplicator.intermediate import RecordsMissing
from deduplicator.leader_change import check_leader_change
from deduplicator.unwrap import Batch
from deduplicator.work import Work
from reo.demo.broker import Broker
from tests.conftest import Start
from tests.kafka import ROOT, Cluster, Clusters, make_record, make_records, until
from tests.recovery import read_commits
from tests.stage_one import WrappedRecords, create_epoch, wait_for_frontiers, wrap_records, write_intermediate
from tests.test_history import disk

PLACE = Place("copy-proxy", 0)
EPOCH, BATCH = 1000, 7
READ_TO = RuleState(10, EPOCH, Link(10, BATCH, 3))


def read(*records: tuple[int | None, int, int, int]) -> Batch:
    """A batch; each record is its leader epoch, source offset, Spark batch and sequence."""
    batch = Batch()
    for number, (leader_epoch, source_offset, spark_batch, sequence) in enumerate(records):
        batch.messages.append(cast("object", SimpleNamespace(leader_epoch=lambda epoch=leader_epoch: epoch, offset=lambda number=number: number)))
        batch.origins.append(Origin(0, source_offset, 1, 0, EPOCH, spark_batch, sequence, "0" * 16))
    return batch


def check(known: int | None, batch: Batch) -> int | None:
    """The leader epoch that is known after the batch."""
    work = Work(READ_TO, 0, known)
    check_leader_change(PLACE, work, batch)
    return work.leader_epoch


def test_a_batch_that_begins_under_another_leader_is_not_believed() -> None:
    """The end of the batch before it may have been lost with the leader."""
    with pytest.raises(RecordsMissing, match=r"copy-proxy-0 has another leader \(leader epoch 5 after 4\), and a batch begins at offset 1") as missing:
        check(4, read((4, 11, BATCH, 4), (5, 12, BATCH + 1, 0)))
    assert missing.value.place == PLACE


def test_a_batch_that_goes_on_under_another_leader_shows_that_nothing_is_missing() -> None:
    """Then the next batch may begin under the same leader."""
    assert check(4, read((5, 11, BATCH, 4), (5, 12, BATCH + 1, 0))) == 5


@pytest.mark.parametrize("records", [
    pytest.param([(5, 9, BATCH + 1, 0)], id="duplicate"), pytest.param([(5, 13, BATCH, 6)], id="hole"), pytest.param([(4, 11, BATCH + 1, 0)], id="same leader"),
    pytest.param([(3, 11, BATCH + 1, 0)], id="an earlier leader")])
def test_what_shows_nothing_changes_nothing(records: list[tuple[int, int, int, int]]) -> None:
    """Only a record that is accepted under a newer leader counts."""
    assert check(4, read(*records)) == 4


def test_a_duplicate_under_another_leader_does_not_vouch_for_the_next_batch() -> None:
    """It may have come late: what followed it is lost all the same."""
    with pytest.raises(RecordsMissing):
        check(4, read((5, 9, BATCH, 2), (5, 12, BATCH + 1, 0)))


def test_without_leader_epochs_nothing_is_checked() -> None:
    """Brokers with an old message format do not report them."""
    assert check(4, read((None, 11, BATCH + 1, 0))) == 4
    assert check(None, read((5, 11, BATCH + 1, 0))) is None


@pytest.fixture
def fragile(clusters: Clusters, tmp_path: Path) -> Iterator[Clusters]:
    """The destination is a broker of this test's own."""
    broker = Broker(tmp_path / "destination", ROOT / "jars" / "broker", 384)
    try:
        yield Clusters(clusters.source, Cluster(broker.start().wait()))
    finally:
        broker.kill()


def test_what_a_real_broker_lost_is_copied_again(fragile: Clusters, topic: str, start: Start) -> None:
    """Its disk is set back by a whole batch that stage two has not read, and the next batch takes the offsets: no gap, and nothing but the leader epoch shows it.

    What stage two does is what a run needs that reads its frontier: the source's offset where it stopped, and an epoch that no run before it has.
    """
    fragile.source.create(topic, 1)
    fragile.source.write(topic, make_records(range(30), 1))
    service = start(topic, "deduplicator", destination_bootstrap_servers=fragile.destination.address)
    wait_for_frontiers(service, 1)
    epoch = create_epoch()

    def batch(begin: int, end: int, number: int, run: int = epoch) -> WrappedRecords:
        return wrap_records(fragile, topic, [(0, offset, make_record(offset)) for offset in range(begin, end)], run, number)
    write_intermediate(fragile, topic, topic, batch(0, 10, 1))
    until(lambda: fragile.destination.count_offsets(topic) == 11, "ten are copied, and their transaction's marker is written")
    service.stop()
    disk(fragile.destination.broker, keep=True)
    write_intermediate(fragile, topic, topic, batch(10, 20, 2))
    fragile.destination.broker.kill()
    disk(fragile.destination.broker, keep=False)
    fragile.destination.broker.start().wait()
    write_intermediate(fragile, topic, topic, batch(20, 30, 3))
    service = start(topic, "deduplicator", destination_bootstrap_servers=fragile.destination.address)
    service.wait_for_log("unread records of the batch before it may be lost")
    until(lambda: (commit := read_commits(fragile.destination, topic).get(0)) and decode(commit.metadata).rule.epoch > epoch, "the epoch is raised")
    write_intermediate(fragile, topic, topic, batch(10, 30, 1, create_epoch()))
    fragile.wait_for_copy(topic, 30)
    service.stop()
