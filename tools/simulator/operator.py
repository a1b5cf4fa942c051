"""The operator: pauses a topic for a while, deletes the committed offsets of the stopped service,
and runs `reo recover`.

When the service then ends because its frontiers are missing, the operator runs `reo recover
--apply` and starts the service again. Kafka refuses to delete the offsets of a group that has
members, so the operator deletes them between two runs of the service.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from common.errors import (
    ClusterUnreachable,
    CopyDiffers,
    FrontierLost,
    HangingTransaction,
    ReoError,
    ServiceRuns,
)
from reo import pause as reo_pause
from reo import recover as reo_recover

if TYPE_CHECKING:
    from tools.simulator.system import System

KILL_AFTER_S = 15.0
"""A process that has not ended by then is killed, as the supervisor does it."""
RESTART_WITHIN_S = 120.0
"""By then, the service was stopped and started again."""
FOLLOWED_S = 3.0
"""In this time the service follows a command, or the command is tried again."""
ATTEMPTS_MAX, PAUSE_S = 30, (1.0, 10.0)
RETRIED_EXIT_CODES = frozenset(
    {ClusterUnreachable.exit_code, HangingTransaction.exit_code, ServiceRuns.exit_code, 1}
)
"""After these exit codes, `reo recover` is run again. 1 is the error of a client that lost its
connection.
"""

UNCOMPARABLE_FAULTS = frozenset({"records committed at the source are deleted", "source compacted"})
"""Records that are no longer at the source cannot be compared: after these faults, `reo recover`
may refuse for good.
"""


def delete_frontiers(system: System) -> None:
    """Delete all offsets that the group has committed, or the group."""
    _wait_for_processes(system)
    group = system.destination.groups[system.settings.application]
    while group.members or system.destination.is_down:
        system.schedule.sleep(1.0)
    if group.offsets.pending or system.schedule.random.random() < 0.5:
        system.log_event(f"the operator deletes {len(group.offsets.committed)} commits")
        system.destination.expire_offsets(group.name)
    else:
        system.log_event("the operator deletes the group")
        system.destination.delete_group(group.name)
    system.restart()


def change_while_stopped(system: System, change: Callable[[], object]) -> None:
    """Change something between two runs of the service."""
    _wait_for_processes(system)
    change()
    system.restart()


def pause(system: System, topic: str, seconds: float) -> None:
    """`reo pause` while the service runs, and `reo resume` after this time; with 0 when all other
    topics are copied.
    """
    judge = system.faults.judge
    _repeat(system, partial(reo_pause.pause, system.settings, [topic]))
    judge.paused.add(topic)
    if seconds:
        system.faults.schedule_end(seconds, lambda: None)
        system.schedule.sleep(seconds)
    while not seconds and system.service_exit_code is None and not _is_rest_copied(system):
        system.schedule.sleep(1.0)
    _repeat(system, partial(reo_pause.resume, system.settings, [topic]))
    judge.resume(topic)
    system.log_event(f"{topic} is resumed")


def _is_rest_copied(system: System) -> bool:
    """Whether the last record of every topic is copied that is not paused."""
    faults, judge = system.faults, system.faults.judge
    return not (faults.pending or system.is_loading) and judge.is_complete(besides=judge.paused)


def _repeat(system: System, command: Callable[[], int]) -> None:
    """Until this command of reo succeeds, or the service has ended."""
    while system.service_exit_code is None:
        system.faults.schedule_end(FOLLOWED_S, lambda: None)
        if _try_command(system, command):
            return
        system.schedule.sleep(1.0)


def _try_command(system: System, command: Callable[[], int]) -> bool:
    """Whether a command of reo succeeds."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            return command() == 0
        except (ReoError, KafkaException) as error:
            system.log_event(f"a command of the operator fails: {error}")
            return False


def run_recover(system: System) -> None:
    """Run `reo recover` until it succeeds. When it refuses for good, the service has ended."""
    _wait_for_processes(system)
    system.is_recovered = True
    for _ in range(ATTEMPTS_MAX):
        system.schedule.sleep(system.schedule.random.uniform(*PAUSE_S))
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()) as output,
        ):
            try:
                exit_code = reo_recover.run_command(system.settings, apply=True, as_json=True)
            except ReoError as error:
                exit_code = error.exit_code
                print(error, file=sys.stderr)
        system.log_event(f"reo recover ends with {exit_code}: {output.getvalue()}")
        if exit_code not in RETRIED_EXIT_CODES:
            break
    if exit_code:
        if UNCOMPARABLE_FAULTS.intersection(system.faults.injected_kinds):
            system.faults.allowed_exit_codes |= {FrontierLost.exit_code, CopyDiffers.exit_code}
        system.end(exit_code, f"recovery: {output.getvalue()}")
    else:
        system.restart()


def _wait_for_processes(system: System) -> None:
    """Wait until every process has ended; kill those that do not end in time."""
    schedule = system.schedule
    deadline = schedule.now + KILL_AFTER_S
    while any(child.process and child.process.is_alive for child in system.children):
        schedule.sleep(0.5)
        if schedule.now > deadline:
            for child in system.children:
                if child.process and child.process.is_alive:
                    system.kill(child)
