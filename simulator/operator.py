"""The operator deletes the committed offsets of the group while the service is stopped.

When the service then ends because its frontiers are missing, the operator runs `reo recover --apply` and starts the service again. Kafka refuses to
delete the offsets of a group that has members, so the operator deletes them between two runs of the service.
"""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING

from common.errors import ClusterUnreachable, CopyDiffers, FrontierLost, HangingTransaction, ServiceRuns
from reo import recover as reo_recover

if TYPE_CHECKING:
    from simulator.system import System

KILL_AFTER_S = 15.0
"""What has not ended by then of itself is killed, as the supervisor does it."""
RESTART_WITHIN_S = 120.0
"""The service was stopped and started again by then."""
ATTEMPTS_MAX, PAUSE_S = 30, (1.0, 10.0)
RETRIED_EXIT_CODES = frozenset({ClusterUnreachable.exit_code, HangingTransaction.exit_code, ServiceRuns.exit_code, 1})
"""What `reo recover` refuses now and may do later; 1 is an error of a client that lost its connection."""

UNCOMPARABLE_FAULTS = frozenset({"records committed at the source are deleted", "source compacted"})
"""What is no longer in the source cannot be compared: then `reo recover` may refuse for good."""


def delete_frontiers(system: System) -> None:
    """All that the group has committed."""
    _wait_for_processes(system)
    group = system.destination.groups[system.settings.application]
    while group.members or system.destination.is_down:
        system.schedule.sleep(1.0)
    system.log_event(f"the operator deletes {len(group.offsets)} commits")
    system.destination.expire_offsets(group.name)
    system.restart()


def run_recover(system: System) -> None:
    """Try until it is done; the service has ended when it is refused for good."""
    _wait_for_processes(system)
    for _ in range(ATTEMPTS_MAX):
        system.schedule.sleep(system.schedule.random.uniform(*PAUSE_S))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as output:
            exit_code = reo_recover.command(system.settings, apply=True, as_json=True)
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
    """Of every process."""
    schedule = system.schedule
    deadline = schedule.now + KILL_AFTER_S
    while any(child.process and child.process.is_alive for child in system.children):
        schedule.sleep(0.5)
        if schedule.now > deadline:
            for child in system.children:
                if child.process and child.process.is_alive:
                    system.kill(child)
