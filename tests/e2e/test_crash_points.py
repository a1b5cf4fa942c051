"""The crash matrix, row by row: a process is killed at each named point, which the point's file
proves, and the copy is exact.

Stage two's points need no Spark: the intermediate topic is fed by hand (`tests.harness.stage_one`).
Stage one's run the whole service.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from common import failpoints
from tests.conftest import Start
from tests.harness.failpoint_marker import wait_for_failpoint
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.recovery import add_source_offsets
from tests.harness.service import Service
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate

Deaths = dict[failpoints.Failpoint, int]
PARTITIONS = 2
RECORDS = 6000
NTH = 3
"""Points of a round are met often, and the third time is in the middle."""
SMALL_TRANSACTIONS = {"deduplicator_transaction_records": "300"}
STAGE_TWO: list[Deaths] = [
    {
        "two: started": 1,
        "two: initialised": 1,
        "two: frontier read": 1,
        "two: first frontier made": 1,
        "two: stopping": 1,
    },
    {"two: consumed": NTH, "two: decided": NTH, "two: committed": NTH, "two: partitions gone": 1},
    {"two: begun": NTH, "two: written": NTH, "two: offsets sent": NTH, "two: committing": NTH},
]
"""Deaths of one service, one after the other: at each point when it is met for so manieth time.
"two: committing" strikes a moment later, when "two: committed" may be met already: so these two are
not of one service.
"""
STAGE_ONE: list[Deaths] = [
    {"one: started": 1, "one: ready": 1, "one: run ended": 1},
    {"one: planned": 1, "one: drained": 1},
    {"one: query started": 1},
    {"one: first written": 1},
]
"""A run that was begun may have written everything when it dies, and no other run is needed: so
each of these has one such death, the last.
"""
AT_THE_END = {"two: partitions gone", "two: stopping"}
"""Points that are met while the service stops: nobody starts the process again."""


def get_proof_path(folder: Path, point: str) -> Path:
    """The file that a death at this point leaves; a colon would end the point's name in the
    setting.
    """
    return folder / point.replace(": ", "-")


def die_at(deaths: Deaths, folder: Path) -> str:
    """For the setting `die_at`; each death leaves its proof in the folder."""
    return ";".join(
        f"{point}:{nth}:{get_proof_path(folder, point)}" for point, nth in deaths.items()
    )


def assert_died(deaths: Deaths, folder: Path, log: str) -> None:
    """Each point was reached, and each process that says so was ended by SIGKILL."""
    for point in deaths:
        wait_for_failpoint(get_proof_path(folder, point), point)
    # the supervisor kills too, when a process gives no sign of life
    assert len(re.findall(r"ended \(SIGKILL\)", log)) >= len(set(deaths) - AT_THE_END)


def wait_for_successor(deaths: Deaths, folder: Path, service: Service) -> None:
    """Wait until all have died that die before the end, and the last one's successor is ready."""
    for point in set(deaths) - AT_THE_END:
        wait_for_failpoint(get_proof_path(folder, point), point)
    until(
        lambda: service.metric("reo_ready", stage="deduplicator") == 1,
        "the last one is followed by another",
    )


def test_no_point_is_left_out() -> None:
    """Each row of the crash matrix is one of the deaths below."""
    assert sorted(point for deaths in (*STAGE_TWO, *STAGE_ONE) for point in deaths) == sorted(
        get_args(failpoints.Failpoint)
    )


@pytest.mark.parametrize("compiled", ["yes", pytest.param("no", marks=pytest.mark.long)])
@pytest.mark.parametrize("deaths", STAGE_TWO, ids=["start", "deciding", "writing"])
def test_stage_two_killed_at(
    clusters: Clusters, topic: str, start: Start, tmp_path: Path, deaths: Deaths, compiled: str
) -> None:
    """Killed at each of these points, and started again each time: all that stage one wrote is at
    the destination once, in order; by C and by Python.
    """
    clusters.source.create(topic, PARTITIONS)
    records = make_records(range(RECORDS), PARTITIONS)
    clusters.source.write(topic, records)
    service = start(
        topic,
        "deduplicator",
        die_at=die_at(deaths, tmp_path),
        deduplicator_compiled=compiled,
        **SMALL_TRANSACTIONS,
    )
    wait_for_frontiers(service, PARTITIONS)
    write_intermediate(
        clusters, topic, topic, wrap_records(clusters, topic, add_source_offsets(records))
    )
    clusters.wait_for_copy(topic, RECORDS)
    wait_for_successor(deaths, tmp_path, service)
    service.stop()
    assert_died(deaths, tmp_path, service.log)
    assert clusters.differences(topic) == []


@pytest.mark.parametrize(
    "deaths",
    [
        pytest.param(
            deaths,
            id=" ".join(deaths),
            marks=() if "one: started" in deaths else pytest.mark.long,
        )
        for deaths in STAGE_ONE
    ],
)
def test_stage_one_killed_at(
    clusters: Clusters, topic: str, start: Start, tmp_path: Path, deaths: Deaths
) -> None:
    """Killed at each of these points, and started again with nothing kept: the copy is exact, and
    the service ends as it should.
    """
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, make_records(range(RECORDS), PARTITIONS))
    service = start(topic, "--stop-at-end", die_at=die_at(deaths, tmp_path))
    assert service.wait_for_exit() == 0, service.read_log_tail()
    assert_died(deaths, tmp_path, service.log)
    assert clusters.differences(topic) == []


def test_a_point_that_was_met_is_not_met_again(tmp_path: Path) -> None:
    """The proof of one death keeps a restarted process from dying at the same point for ever."""
    armed = failpoints.ArmedFailpoint(f"two: begun:2:{tmp_path / 'died'}")
    assert [
        armed.should_trigger("two: begun"),
        armed.should_trigger("two: written"),
        armed.should_trigger("two: begun"),
    ] == [False, False, True]
    assert not failpoints.ArmedFailpoint(f"two: begun:1:{tmp_path / 'died'}").should_trigger(
        "two: begun"
    )


def test_unset_nothing_dies() -> None:
    """Without REO_DIE_AT and REO_FREEZE_AT no point is armed."""
    assert failpoints.ARMED == ()
