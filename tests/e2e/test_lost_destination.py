"""A destination that loses records under a running stage two: a named stop, before anything of the
next transaction becomes visible.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from common.errors import DestinationTruncated
from common.frontier import KEPT, Frontier
from common.kafka.clients import create_reader
from common.records import compute_checksum
from common.routes import TopicPartition
from common.settings import load
from common.stop_at_end import find_missing_records
from deduplicator.frontiers.frontier_check import check_destination
from tests.conftest import Start
from tests.harness.compared_sides import wait_for_markers
from tests.harness.failpoint_marker import wait_for_failpoint
from tests.harness.first_copy import FIRST, PARTITIONS, add_offsets, make_first_copy, more_records
from tests.harness.kafka import Clusters, make_record, make_records, until
from tests.harness.recovery import LONG_SESSION, start_and_copy
from tests.harness.service import build_environment, stopped
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate


def recreate_destination(clusters: Clusters, topic: str, start: Start) -> Any:
    """A stage two that has copied FIRST records, and whose destination topic was then deleted and
    recreated under it.
    """
    records = make_records(range(FIRST), PARTITIONS)
    service = start_and_copy(clusters, topic, start, records, **LONG_SESSION)
    before = clusters.destination.topic_id(topic)
    service.signal("deduplicator", "SIGSTOP")  # or it could find that there is no topic
    clusters.destination.delete(topic)
    clusters.destination.create(topic, PARTITIONS)
    assert clusters.destination.topic_id(topic) != before
    service.signal("deduplicator", "SIGCONT")
    return service


def test_a_recreated_topic_is_seen_with_the_next_record(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The next records would be given offsets that were given before: exit code 26, and none of
    them is there.
    """
    service = recreate_destination(clusters, topic, start)
    clusters.source.write(topic, more_records())
    write_intermediate(
        clusters, topic, topic, wrap_records(clusters, topic, add_offsets(more_records()))
    )
    stopped(service, 26, "DestinationTruncated", topic)
    assert clusters.destination.read(topic) == {partition: [] for partition in range(PARTITIONS)}


