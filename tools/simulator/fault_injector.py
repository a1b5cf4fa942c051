"""Injects the faults of a plan when their call has come: into requests and envelopes here, into
processes, clusters and topics in `process_faults`, `source_faults`, `source_losses`,
`replica_faults`, `intermediate_faults`, `destination_faults` and `group_faults`.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from common.errors import SourceTruncated
from tools.simulator import (
    destination_faults,
    group_faults,
    intermediate_faults,
    process_faults,
    replica_faults,
    source_faults,
    source_losses,
)
from tools.simulator.child import Child
from tools.simulator.kafka import Cluster, RequestOutcome
from tools.simulator.plan import Fault
from tools.simulator.schedule import Process
from tools.simulator.system import System

if TYPE_CHECKING:
    from tools.simulator.judge import Judge
    from tools.simulator.spark_task import Task

OUTCOMES: dict[str, RequestOutcome] = {
    "answer lost": "answer lost",
    "request lost": "lost",
    "request late": "late",
}
ENVELOPE_FAULTS = {
    "envelope lost": "lose",
    "envelope late": "straggle",
    "task repeated": "repeat",
    "executor frozen": "freeze",
}
END_TXN = "EndTxn"
GROUP_APIS = frozenset(
    {
        "JoinGroup",
        "Heartbeat",
        "LeaveGroup",
        "OffsetFetch",
        "OffsetCommit",
        "TxnOffsetCommit",
        "DescribeConsumerGroups",
    }
)
"""The requests to the coordinator of the group."""
INJECTORS = (
    process_faults.INJECTORS
    | source_faults.INJECTORS
    | source_losses.INJECTORS
    | replica_faults.INJECTORS
    | destination_faults.INJECTORS
    | group_faults.INJECTORS
    | intermediate_faults.INJECTORS
)
CALM_S = 10.0
CALLER_FAULTS = frozenset({"SIGKILL", "SIGSTOP"})
"""Faults of the process whose call it is."""


class FaultInjector:
    """The faults that are pending, and what those that were injected have done."""

    def __init__(self, system: System, judge: Judge, faults: tuple[Fault, ...]) -> None:
        self.system = system
        self.judge = judge
        self.pending = list(faults)
        self.calls = 0
        self.request_faults: list[tuple[str, str]] = []
        """The kinds, each with the request that it waits for; an empty name is the next one."""
        self.coordinator_away_until_s = 0.0
        self.coordinator_outcome: RequestOutcome = "lost"
        """What happens until then to every EndTxn of one producer: each transactional id has its
        own coordinator.
        """
        self.coordinator_client = ""
        """The task that sends these, when the first one was sent."""
        self.group_coordinator_away_until_s = 0.0
        self.envelope_faults: list[str] = []
        self.injected_kinds: list[str] = []
        """The kinds of the faults that were injected."""
        self.allowed_exit_codes: set[int] = set()
        """The service may end with one of these exit codes."""
        self.required_exit_codes: set[int] = set()
        """The service must end with one of these exit codes."""
        self.loss_unseen_until_s = 0.0
        """Until then, stage one may not have looked at a source that lost records."""
        self.torn_partitions: set[tuple[str, int]] = set()
        """The intermediate partitions with a torn transaction."""
        self.unexpected_error = ""
        """An exception that is no error class of the service."""
        self.ends_at = 0.0
        """When the last fault with a duration ends."""
        self.disturbed_until_s = 0.0
        """When the last fault was injected, or the last one with a duration ends."""
        system.network.choose_outcome = self.choose_outcome  # type: ignore[method-assign]
        system.schedule.on_call = self.on_call

    def allows(self, exit_code: int) -> bool:
        """Whether the service may end with this exit code."""
        return exit_code in self.required_exit_codes | self.allowed_exit_codes

    def on_call(self, process: Process) -> None:
        """Called when a process gives control back: injects the faults whose call this is."""
        if not self.system.children:
            return  # the writers begin before the service
        self.calls += 1
        while self.pending and self.pending[0].at_call <= self.calls:
            fault = self.pending[0]
            child = self.system.find_child(process)
            if fault.kind in CALLER_FAULTS and child is None:
                return
            self.pending.pop(0)
            self.inject(fault, child)

    def inject(self, fault: Fault, child: Child | None) -> None:
        """Inject one fault."""
        if self.system.service_exit_code is not None or self.system.is_source_topic_missing:
            return
        generator = random.Random(fault.seed)  # noqa: S311
        if fault.kind in OUTCOMES:
            self.request_faults.append((fault.kind, generator.choice(("", END_TXN))))
            return
        if fault.kind in ENVELOPE_FAULTS:
            self.envelope_faults.append(fault.kind)
            return
        description = INJECTORS[fault.kind](self, generator, child)
        self._record_fault(fault.kind, description)
        if fault.kind in CALLER_FAULTS and child and child.process:
            inject_signal = self.system.kill if fault.kind == "SIGKILL" else self._freeze_process
            inject_signal(child)

    def _record_fault(self, kind: str, what: str) -> None:
        """Without a description nothing has happened."""
        if not what:
            return
        self.injected_kinds.append(kind)
        self.disturbed_until_s = max(self.disturbed_until_s, self.system.schedule.now)
        self.ends_at = max(self.ends_at, self.system.schedule.now)
        self.system.log_event(f"FAULT {kind}: {what}")

    def is_quiet_since(self, time_s: float) -> bool:
        """Whether no fault was injected, and none was over, after this time."""
        return self.disturbed_until_s < time_s

    @property
    def is_calm(self) -> bool:
        """Whether no fault has disturbed the service for a while."""
        return not self.injected_kinds or self.system.schedule.now > self.ends_at + CALM_S

    @property
    def is_last_fault(self) -> bool:
        """Whether no fault is still to come."""
        return not (self.pending or self.request_faults or self.envelope_faults)

    def kill_processes(self, name: str = "") -> None:
        """Kill all live processes of the service whose name begins with `name`."""
        for child in self.system.children:
            if child.name.startswith(name) and child.process and child.process.is_alive:
                self.system.kill(child)

    def schedule_end(self, seconds: float, call: Callable[[], object]) -> None:
        """Call a function at the end of a fault that has a duration."""
        self.disturbed_until_s = max(self.disturbed_until_s, self.system.schedule.now + seconds)
        self.call_later(seconds, call)

    def call_later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call a function later; the schedule goes on until then."""
        self.ends_at = max(self.ends_at, self.system.schedule.now + seconds)
        self.system.schedule.call_later(seconds, lambda: (call(), None)[1])

    # ---- requests and envelopes

    def choose_outcome(self, cluster: Cluster, api: str, process: Process | None) -> RequestOutcome:
        """The outcome of a request of one of the service's processes."""
        if api == END_TXN and self.system.schedule.now < self.coordinator_away_until_s:
            assert self.system.schedule.task is not None
            client = self.system.schedule.task.name
            self.coordinator_client = self.coordinator_client or client
            if client == self.coordinator_client:
                return self.coordinator_outcome
        if api in GROUP_APIS and self.system.schedule.now < self.group_coordinator_away_until_s:
            return "lost"
        if not self.request_faults or self.system.find_child(process) is None:
            return "ok"
        request_fault = next(
            (waiting for waiting in self.request_faults if waiting[1] in ("", api)), None
        )
        if request_fault is None:
            return "ok"
        self.request_faults.remove(request_fault)
        kind = request_fault[0]
        self._record_fault(kind, f"{api} of {process.name if process else ''} to {cluster.name}")
        return OUTCOMES[kind]

    def take_envelope_fault(self, task: Task) -> str:
        """The fault of an envelope of stage one, or an empty string."""
        if not self.envelope_faults:
            return ""
        kind = self.envelope_faults.pop(0)
        self._record_fault(kind, str(task.tp))
        schedule = self.system.schedule
        if kind == "task repeated" and self.system.plan.is_compacted:
            # the log cleaner runs while two attempts write: they do not write the same records
            self.call_later(
                schedule.random.uniform(0.0, 0.2),
                lambda: self._record_fault(
                    "source compacted",
                    source_faults.compact_partition(self, task.source_partition),
                ),
            )
        return ENVELOPE_FAULTS[kind]

    # ---- processes

    def on_restart(self, child: Child) -> None:
        """A process ended. Only stage one knew what was copied before the source lost records: if
        it had not looked since, and its JVM wrote one of the new records, nothing shows the loss.
        """
        if child.metric_labels[0] == "replicator":
            self.on_evidence_gone()

    def on_evidence_gone(self) -> None:
        """Nothing shows any more that the source lost records, unless stage one has seen it."""
        if self.system.schedule.now < self.loss_unseen_until_s:
            self.required_exit_codes.discard(SourceTruncated.exit_code)

    def _freeze_process(self, child: Child) -> None:
        process = child.process
        assert process is not None
        seconds = random.Random(self.calls).uniform(0.5, 60)  # noqa: S311
        self.schedule_end(seconds, lambda: self.system.schedule.thaw(process))
        self.system.schedule.freeze(process)

    def on_unexpected_error(self, name: str, raised: BaseException) -> None:
        """A process ended with an exception that is no error class of the service: a defect of the
        service or of the simulator.
        """
        frames = "".join(traceback.format_exception(raised)[-6:])
        self.unexpected_error = self.unexpected_error or f"{name}: {frames}"
