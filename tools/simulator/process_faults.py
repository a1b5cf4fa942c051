"""Injects faults into the service's processes: signals, a second stage one, more or fewer workers.

Each function returns a description of what it did, or an empty string when there was nothing to do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tools.simulator.child import Child

if TYPE_CHECKING:
    from tools.simulator.fault_injector import FaultInjector


def _name_caller(_: FaultInjector, __: random.Random, child: Child | None) -> str:
    return child.name if child else ""


def _find_stage_one_with_jvm(injector: FaultInjector) -> Child | None:
    return next(
        (
            child
            for child in injector.system.children
            if child.engine and child.engine.process.is_alive
        ),
        None,
    )


def _kill_jvm(injector: FaultInjector, _: random.Random, __: Child | None) -> str:
    child = _find_stage_one_with_jvm(injector)
    if child is None or child.engine is None:
        return ""
    injector.system.schedule.kill(child.engine.process)
    return child.engine.process.name


def _freeze_jvm(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    """Freeze the JVM for a while, and kill its driver with an even chance."""
    child = _find_stage_one_with_jvm(injector)
    if child is None or child.engine is None:
        return ""
    jvm, schedule = child.engine.process, injector.system.schedule
    schedule.freeze(jvm)
    injector.schedule_end(generator.uniform(0.5, 30), lambda: schedule.thaw(jvm))
    if generator.random() < 0.5:
        injector.schedule_end(0.0, lambda: injector.kill_processes(child.name))
    return jvm.name


def _terminate(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    child = generator.choice(injector.system.children)
    child.is_stop_requested = True
    return child.name


def _add_stage_one(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    injector.system.add_stage_one()
    added = injector.system.children[-1]
    injector.schedule_end(generator.uniform(2, 40), lambda: _disable(injector, added))
    return added.name


def _add_worker(injector: FaultInjector, _: random.Random, __: Child | None) -> str:
    number = sum(child.name.startswith("worker") for child in injector.system.children)
    injector.system.add_worker(number)
    return injector.system.children[-1].name


def _remove_worker(injector: FaultInjector, generator: random.Random, _: Child | None) -> str:
    workers = [
        child
        for child in injector.system.children
        if child.name.startswith("worker") and child.is_enabled
    ]
    if len(workers) < 2:
        return ""
    child = generator.choice(workers)
    _disable(injector, child)
    return child.name


def _disable(injector: FaultInjector, child: Child) -> None:
    child.is_enabled = False
    injector.kill_processes(child.name)


INJECTORS: dict[str, Callable[[FaultInjector, random.Random, Child | None], str]] = {
    "SIGKILL": _name_caller,
    "SIGSTOP": _name_caller,
    "SIGKILL of the JVM": _kill_jvm,
    "SIGSTOP of the JVM": _freeze_jvm,
    "SIGTERM of a process": _terminate,
    "second stage one": _add_stage_one,
    "worker added": _add_worker,
    "worker removed": _remove_worker,
}
