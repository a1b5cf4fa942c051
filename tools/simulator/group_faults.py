"""Injects faults into the group at the destination, its coordinator and the frontiers that it has
committed, and says which exit codes of the service each fault allows or requires.

Each function returns a description of what it did, or an empty string when there was nothing to do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from common.errors import FrontierLost, LagsBehind
from tools.simulator import operator
from tools.simulator.child import Child
from tools.simulator.fault_helpers import has_frontiers, run_without_workers
from tools.simulator.fault_kinds import (
    EXCLUSIVE_FAULTS,
    FRONTIERS_DELETED,
    PAUSED,
    SOURCE_FAULTS,
    TORN,
)
from tools.simulator.schedule import Process

if TYPE_CHECKING:
    from tools.simulator.fault_injector import FaultInjector


def _drop_group_requests(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    """The coordinator of the group answers nothing, while all other requests are answered."""
    seconds = generator.choice((1.0, 5.0, 20.0)) * generator.uniform(0.5, 1.5)
    injector.group_coordinator_away_until_s = injector.system.schedule.now + seconds
    injector.schedule_end(seconds, lambda: None)
    return f"for {seconds:.1f} s"


def _tear_transaction(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    """A broker loses the marker of a group's offsets, as Kafka 4.3.1 was seen to do: the records of
    the last transaction stay visible, and the frontier is that of the transaction before it.
    """
    system = injector.system
    group = system.destination.groups.get(system.settings.application)
    # after these, the records after the older frontier can be gone
    has_other_losses = system.candidates or any(
        fault.kind in SOURCE_FAULTS | EXCLUSIVE_FAULTS - {TORN} for fault in system.plan.faults
    )
    if group is None or group.offsets.pending or has_other_losses:
        return ""
    torn = [
        partition_key
        for partition_key, (_, metadata) in group.offsets.previous.items()
        if metadata != group.offsets.committed[partition_key][1]
    ]
    if not torn:
        return ""
    partition_key = generator.choice(torn)
    group.offsets.committed[partition_key] = group.offsets.previous.pop(partition_key)
    injector.torn_partitions.add(partition_key)
    # a process that runs would go on from what it knows
    injector.kill_processes()
    return f"{partition_key[0]}-{partition_key[1]}"


def _delete_frontiers(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    system = injector.system
    if not has_frontiers(injector) or system.is_stopped_by_operator:
        return ""
    system.recovered_exit_codes.add(FrontierLost.exit_code)
    frozen_s = generator.choice((0.0, generator.uniform(0.0, 20.0)))
    if frozen_s:  # records stay unread, and an envelope of their run can come after the recovery
        injector.envelope_faults.append("envelope late")
    run_without_workers(
        injector, frozen_s, lambda: system.stop_for_operator(operator.delete_frontiers)
    )
    injector.schedule_end(frozen_s + operator.RESTART_WITHIN_S, lambda: None)
    return f"after {frozen_s:.1f} s without a worker, the operator stops the service"


def _pause_topic(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    """With `--stop-at-end` the service may end because of it."""
    system = injector.system
    topic = system.choose_route(generator).source_topic
    if system.plan.stop_at_end:
        injector.allowed_exit_codes.add(LagsBehind.exit_code)
    seconds = generator.choice((0.0, 0.5, 5.0, 30.0)) * generator.uniform(0.5, 1.5)
    system.schedule.start(Process("operator"), lambda: operator.pause(system, topic, seconds))
    return f"{topic} for {seconds:.1f} s" if seconds else f"{topic} until the others are copied"


INJECTORS: dict[str, Callable[[FaultInjector, random.Random, Child | None], str]] = {
    "group coordinator away": _drop_group_requests,
    TORN: _tear_transaction,
    FRONTIERS_DELETED: _delete_frontiers,
    PAUSED: _pause_topic,
}