def test_a_recreated_topic_is_seen_while_nothing_comes(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Exit code 26 without a record; nothing was written to the new topic, so the next start copies
    it from the beginning, whole.
    """
    stopped(
        recreate_destination(clusters, topic, start),
        26,
        "DestinationTruncated",
        f"{topic} was deleted and recreated",
    )
    assert clusters.destination.count_offsets(topic) == 0
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, PARTITIONS)
    assert all(
        f"{topic}-{partition}: first frontier, the copy begins at source offset 0" in service.log
        for partition in range(PARTITIONS)
    )
    service.stop()


def make_frontier(
    known: int, sent: int, last_written: str | None, is_known_written: bool
) -> Frontier:
    """The frontier of a copy that has written so much."""
    return Frontier(
        *(2, 1, "1d" * 8, 1, "id", known, sent),
        last_written=last_written,
        is_known_written=is_known_written,
    )


class Written:
    """Three records at the offsets 0 to 2 of a destination, and behind them an aborted one with its
    marker.
    """

    def __init__(self, clusters: Clusters, topic: str) -> None:
        clusters.destination.create(topic, 1)
        records = [make_record(number) for number in range(3)]
        clusters.destination.write(topic, [(0, record) for record in records])
        producer = clusters.destination.producer(transactional_id=topic)
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"never committed", partition=0)
        producer.flush(30)
        producer.abort_transaction(30)
        wait_for_markers(clusters.destination, topic)
        self.tp, self.end = TopicPartition(topic, 0), 5
        loaded = load(build_environment(clusters, topic, {}))
        self.reader = create_reader(loaded.destination_cluster, loaded)
        self.checksums = [
            compute_checksum(record.key, record.value, list(record.headers), record.timestamp_ms)
            for record in records
        ]

    def check_frontier(
        self,
        known: int,
        sent: int,
        last_written: str | None,
        compacted: frozenset[str] = frozenset(),
        begin: int = 0,
        is_known_written: bool = False,
    ) -> int:
        """The known offset after the check."""
        frontier = make_frontier(known, sent, last_written, is_known_written)
        outputs, surplus = check_destination(
            self.reader, {self.tp: frontier}, {self.tp: begin}, {self.tp: self.end}, compacted
        )
        assert not surplus
        return outputs[self.tp].known_offset

    def lacks_records(
        self, known: int, sent: int, last_written: str | None, is_known_written: bool, begin: int
    ) -> bool:
        """Whether the end of the copy is not believed."""
        frontier = make_frontier(known, sent, last_written, is_known_written)
        missing = find_missing_records(
            self.reader, {self.tp: frontier}, {self.tp: begin}, {self.tp: self.end}, lambda: None
        )
        assert missing <= {self.tp}
        return bool(missing)


@pytest.fixture
def there(clusters: Clusters, topic: str) -> Iterator[Written]:
    """See `Written`."""
    written = Written(clusters, topic)
    yield written
    written.reader.close()


def test_the_last_record_that_was_written_has_to_be_there(there: Written) -> None:
    """Counts and offsets may fit: the record at the known offset, or the last of those behind it,
    is another one, or a marker now.
    """
    check_frontier, written = there.check_frontier, there.checksums
    assert [
        check_frontier(2, 0, written[2]),
        check_frontier(1, 1, written[2]),
        check_frontier(-1, 3, written[2]),
        check_frontier(2, 0, None),
    ] == [2] * 4
    for known, sent, last_written in ((2, 0, written[1]), (1, 1, written[1]), (-1, 3, "other")):
        with pytest.raises(DestinationTruncated, match="at offset 2, is a different record now"):
            check_frontier(known, sent, last_written)
    for marker_or_aborted in (3, 4):
        with pytest.raises(
            DestinationTruncated,
            match=f"a record at offset {marker_or_aborted}, where no record is now",
        ):
            check_frontier(marker_or_aborted, 0, written[2])
    assert check_frontier(3, 0, written[2], begin=5) == 3, "retention may have taken it"


def test_compaction_keeps_the_last_record_unless_it_is_a_tombstone(there: Written) -> None:
    """Fewer records than were sent prove nothing in a compacted topic. But the newest record of a
    key is there, so a loss of the newest records is seen there, too.
    """
    compacted, (*_, last) = frozenset({there.tp.topic}), there.checksums
    assert there.check_frontier(3, 0, last, compacted) == 3, "compaction may have taken it"
    for known, sent in ((2, 0), (1, 1), (-1, 3), (-1, 4)):
        there.check_frontier(known, sent, last + KEPT, compacted)
    for known, sent, last_written in ((3, 0, last), (2, 2, "other"), (2, 1, last)):
        with pytest.raises(DestinationTruncated, match="which compaction keeps"):
            there.check_frontier(known, sent, last_written + KEPT, compacted)
    there.check_frontier(3, 0, last + KEPT, compacted, begin=5)  # retention may have taken it


def test_the_known_record_has_to_be_there_also_before_others(
    clusters: Clusters, there: Written
) -> None:
    """A coordinator that loses the markers of a committed transaction leaves its records to the
    next transaction of their producer, which aborts them; records that another one has committed
    after them are there.
    """
    later = make_record(3)
    clusters.destination.write(there.tp.topic, [(0, later)])
    there.end = 6
    written = compute_checksum(later.key, later.value, list(later.headers), later.timestamp_ms)
    assert there.check_frontier(2, 1, written, is_known_written=True) == 5
    assert there.check_frontier(3, 1, written) == 5, "a first frontier may be at a marker"
    with pytest.raises(DestinationTruncated, match="a record at offset 3, where no record is now"):
        there.check_frontier(3, 1, written, is_known_written=True)
    compacted = frozenset({there.tp.topic})
    assert there.check_frontier(3, 1, written, compacted, is_known_written=True) == 5
    assert there.check_frontier(3, 1, written, begin=4, is_known_written=True) == 5


def test_a_copy_is_complete_only_if_the_last_records_are_there(there: Written) -> None:
    """The same is looked at before a service ends as complete. Offsets can fit: a marker and an
    aborted record are at the end of the partition.
    """
    lacks_records, (_, second, last) = there.lacks_records, there.checksums
    for known, sent, written, is_known_written in (
        (2, 0, last, True),
        (1, 1, last, True),
        (-1, 3, last, False),
        (1, 1, None, False),
        (3, 0, None, False),
    ):
        assert not lacks_records(known, sent, written, is_known_written, begin=0)
    for known, sent, written, is_known_written in (
        (2, 0, second, True),
        (1, 1, second, True),
        (1, 2, last, True),
        (3, 0, last, True),
        (4, 0, None, True),
        (-1, 4, last, False),
    ):
        assert lacks_records(known, sent, written, is_known_written, begin=0)
    assert not lacks_records(0, 2, second, True, begin=1), "retention has deleted records"


@pytest.mark.long  # the simulator tells this story in every run
@pytest.mark.parametrize("has_grown", [True, False], ids=["more records", "no record"])
def test_a_deleted_destination_is_copied_from_the_start(
    clusters: Clusters, topic: str, start: Start, has_grown: bool
) -> None:
    """The frontier of a destination topic that no longer exists does not count: the new one gets
    every record, not only the new ones; also when the source has no new one.
    """
    make_first_copy(clusters, topic, start)
    clusters.destination.delete(topic)
    if has_grown:
        clusters.source.write(topic, more_records())
    service = start(topic, "--stop-at-end")
    assert service.wait_for_exit() == 0, service.read_log_tail()
    assert clusters.differences(topic) == []
    assert "is of a destination topic that is gone" in service.log


@pytest.mark.long  # the simulator tells this story in every run
def test_a_run_that_knew_the_deleted_destination_is_not_believed(
    clusters: Clusters, topic: str, start: Start, tmp_path: Path
) -> None:
    """The run goes on behind the frontier of the old one. Stage two stands still when it has chosen
    the new one's first frontier, and where it begins to read; what the run writes then is stale.
    Another run, which has read the new frontier, writes every record.
    """
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, make_records(range(FIRST), PARTITIONS))
    one, two = start(topic, "replicator"), start(topic, "deduplicator")
    clusters.wait_for_copy(topic, FIRST)
    two.stop()
    clusters.destination.delete(topic)
    chosen = tmp_path / "chosen"
    two = start(
        topic,
        "deduplicator",
        **LONG_SESSION,
        freeze_at=f"two: frontier read:1:{chosen}",
    )
    wait_for_failpoint(chosen, "two: frontier read")
    before = clusters.destination.count_offsets(f"{topic}-proxy")
    clusters.source.write(topic, more_records())
    until(
        lambda: clusters.destination.count_offsets(f"{topic}-proxy") >= before + PARTITIONS,
        "it has written what comes after the old frontier",
    )
    assert one.log.count("run with epoch") == 1
    two.signal("deduplicator", "SIGCONT")
    clusters.wait_for_copy(topic, 2 * FIRST)
    until(
        lambda: two.metric("reo_records_dropped_total", reason="stale") > 0,
        "the stale ones are counted",
    )
    assert one.log.count(f"begins at {{{topic}-0: 0, ") == 2
