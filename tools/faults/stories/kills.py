"""SIGKILL: of each process, of pairs, of everything at once, and at every named point of the crash
matrix.
"""

from __future__ import annotations

import signal
from functools import partial
from typing import get_args

from common.failpoints import Failpoint
from tests.harness.failpoint_marker import wait_for_failpoint
from tests.harness.kafka import START_S, until
from tests.harness.service import Service, send_signal
from tools.faults.run import RUN_BEGINS, Run, Story

ONCE = {"two: started", "two: initialised", "two: frontier read", "two: first frontier made"}
"""Failpoints of a start; the others are reached in every round."""
AT_REVOCATION = "two: partitions gone"
AT_STOP = "two: stopping"
AT_END = {"one: run ended", "one: drained"}
"""Only with --stop-at-end."""


def kill_at_failpoint(run: Run, point: str) -> None:
    """The process dies at the failpoint, under load; the file that it writes proves it."""
    proof = run.folder / "died"
    nth = 1 if point in ONCE or point.startswith("one: ") else run.rng.randint(2, 12)
    if point in AT_END:
        run.load.stop()
        service = run.start("--stop-at-end", die_at=f"{point}:{nth}:{proof}")
        assert service.wait_for_exit() == 0, service.read_log_tail()
        run.mark_ended(service)
    elif point == AT_STOP:
        service = run.start(die_at=f"{point}:1:{proof}")
        run.wait_for_progress()
        service.process.terminate()
        service.wait_for_exit()
        run.mark_ended(service)
        run.start()
    elif point == AT_REVOCATION:
        run.start(die_at=f"{point}:1:{proof}")
        run.wait_for_progress()
        run.start("deduplicator")  # a second worker takes half of the partitions
    else:
        run.start(die_at=f"{point}:{nth}:{proof}")
    wait_for_failpoint(proof, point)
    run.record_fault(f"died at {point!r}")
    run.stage_two_deaths += point.startswith("two: ")
    run.counters_lost = point in (AT_STOP, *AT_END)
    if point not in AT_END:
        run.wait_for_progress()


def kill_stages(run: Run, stages: tuple[str, ...], times: int) -> None:
    """SIGKILL these processes together, several times, each time during the copy and a run of stage
    one.
    """
    service = run.start()
    for _ in range(times):
        run.wait_for_progress()
        runs_before = service.log.count(RUN_BEGINS)
        for stage in stages:
            run.kill_stage(service, stage)
        if stages != ("deduplicator",):
            until(
                lambda runs_before=runs_before: service.log.count(RUN_BEGINS) > runs_before,  # type: ignore[misc]
                "a new run has begun",
            )
    run.wait_for_progress()


def all_processes(service: Service) -> None:
    """Kill all its processes at once, as a power failure does."""
    service.signal_all("SIGKILL")


def first_process(service: Service) -> None:
    """Kill the supervisor alone, as the OOM killer does; the other processes end with it."""
    send_signal(service.process.pid)


def kill_everything(run: Run) -> None:
    """Kill all processes, then the supervisor alone; each time the next service starts with an
    empty disk.
    """
    run.counters_lost = True
    for way in (all_processes, first_process):
        service = run.start(instance="test")
        run.wait_for_progress()
        way(service)
        assert service.process.wait(START_S) == -signal.SIGKILL
        until(
            lambda service=service: not service.list_processes(),  # type: ignore[misc]
            "no process outlives the supervisor",
        )
        service.delete_folder()
        run.mark_ended(service)
        run.record_fault(f"SIGKILL of the {way.__name__.replace('_', ' ')}, disk emptied")
    run.start(instance="test")
    run.wait_for_progress()


def kill_at_random(run: Run, times: int = 6) -> None:
    """Kill random processes at random times, also while the last one restarts."""
    service = run.start()
    run.wait_for_progress()
    for _ in range(times):
        for stage in run.rng.choice(
            (("replicator",), ("jvm",), ("deduplicator",), ("deduplicator", "replicator"))
        ):
            run.kill_stage(service, stage)
        if run.rng.random() < 0.5:
            run.wait_for_progress(300, 2000)
    run.wait_for_progress()


STORIES = (
    *(
        Story(f"SIGKILL at {point}", partial(kill_at_failpoint, point=point))
        for point in get_args(Failpoint)
    ),
    Story("SIGKILL of stage one", partial(kill_stages, stages=("replicator",), times=2)),
    Story("SIGKILL of the JVM", partial(kill_stages, stages=("jvm",), times=2)),
    Story("SIGKILL of stage two", partial(kill_stages, stages=("deduplicator",), times=4)),
    Story(
        "SIGKILL of both stages",
        partial(kill_stages, stages=("replicator", "deduplicator"), times=2),
    ),
    Story("SIGKILL of everything, empty disk", kill_everything),
    Story("SIGKILL mixed", kill_at_random),
)
