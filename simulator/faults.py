"""Does what a plan's faults say, when their call has come: to processes, requests and producer batches here, to topics in `simulator.harms`."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

from simulator import harms, logs
from simulator.kafka import Cluster
from simulator.plan import Fault
from simulator.schedule import Process
from simulator.system import TOPIC, Child, System

if TYPE_CHECKING:
    from simulator.judge import Judge
    from simulator.query import Task

RequestOutcome = Literal["ok", "lost", "answer lost", "late"]
OUTCOMES: dict[str, RequestOutcome] = {"answer lost": "answer lost", "request lost": "lost", "request late": "late"}
OF_PRODUCER = {"producer batch lost": "lose", "producer batch late": "straggle", "task repeated": "repeat"}
OF_THE_CALLER = frozenset({"SIGKILL", "SIGSTOP"})
"""Faults that strike the process whose call it is."""


class Faults:
    """What is still to come, and what it has done."""

    def __init__(self, system: System, judge: Judge, faults: tuple[Fault, ...]) -> None:
        self.system = system
        self.judge = judge
        self.coming = list(faults)
        self.calls = 0
        self.requests: list[str] = []
        self.producers: list[str] = []
        self.done: list[str] = []
        """Kinds of those that have happened."""
        self.allowed: set[int] = set()
        """Exit codes with which the service may end."""
        self.demanded: set[int] = set()
        """It has to end with one of these."""
        self.crashed = ""
        """An exception that is none of the service's own errors."""
        self.over_at = 0.0
        """When the last lasting fault is over."""
        system.network.choose_outcome = self.choose_outcome  # type: ignore[method-assign]
        system.schedule.on_call = self.on_call

    def on_call(self, process: Process) -> None:
        """A process gives control back: does the faults whose call this is."""
        if not self.system.children:
            return  # the source is written to before the service begins
        self.calls += 1
        while self.coming and self.coming[0].at_call <= self.calls:
            fault = self.coming[0]
            child = self.system.child_of(process)
            if fault.kind in OF_THE_CALLER and child is None:
                return
            self.coming.pop(0)
            self.strike(fault, child)

    def strike(self, fault: Fault, child: Child | None) -> None:
        """Do it."""
        if self.system.ended is not None or not logs.partitions(self.system.source, TOPIC):  # deleted, and not recreated yet
            return
        chance = random.Random(fault.seed)  # noqa: S311
        if fault.kind in OUTCOMES or fault.kind in OF_PRODUCER:
            (self.requests if fault.kind in OUTCOMES else self.producers).append(fault.kind)
            return
        done = self.KINDS[fault.kind](self, chance, child)
        if done:
            self._note(fault.kind, done)
        if fault.kind in OF_THE_CALLER and child and child.process:
            act = self.system.kill if fault.kind == "SIGKILL" else self._freeze
            act(child)

    def _note(self, kind: str, what: str) -> None:
        self.done.append(kind)
        self.over_at = max(self.over_at, self.system.schedule.now)
        self.system.tell(f"FAULT {kind}: {what}")

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """The end of a fault that lasts."""
        self.over_at = max(self.over_at, self.system.schedule.now + seconds)
        self.system.schedule.after(seconds, lambda: (call(), None)[1])

    # ---- requests, and what the JVM's producers send

    def choose_outcome(self, cluster: Cluster, api: str, process: Process | None) -> RequestOutcome:
        """Of a request of one of the service's processes."""
        if not self.requests or self.system.child_of(process) is None:
            return "ok"
        kind = self.requests.pop(0)
        self._note(kind, f"{api} of {process.name if process else ''} to {cluster.name}")
        return OUTCOMES[kind]

    def of_producer(self, task: Task) -> str:
        """Of a producer batch of stage one."""
        if not self.producers:
            return ""
        kind = self.producers.pop(0)
        self._note(kind, str(task.place))
        return OF_PRODUCER[kind]

    # ---- processes

    def _caller(self, _: random.Random, child: Child | None) -> str:
        return child.name if child else ""

    def _freeze(self, child: Child) -> None:
        process = child.process
        assert process is not None
        seconds = random.Random(self.calls).uniform(0.5, 60)  # noqa: S311
        self.later(seconds, lambda: self.system.schedule.thaw(process))
        self.system.schedule.freeze(process)

    def _jvm(self) -> Process | None:
        return next((child.engine.process for child in self.system.children if child.engine and child.engine.process.is_alive), None)

    def _kill_jvm(self, _: random.Random, __: Child | None) -> str:
        jvm = self._jvm()
        if jvm:
            self.system.schedule.kill(jvm)
        return jvm.name if jvm else ""

    def _freeze_jvm(self, chance: random.Random, _: Child | None) -> str:
        jvm = self._jvm()
        if jvm:
            self.system.schedule.freeze(jvm)
            self.later(chance.uniform(0.5, 30), lambda: self.system.schedule.thaw(jvm))
            child = next(child for child in self.system.children if child.engine and child.engine.process is jvm)
            if chance.random() < 0.5:
                self.later(0.0, lambda: self.system.kill(child) if child.process and child.process.is_alive else None)
        return jvm.name if jvm else ""

    def _terminate_worker(self, chance: random.Random, _: Child | None) -> str:
        child = chance.choice([child for child in self.system.children if child.name.startswith("worker")])
        child.is_told_to_stop = True
        return child.name

    def _second_stage_one(self, chance: random.Random, _: Child | None) -> str:
        self.system.add_stage_one()
        self.later(chance.uniform(2, 40), lambda child=self.system.children[-1]: self._remove(child))  # type: ignore[misc]
        return self.system.children[-1].name

    def _add_worker(self, _: random.Random, __: Child | None) -> str:
        number = sum(child.name.startswith("worker") for child in self.system.children)
        self.system.add_worker(number)
        return self.system.children[-1].name

    def _remove_worker(self, chance: random.Random, _: Child | None) -> str:
        workers = [child for child in self.system.children if child.name.startswith("worker") and child.is_wanted]
        if len(workers) < 2:
            return ""
        child = chance.choice(workers)
        self._remove(child)
        return child.name

    def _remove(self, child: Child) -> None:
        child.is_wanted = False
        if child.process and child.process.is_alive:
            self.system.kill(child)

    def unexpected(self, name: str, raised: BaseException) -> None:
        """An exception that nobody foresaw: a defect, of the service or of this simulator."""
        frames = "".join(traceback.format_exception(raised)[-6:])
        self.crashed = self.crashed or f"{name}: {frames}"

    KINDS: ClassVar[dict[str, Callable[[Faults, random.Random, Child | None], str]]] = {
        "SIGKILL": _caller,
        "SIGSTOP": _caller,
        "SIGKILL of the JVM": _kill_jvm,
        "SIGSTOP of the JVM": _freeze_jvm,
        "SIGTERM of a worker": _terminate_worker,
        "second stage one": _second_stage_one,
        "worker added": _add_worker,
        "worker removed": _remove_worker,
        **harms.KINDS,
    }
