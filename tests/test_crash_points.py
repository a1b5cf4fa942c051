"""The crash matrix, row by row: a process is killed at each named point, which the point's file proves, and the copy is exact.

Stage two's points need no Spark: the intermediate topic is fed by hand (`tests.stage_one`). Stage one's run the whole service.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from common import points
from tests.conftest import Start
from tests.kafka import Clusters, spread
from tests.service import met
from tests.stage_one import feed, frontiers_are_made, wrapped

PARTITIONS = 2
RECORDS = 3000
NTH = {"two: started": 1, "two: initialised": 1, "two: frontier read": 1, "two: first frontier made": 1, "two: partitions gone": 1, "two: stopping": 1}
"""Points of the start are met once; those of a round are met often, and the third time is in the middle."""
SMALL_TRANSACTIONS = {"deduplicator_transaction_records": "300"}
STAGE_TWO = [point for point in get_args(points.Point) if point.startswith("two: ")]
STAGE_ONE = [point for point in get_args(points.Point) if point.startswith("one: ")]
AT_THE_END = {"two: partitions gone", "two: stopping"}
"""Points that are met while the service stops: nobody starts the process again."""


def assert_died(proof: Path, point: str, log: str) -> None:
    """The point was reached, and the process that says so was ended by SIGKILL."""
    met(proof, point)
    if point not in AT_THE_END:
        assert re.search(r"ended \(SIGKILL\)", log)


@pytest.mark.parametrize("point", STAGE_TWO)
def test_stage_two_killed_at(clusters: Clusters, topic: str, start: Start, tmp_path: Path, point: str) -> None:
    """Killed there, started again: all that stage one wrote is at the destination once, in order."""
    proof = tmp_path / "died"
    clusters.source.create(topic, PARTITIONS)
    records = spread(range(RECORDS), PARTITIONS)
    clusters.source.write(topic, records)
    service = start(topic, "deduplicator", die_at=f"{point}:{NTH.get(point, 3)}:{proof}", **SMALL_TRANSACTIONS)
    frontiers_are_made(service, PARTITIONS)
    offsets = dict.fromkeys(range(PARTITIONS), -1)
    numbered = []
    for partition, record in records:
        offsets[partition] += 1
        numbered.append((partition, offsets[partition], record))
    feed(clusters, topic, topic, wrapped(clusters, topic, numbered))
    clusters.copied(topic, RECORDS)
    service.stop()
    assert_died(proof, point, service.log)
    assert clusters.differences(topic) == []


@pytest.mark.parametrize("point", STAGE_ONE)
def test_stage_one_killed_at(clusters: Clusters, topic: str, start: Start, tmp_path: Path, point: str) -> None:
    """Killed there, started again with nothing kept: the copy is exact, and the service ends as it should."""
    proof = tmp_path / "died"
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, spread(range(RECORDS), PARTITIONS))
    service = start(topic, "--stop-at-end", die_at=f"{point}:1:{proof}")
    assert service.ends() == 0, service.tail()
    assert_died(proof, point, service.log)
    assert clusters.differences(topic) == []


def test_a_point_that_was_met_is_not_met_again(tmp_path: Path) -> None:
    """The proof of one death keeps a restarted process from dying at the same point for ever."""
    armed = points.Armed(f"two: begun:2:{tmp_path / 'died'}")
    assert [armed.reached("two: begun"), armed.reached("two: written"), armed.reached("two: begun")] == [False, False, True]
    assert not points.Armed(f"two: begun:1:{tmp_path / 'died'}").reached("two: begun")


def test_unset_nothing_dies() -> None:
    """Without REO_DIE_AT no point is armed."""
    assert not any(points.Armed("").reached(point) for point in get_args(points.Point))


