"""The simulator: the service's own processes on a virtual clock, against a simulated Kafka, through
schedules of faults that their seeds repeat.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from simulator import plan, planted, run
from simulator.schedule import Process, Schedule, Signal

RUNS, SEEDS_PER_TEST = 200, 20
FIXED_SEEDS = {
    300: "a source that was recreated in the middle of a sample was called truncated",
    525: "the same, in the middle of a plan",
    2232: "a lost marker at the destination was waited for without end",
    2638: "a partition that was added while the topics were made was refused at the next start",
    4750: "a record that had just been copied was lost by the source, and nothing compared it",
    10806: (
        "a worker that stood still while it joined a group of the new protocol ended the service"
    ),
    936: (
        "the destination lost a committed record and its marker, and the marker of an abort took"
        " the record's offset: nothing was missed"
    ),
    1533: (
        "the source lost the marker of a transaction with records that were copied: what was read"
        " behind its last stable offset had no answer for ever"
    ),
    2647: (
        "the newest records of the intermediate topic were lost while the source was quiet, and"
        " never written again"
    ),
}
"""Seeds that have found a defect of the service, which is fixed. They are drawn with one source
candidate.
"""
LATER_FIXED_SEEDS = {
    22744: (
        "with a filter, the newest records of the intermediate topic were lost while stage one"
        " stood still, and taken for left out"
    ),
    23125: (
        "a worker stood still while it created a first frontier, lost its partition, and took the"
        " new owner's records for those of another copy"
    ),
    24168: (
        "a candidate was refused: the frontier was visible before the records of the transaction"
        " before it"
    ),
    25367: (
        "a worker was killed in the first start with `latest`, and copied its partition from the"
        " beginning"
    ),
    3389: (
        "with --stop-at-end, offsets that the source had lost unread were counted as read: the"
        " records that get them next would be left out"
    ),
    20339: (
        "a partition was added while all processes started: one saw the intermediate topic"
        " extended, the destination topic not yet, and refused it"
    ),
    43618: (
        "`reo recover` took a candidate that was behind for another copy, while the one with the"
        " records did not answer"
    ),
    45726: (
        "`reo recover` recovered no topic, because one that was selected since then has no"
        " destination topic yet"
    ),
    47762: (
        "two attempts of a Spark task numbered their records differently, because the source was"
        " compacted in between: a record was taken for the next one, and others left out"
    ),
    61681: (
        "stage one stood still after it had read the frontiers; what was copied meanwhile, and"
        " deleted at the source, it took for lost"
    ),
    63323: (
        "a topic that a pattern selects was deleted before its first frontier: a worker ended with"
        " an exception that names no topic"
    ),
    200926: (
        "unread records of the intermediate topic were lost, and a new batch began in their place:"
        " it was accepted over them"
    ),
    302400: (
        "stage one stood still and became ready with its first heartbeat, before it had asked a"
        " source that was down"
    ),
    320278: (
        "the JVM died between the end of a query and the last question about it: an exception"
        " without a name"
    ),
    1002350: (
        "a worker stood still while it waited for a transaction, and took the new owner's for the"
        " same one: it stopped the service"
    ),
    25613: (
        "a worker stood still between its look at the source and the destination, and a partition"
        " was added meanwhile: the topics were called unfit"
    ),
}
"""Drawn with everything that a plan with one topic can have."""


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """The service warns of every fault that it meets."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(1, RUNS + 1, SEEDS_PER_TEST))
def test_every_schedule_holds(first: int) -> None:
    """What a reader of the destination sees is a prefix of the source at every step, and all of it
    in the end; or the service ends as the fault calls for.
    """
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


@pytest.mark.parametrize(
    ("seed", "candidates"),
    [*((seed, 1) for seed in FIXED_SEEDS), *((seed, None) for seed in LATER_FIXED_SEEDS)],
)
def test_what_was_found_is_mended(seed: int, candidates: int | None) -> None:
    """Schedules that came out wrong."""
    result = run.run_plan(plan.draw_plan(seed, candidates, topics=1))
    assert not result.violation, f"{(FIXED_SEEDS | LATER_FIXED_SEEDS)[seed]}? {result.violation}"


@pytest.mark.parametrize("wrong", planted.WRONGS, ids=lambda wrong: wrong.name)
def test_a_planted_wrong_is_of_this_code(wrong: planted.Wrong) -> None:
    """The text that it replaces is in its module once, and what becomes of it is Python."""
    compile(planted._Finder(wrong).text(), wrong.module, "exec")


def test_a_seed_repeats_its_schedule() -> None:
    """The same steps, the same faults at the same moments, the same end."""
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
    """What does not matter is left out: of a promise that nobody keeps, hardly anything is left."""
    monkeypatch.setattr(run, "COMPLETE_WITHIN_S", -1000.0)
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
