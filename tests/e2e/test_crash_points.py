"""The crash matrix, row by row: a process is killed at each named point, which the point's file
proves, and the copy is exact.

Stage two's points need no Spark: the intermediate topic is fed by hand (`tests.harness.stage_one`).
Stage one's run the whole service.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.harness.crash_matrix import (
    STAGE_ONE,
    STAGE_TWO,
    STAGE_TWO_IDS,
    Deaths,
)
from tests.harness.failpoint_marker import wait_for_failpoint
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.recovery import add_source_offsets
from tests.harness.service import Service
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate

PARTITIONS = 2
RECORDS = 6000
SMALL_TRANSACTIONS = {"deduplicator_transaction_records": "300"}
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


@pytest.mark.parametrize("compiled", ["yes", pytest.param("no", marks=pytest.mark.long)])
@pytest.mark.parametrize("deaths", STAGE_TWO, ids=STAGE_TWO_IDS)
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


@pytest.mark.parametrize("compiled", ["yes", pytest.param("no", marks=pytest.mark.long)])
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
    clusters: Clusters, topic: str, start: Start, tmp_path: Path, deaths: Deaths, compiled: str
) -> None:
    """Killed at each of these points, and started again with nothing kept: the copy is exact, and
    the service ends as it should; whichever path stage two uses. A run with an end can be over
    before anybody has seen that it has written something.
    """
    has_end = "one: first written" not in deaths
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, make_records(range(RECORDS), PARTITIONS))
    service = start(
        topic,
        *(["--stop-at-end"] if has_end else []),
        die_at=die_at(deaths, tmp_path),
        deduplicator_compiled=compiled,
    )
    if has_end:
        assert service.wait_for_exit() == 0, service.read_log_tail()
    else:
        for point in deaths:
            wait_for_failpoint(get_proof_path(tmp_path, point), point)
        clusters.wait_for_copy(topic, RECORDS)
        service.stop()
    assert_died(deaths, tmp_path, service.log)
    assert clusters.differences(topic) == []
