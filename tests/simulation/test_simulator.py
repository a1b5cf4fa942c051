"""The simulator: the service's own processes on a virtual clock, against a simulated Kafka, through
schedules of faults that their seeds repeat.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common.errors import SourceTruncated
from common.kafka import cluster_requests, partition_offsets
from replicator.runs import watch
from tools.simulator import plan, planted_defects, run
from tools.simulator.child import Child
from tools.simulator.fault_injector import FaultInjector
from tools.simulator.schedule import Process, Schedule, Signal

RUNS, SEEDS_PER_TEST = 1200, 20
"""About a minute of one processor."""
AS_MANY_EVERY, ALL_S = 5, 5.0
"""In every fifth of these tests the watch works as with many partitions: it asks for all of them
after this time for each.
"""


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """The service warns of every fault that it meets."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(1, RUNS + 1, SEEDS_PER_TEST))
def test_every_schedule_holds(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a reader of the destination sees is a prefix of the source at every step, and all of it
    in the end; or the service ends as the fault calls for.
    """
    if first // SEEDS_PER_TEST % AS_MANY_EVERY == 0:
        monkeypatch.setattr(watch, "ALL_S_A_PARTITION", ALL_S)
    run_schedules(first)


def run_schedules(first: int) -> None:
    """Some seeds; AssertionError with the story of each that does not hold."""
    assert os.environ.get("PYTHONHASHSEED") == "0", "else a seed's schedule is another one"
    results = [run.run_plan(plan.draw_plan(seed)) for seed in range(first, first + SEEDS_PER_TEST)]
    wrong = [
        f"seed {result.plan.seed}: {result.violation}\n  " + "\n  ".join(result.story)
        for result in results
        if result.violation
    ]
    assert not wrong, "\n".join(wrong)
    assert sum(result.compared for result in results) > 5 * SEEDS_PER_TEST, (
        "hardly a record was compared"
    )
    assert sum(result.faults.total() for result in results) > SEEDS_PER_TEST, (
        "hardly a fault happened"
    )


def test_schedules_hold_with_a_request_for_each_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with more partitions than one commit has: faults come between its requests."""
    monkeypatch.setattr(partition_offsets, "COMMIT_PARTITIONS_MAX", 1)
    for first in (1, 1 + SEEDS_PER_TEST):
        run_schedules(first)


@pytest.mark.parametrize("defect", planted_defects.DEFECTS, ids=lambda defect: defect.name)
def test_a_planted_defect_is_of_this_code(defect: planted_defects.Defect) -> None:
    """The text that it replaces is in its module once, and what becomes of it is Python."""
    text = planted_defects.find_file(defect.module).read_text()
    compile(defect.put_into(text), defect.module, "exec")


def test_a_seed_repeats_its_schedule() -> None:
    """The same steps, the same faults at the same moments, the same end; also in a process that has
    run another one.
    """
    cluster_requests.forget_answers()  # as in a new process
    first, again = run.run_plan(plan.draw_plan(5)), run.run_plan(plan.draw_plan(5))
    assert first.story
    assert (first.story, first.steps, first.virtual_s, first.end) == (
        again.story,
        again.steps,
        again.virtual_s,
        again.end,
    )


def test_a_killed_process_does_nothing_more_and_a_frozen_one_goes_on() -> None:
    """No `finally` of a killed process runs while the schedule does; a signal that came to a frozen
    one is not lost.
    """
    schedule, actions = Schedule(1), list[str]()
    killed, frozen, signal = Process("killed"), Process("frozen"), Signal(schedule)

    def run_killed() -> None:
        try:
            schedule.sleep(5)
        finally:
            actions.append("finally")

    def run_frozen() -> None:
        actions.append(f"woken by the signal: {schedule.wait(signal, 100)}")

    schedule.start(killed, run_killed)
    schedule.start(frozen, run_frozen)
    for seconds, what in (
        (1.0, lambda: schedule.kill(killed)),
        (1.0, lambda: schedule.freeze(frozen)),
        (2.0, signal.notify),
        (8.0, lambda: schedule.thaw(frozen)),
    ):
        schedule.call_later(seconds, what)
    schedule.run(7)
    assert actions == []
    schedule.run(9)
    assert actions == ["woken by the signal: True"]
    schedule.close()


def test_a_schedule_that_fails_is_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not matter is left out: of a limit that no plan keeps, hardly anything is left."""
    monkeypatch.setattr(run, "STEPS_MAX", 10)
    result = run.run_plan(plan.draw_plan(1))
    assert result.violation
    small = run.shrink(result)
    assert small.violation
    assert (
        small.plan.faults,
        small.plan.workers,
        small.plan.topics,
        small.plan.partitions,
        small.plan.records,
    ) == ((), 1, 1, 1, 3)


@pytest.mark.parametrize(
    ("name", "now", "is_required"),
    [
        pytest.param("stage one 0", 11.0, False, id="before its next snapshot"),
        pytest.param("stage one 0", 13.0, True, id="after it"),
        pytest.param("worker 0", 11.0, True, id="another process"),
    ],
)
def test_a_loss_shows_when_stage_one_lives_until_its_next_snapshot(
    name: str, now: float, is_required: bool
) -> None:
    """Its memory of what was copied before the loss ends with it: then 20 is allowed only."""
    system = SimpleNamespace(network=SimpleNamespace(), schedule=SimpleNamespace(now=now))
    injector = FaultInjector(cast("Any", system), cast("Any", None), ())
    injector.required_exit_codes = {SourceTruncated.exit_code}
    injector.loss_unseen_until_s = 12.0
    injector.on_restart(Child(name, cast("Any", None), 0))
    assert (SourceTruncated.exit_code in injector.required_exit_codes) is is_required
