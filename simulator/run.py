"""One schedule, from its plan to its verdict."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from common import kafka_clients, machine
from simulator import kafka
from simulator.faults import Faults
from simulator.judge import Judge
from simulator.machine import VirtualMachine
from simulator.plan import Plan, smaller
from simulator.reports import Reports
from simulator.schedule import Schedule
from simulator.system import System

FAULTS_END_S = 240.0
"""Faults whose call has not come by then do not happen."""
COMPLETE_WITHIN_S = 900.0
"""After the last fault is over, everything is copied within this virtual time."""
AFTERWARDS_S = 10.0
"""So long nothing may follow what is complete."""
MARKERS_S = 5.0
"""A committed transaction can be read when its markers are written, which is after the commit."""
STEPS_MAX = 400_000


@dataclass(slots=True)
class Result:
    """What came of a plan."""

    plan: Plan
    violation: str = ""
    story: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    end: str = ""
    """How the service ended, or that everything was copied."""


def perform(plan: Plan) -> Result:
    """Run it; the violation is empty when everything held."""
    result = Result(plan)
    schedule = Schedule(plan.seed)

    def tell(what: str) -> None:
        result.story.append(f"{schedule.now:9.3f} s  {' '.join(what.split())}")

    real_machine = machine.use(VirtualMachine(schedule))
    system = System(plan, schedule, tell)
    judge = Judge(system)
    reports = Reports(system, judge)
    system.faults = faults = Faults(system, judge, plan.faults)
    real_clients = kafka_clients.use_clients(kafka_clients.ClientFactories(*kafka.clients(system.network), speaks_tls=lambda _: False))
    try:
        system.begin()
        result.violation = _run(schedule, system, judge, faults, reports)
        if result.violation:
            result.story += schedule.where()
    finally:
        schedule.close()
        kafka_clients.use_clients(real_clients)
        machine.use(real_machine)
    result.faults.update(faults.done)
    result.compared, result.steps, result.virtual_s = judge.compared, schedule.steps, schedule.now
    result.end = system.why or "everything is copied"
    return result


def _run(schedule: Schedule, system: System, judge: Judge, faults: Faults, reports: Reports) -> str:
    """The violation, or nothing."""
    def is_wrong() -> bool:
        return judge.is_violated() or reports.is_untrue() or bool(faults.crashed) or schedule.steps > STEPS_MAX

    def is_over() -> bool:
        return is_wrong() or system.ended is not None or (not faults.coming and not system.is_loading and schedule.now > faults.over_at)

    def is_complete() -> bool:
        return is_wrong() or system.ended is not None or (not faults.demanded and not judge.is_history_lost and judge.is_complete())

    schedule.run(FAULTS_END_S, is_over)
    faults.coming.clear()
    until = max(schedule.now, faults.over_at) + COMPLETE_WITHIN_S
    schedule.run(until, is_complete)
    if system.ended is None and not is_wrong() and is_complete():
        schedule.run(schedule.now + AFTERWARDS_S, lambda: is_wrong() or system.ended is not None)  # nothing may follow
    if system.ended == 0:
        schedule.run(schedule.now + MARKERS_S, is_wrong)
    return reports.untrue or _verdict(schedule, system, judge, faults)


def _verdict(schedule: Schedule, system: System, judge: Judge, faults: Faults) -> str:
    if judge.violation or faults.crashed:
        return judge.violation or f"an exception that is none of the service's: {faults.crashed}"
    if schedule.steps > STEPS_MAX:
        return f"{schedule.steps} steps, and no end"
    if system.ended is not None:
        if system.ended == 0 and system.plan.stop_at_end:
            unseen = bool(faults.demanded | faults.allowed)  # what calls for an end came when all that the process asks for was asked
            return "" if unseen or judge.is_complete() else f"the service has ended as if all were copied; not copied: {judge.missing()}"
        if system.ended in faults.demanded | faults.allowed:
            return ""
        return f"the service has ended, and no fault calls for it: {system.why}"
    if faults.demanded:
        return f"the service goes on, where it has to end with exit code {sorted(faults.demanded)}"
    if not judge.is_history_lost and not judge.is_complete():
        return f"not copied within {COMPLETE_WITHIN_S:.0f} s of virtual time after the last fault: {judge.missing()}"
    return ""


def shrink(result: Result) -> Result:
    """The smallest plan, of those that leave out one thing after the other, that still comes out wrong."""
    while True:
        for plan in smaller(result.plan):
            less = perform(plan)
            if less.violation:
                result = less
                break
        else:
            return result
