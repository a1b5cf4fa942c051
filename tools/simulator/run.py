"""Runs one schedule: from its plan to its result."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from common import clock
from common.errors import FrontierLost
from common.kafka import clients as kafka_clients
from common.kafka import cluster_requests
from replicator.runs import watch
from tools.simulator import compiled_path_twin, kafka
from tools.simulator.fault_injector import FaultInjector
from tools.simulator.frontier_judge import FrontierJudge
from tools.simulator.judge import Judge
from tools.simulator.kafka.log import Log
from tools.simulator.metrics_judge import MetricsJudge
from tools.simulator.plan import Plan, list_smaller_plans
from tools.simulator.schedule import Schedule
from tools.simulator.system import System
from tools.simulator.virtual_clock import VirtualClock

FAULTS_END_S = 240.0
"""Faults whose call has not come by this time are not injected."""
COMPLETE_WITHIN_S = 900.0
"""After the last fault has ended, everything must be copied within this virtual time."""
SETTLE_S = 4.0
"""After the copy is complete, nothing more may be written for this time."""
MARKERS_S = 20.0
"""A committed transaction is visible when its markers are written, which is after the commit."""
READY_WITHIN_S = 120.0
"""After the copy is complete, every process has to be ready within this time."""
QUIET_S = 12.0
"""For this time after that, no run may end: longer than a gap stays open before one does."""
HISTORY_LOST_S = 60.0
"""When one side lost records and the service need not end, it is only watched for this time."""
LAST_REQUEST_S = 10.0
"""A process that ends as complete has sent its last request at most so long before."""
STEPS_MAX = 400_000


@dataclass(slots=True)
class Result:
    """The result of a plan."""

    plan: Plan
    violation: str = ""
    story: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    end: str = ""
    """How the service ended, or that everything is copied."""


def run_plan(plan: Plan) -> Result:
    """Run the plan. `Result.violation` is empty when there was no violation."""
    result = Result(plan)
    schedule = Schedule(plan.seed)

    def log_event(what: str) -> None:
        result.story.append(f"{schedule.now:9.3f} s  {' '.join(what.split())}")

    put_clock_back = clock.replace(VirtualClock(schedule))
    system = System(plan, schedule, log_event)
    judge = Judge(system)
    system.faults = injector = FaultInjector(system, judge, plan.faults)
    judges = Judges(
        schedule,
        system,
        judge,
        injector,
        MetricsJudge(system, judge),
        FrontierJudge(system, judge),
    )
    real_clients = kafka_clients.use_clients(
        kafka_clients.ClientFactories(
            *kafka.clients(system.network), has_tls_listener=lambda _: False
        )
    )
    put_compiled_path_back = compiled_path_twin.use_twin()
    cluster_requests.forget_answers()  # of the previous schedule
    try:
        system.start_all()
        result.violation = _run_schedule(judges)
        if result.violation:
            result.story += schedule.describe_stacks()
    finally:
        schedule.close()
        put_compiled_path_back()
        kafka_clients.use_clients(real_clients)
        put_clock_back()
    result.faults.update(injector.injected_kinds)
    result.compared, result.steps, result.virtual_s = judge.compared, schedule.steps, schedule.now
    result.end = system.end_reason or "everything is copied"
    return result


@dataclass(slots=True)
class Judges:
    """All judges of a schedule. Each is asked only when something it looks at can have changed."""

    schedule: Schedule
    system: System
    judge: Judge
    injector: FaultInjector
    metrics_judge: MetricsJudge
    frontier_judge: FrontierJudge
    judged_change_count: int = -1
    """What `Log.change_count` was when there was no violation."""

    def has_violation(self) -> bool:
        """Called after each step."""
        if (
            self.judged_change_count == Log.change_count
            and self.schedule.now < self.metrics_judge.next_check_at
            and self.schedule.steps <= STEPS_MAX
            and not self.injector.unexpected_error
        ):
            return False
        is_violated = (
            self.judge.has_violation()
            or self.metrics_judge.has_violation()
            or self.frontier_judge.has_violation()
            or bool(self.injector.unexpected_error)
            or self.schedule.steps > STEPS_MAX
        )
        self.judged_change_count = -1 if is_violated else Log.change_count
        return is_violated

    def has_ended(self) -> bool:
        """Whether the service has ended."""
        return self.system.service_exit_code is not None

    def is_over(self) -> bool:
        """Whether every fault is over and the sources get no more records, or the service has
        ended.
        """
        return (
            self.has_violation()
            or self.has_ended()
            or (
                not self.injector.pending
                and self.schedule.now > self.injector.ends_at
                and not self.system.is_loading
            )
        )

    def is_complete(self) -> bool:
        """Whether everything is copied, or the service has ended."""
        if self.has_violation() or self.has_ended():
            return True
        return (
            not self.injector.required_exit_codes
            and not self.judge.is_history_lost
            and self.judge.is_complete()
        )


def _run_schedule(judges: Judges) -> str:
    """The violation, or an empty string."""
    schedule, system, injector = judges.schedule, judges.system, judges.injector
    schedule.run(FAULTS_END_S, judges.is_over)
    injector.pending.clear()
    is_only_watched = judges.judge.is_history_lost and not injector.required_exit_codes
    schedule.run(
        max(schedule.now, injector.ends_at)
        + (HISTORY_LOST_S if is_only_watched else COMPLETE_WITHIN_S),
        judges.is_complete,
    )
    if not judges.has_ended() and not judges.has_violation() and judges.is_complete():
        # no record may follow
        schedule.run(
            schedule.now + SETTLE_S,
            lambda: judges.has_violation() or judges.has_ended(),
        )
        violation = _find_unready(judges) or _find_restless(judges)
        if violation:
            return violation
    if system.service_exit_code == 0:
        schedule.run(max(schedule.now, injector.ends_at) + MARKERS_S, judges.has_violation)
    return (
        judges.metrics_judge.violation
        or judges.frontier_judge.violation
        or _find_violation(schedule, system, judges.judge, injector)
    )


def _find_unready(judges: Judges) -> str:
    """When everything is copied, every process has to become ready, no lag to be reported, every
    frontier to be committed, no gap to be open, and every record to be counted.
    """
    schedule = judges.schedule

    def describe_unready() -> str:
        return (
            judges.metrics_judge.describe_unready()
            or judges.frontier_judge.describe_unfinished()
            or judges.metrics_judge.describe_miscount()
        )

    schedule.run(
        schedule.now + READY_WITHIN_S,
        lambda: judges.has_violation() or judges.has_ended() or not describe_unready(),
    )
    unready = describe_unready()
    if judges.has_violation() or judges.has_ended() or not unready:
        return ""
    return f"everything has been copied for {READY_WITHIN_S:.0f} s, and {unready}"


def _find_restless(judges: Judges) -> str:
    """Then no run has a reason to end. (Two of stage one supersede each other.) Watching takes a
    while, so only every third schedule does it.
    """
    schedule, system = judges.schedule, judges.system
    has_one_stage_one = sum(one.name.startswith("stage one") for one in system.children) == 1
    if judges.has_ended() or not has_one_stage_one or system.plan.seed % 3:
        return ""
    # a fault a moment ago is noticed when the watch asks for every partition again
    all_s = watch.ALL_S_A_PARTITION * len(system.list_source_partitions())
    schedule.run(
        schedule.now + all_s + SETTLE_S, lambda: judges.has_violation() or judges.has_ended()
    )
    runs = len(system.queries)
    schedule.run(
        schedule.now + QUIET_S,
        lambda: judges.has_violation() or judges.has_ended() or len(system.queries) > runs,
    )
    if len(system.queries) > runs:
        return "everything is copied and every process is ready, but another run has begun"
    return ""


def _find_violation(
    schedule: Schedule, system: System, judge: Judge, injector: FaultInjector
) -> str:
    if judge.violation or injector.unexpected_error:
        return (
            judge.violation
            or f"an exception that is no error of the service: {injector.unexpected_error}"
        )
    if schedule.steps > STEPS_MAX:
        return f"no end after {schedule.steps} steps"
    if system.service_exit_code is not None:
        if system.service_exit_code == 0 and system.plan.stop_at_end:
            # the fault that calls for another end can come after the last request of the process
            is_race = not injector.is_quiet_since(system.ended_at - LAST_REQUEST_S)
            exit_codes = injector.required_exit_codes | injector.allowed_exit_codes
            exit_codes -= {FrontierLost.exit_code}  # only a start ends so
            if (exit_codes and is_race) or (
                not injector.required_exit_codes
                and (
                    judge.is_history_lost
                    or judge.is_destination_history_lost
                    or judge.is_complete()
                )
            ):
                return ""
            return (
                "the service ended as complete, but these records are not copied:"
                f" {judge.describe_missing()}"
            )
        if injector.allows(system.service_exit_code):
            return ""
        return f"the service ended, but no fault allows this end: {system.end_reason}"
    if injector.required_exit_codes:
        return (
            "the service goes on, but it must end with one of the exit codes"
            f" {sorted(injector.required_exit_codes)}"
        )
    if not judge.is_history_lost and not judge.is_complete():
        return (
            f"not copied within {COMPLETE_WITHIN_S:.0f} s of virtual time after the last fault:"
            f" {judge.describe_missing()}"
        )
    return ""


def shrink(result: Result) -> Result:
    """Leave out one thing after the other, as long as the plan still has a violation. Returns the
    result of the smallest such plan.
    """
    while True:
        for plan in list_smaller_plans(result.plan):
            smaller_result = run_plan(plan)
            if smaller_result.violation:
                result = smaller_result
                break
        else:
            return result
