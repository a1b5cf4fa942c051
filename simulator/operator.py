"""The operator: deletes a group's commits while the service is down, and, when it has stopped for want of them, runs `reo recover --apply` and starts it again.

Kafka refuses to delete what a group with members has committed, so it is gone between two lives of the service.
"""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING

from common.errors import ClusterUnreachable, CopyDiffers, FrontierLost, HangingTransaction, ServiceRuns
from reo import recover as reo_recover

if TYPE_CHECKING:
    from simulator.system import System

KILLED_AFTER_S = 15.0
"""What has not ended by then of itself is killed, as the supervisor does it."""
BACK_WITHIN_S = 120.0
"""The service was stopped and started again by then."""
TRIES, PAUSE_S = 30, (1.0, 10.0)
COMES_BY_ITSELF = frozenset({ClusterUnreachable.exit_code, HangingTransaction.exit_code, ServiceRuns.exit_code, 1})
"""What `reo recover` refuses now and may do later; 1 is an error of a client that lost its connection."""

PROVES_NOTHING = frozenset({"records committed at the source are deleted", "source compacted"})
"""What is no longer in the source cannot be compared: then `reo recover` may refuse for good."""


def delete_frontiers(system: System) -> None:
    """All that the group has committed."""
    _wait_for_the_end(system)
    group = system.destination.groups[system.settings.application]
    while group.members or system.destination.is_down:
        system.schedule.sleep(1.0)
    system.tell(f"the operator deletes {len(group.offsets)} commits")
    system.destination.expire_offsets(group.name)
    system.go_on()


def recover(system: System) -> None:
    """Try until it is done; the service has ended when it is refused for good."""
    _wait_for_the_end(system)
    for _ in range(TRIES):
        system.schedule.sleep(system.schedule.random.uniform(*PAUSE_S))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            code = reo_recover.command(system.settings, apply=True, as_json=True)
        system.tell(f"reo recover ends with {code}: {said.getvalue()}")
        if code not in COMES_BY_ITSELF:
            break
    if code:
        if PROVES_NOTHING.intersection(system.faults.done):
            system.faults.allowed |= {FrontierLost.exit_code, CopyDiffers.exit_code}
        system.end(code, f"recovery: {said.getvalue()}")
    else:
        system.go_on()


def _wait_for_the_end(system: System) -> None:
    """Of every process."""
    schedule = system.schedule
    deadline = schedule.now + KILLED_AFTER_S
    while any(child.process and child.process.is_alive for child in system.children):
        schedule.sleep(0.5)
        if schedule.now > deadline:
            for child in system.children:
                if child.process and child.process.is_alive:
                    system.kill(child)
