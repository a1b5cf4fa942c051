"""MirrorMaker 2, held to the same judge as our own service: what it is compared with has to be set
up so that it can win.

Only where it was asked for (`make rival`); in CI they are skipped and prove nothing.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.kafka import Clusters, make_records, until
from tests.harness.producing import produce_records
from tools.bench import mirrormaker
from tools.bench.mirrormaker import MirrorMaker

RECORDS = 20_000
PARTITIONS = 4
ABORTED = 500
COMMITTED = 100

needs_its_jars = pytest.mark.skipif(not mirrormaker.JARS.is_dir(), reason=mirrormaker.MISSING)


@pytest.fixture
def rival(clusters: Clusters, topic: str, tmp_path: Path) -> Iterator[MirrorMaker]:
    """One instance for this test's topic, not started; it is killed at the end."""
    found = MirrorMaker(
        tmp_path / "mm2", clusters.source.address, clusters.destination.address, topic, heap_mb=512
    )
    yield found
    found.kill()
    print(f"--- MirrorMaker, exit code {found.exit_code}\n{found.read_log_tail()}")


def write(clusters: Clusters, topic: str, first: int, records: int) -> int:
    """Write plain records, with a committed and an aborted transaction in their middle; returns how
    many a reader can see.
    """
    numbers = range(first, first + records)
    half = records // 2
    clusters.source.write(topic, make_records(numbers[:half], PARTITIONS))
    producer = clusters.source.producer(transactional_id=f"load-{topic}")
    producer.init_transactions(30)
    producer.begin_transaction()
    produce_records(
        producer,
        topic,
        make_records(range(10_000_000 + first, 10_000_000 + first + ABORTED), PARTITIONS),
    )
    assert producer.flush(30) == 0
    producer.abort_transaction(30)
    producer.begin_transaction()
    produce_records(
        producer,
        topic,
        make_records(range(20_000_000 + first, 20_000_000 + first + COMMITTED), PARTITIONS),
    )
    producer.commit_transaction(30)
    clusters.source.write(topic, make_records(numbers[half:], PARTITIONS))
    return records + COMMITTED


@needs_its_jars
def test_it_copies_exactly_and_makes_the_topic(
    clusters: Clusters, topic: str, rival: MirrorMaker
) -> None:
    """20,000 records and a committed transaction arrive exactly, an aborted one not at all, in a
    topic that it made with the source's settings.
    """
    clusters.source.create(topic, PARTITIONS)
    visible = write(clusters, topic, 0, RECORDS)
    assert sum(clusters.source.end_offsets(topic).values()) >= visible + ABORTED, (
        "the aborted records are not in the log: nothing was to be kept out"
    )
    assert clusters.destination.partitions(topic) == 0
    rival.start()
    clusters.wait_for_copy(topic, visible)
    assert sum(map(len, clusters.destination.read(topic).values())) == visible
    assert clusters.destination.partitions(topic) == PARTITIONS
    assert clusters.destination.config(topic)["retention.ms"] == "-1"
    assert rival.stop() < mirrormaker.STOP_S
    assert rival.list_processes() == []


@needs_its_jars
def test_a_killed_one_goes_on_when_started_again(
    clusters: Clusters, topic: str, rival: MirrorMaker
) -> None:
    """After SIGKILL the same name goes on where it was: what was written in between arrives too,
    and nothing twice.
    """
    clusters.source.create(topic, PARTITIONS)
    visible = write(clusters, topic, 0, RECORDS)
    (pid,) = rival.start().list_processes()
    clusters.wait_for_copy(topic, visible)
    rival.kill()
    assert rival.exit_code == -signal.SIGKILL
    visible += write(clusters, topic, RECORDS, RECORDS)
    (again,) = rival.start().list_processes()
    assert again != pid
    clusters.wait_for_copy(topic, visible)


@needs_its_jars
def test_it_can_be_halted_and_resumed(clusters: Clusters, topic: str, rival: MirrorMaker) -> None:
    """SIGSTOP really stops the copy, SIGCONT lets it go on to an exact end: its signals reach the
    process that copies.
    """
    clusters.source.create(topic, PARTITIONS)
    visible = write(clusters, topic, 0, RECORDS)
    rival.start()
    clusters.wait_for_copy(topic, visible)
    rival.send_signal(signal.SIGSTOP)
    state = Path(f"/proc/{rival.list_processes()[0]}/stat")
    until(lambda: state.read_text().rpartition(") ")[2].startswith("T"), "it is halted")
    visible += write(clusters, topic, RECORDS, RECORDS)
    assert clusters.differences(topic) != []
    rival.send_signal(signal.SIGCONT)
    clusters.wait_for_copy(topic, visible)
