"""Does what a plan's faults say, when their call has come; and says which end of the service each of them allows or demands."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

from common.errors import DestinationTruncated, FrontierLost, HangingTransaction, SourceRecreated, SourceTruncated, TopicMissing, TopicsUnfit
from common.routes import Place
from simulator import logs
from simulator.kafka import Cluster
from simulator.kafka.log import DATA
from simulator.plan import Fault
from simulator.schedule import Process
from simulator.system import COPY, TOPIC, Child, System

if TYPE_CHECKING:
    from simulator.judge import Judge
    from simulator.query import Task

PROXY = f"{COPY}-proxy"
Fate = Literal["ok", "lost", "answer lost", "late"]
FATES: dict[str, Fate] = {"answer lost": "answer lost", "request lost": "lost", "request late": "late"}
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
        self.requests: list[Fate] = []
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
        system.network.fate = self.fate  # type: ignore[method-assign]
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
        if self.system.ended is not None or not logs.partitions(self.system.source, TOPIC):  # deleted, and not made again yet
            return
        chance = random.Random(fault.seed)  # noqa: S311
        if fault.kind in FATES:
            self.requests.append(FATES[fault.kind])
            return
        if fault.kind in OF_PRODUCER:
            self.producers.append(OF_PRODUCER[fault.kind])
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

    def _later(self, seconds: float, call: Callable[[], object]) -> None:
        self.over_at = max(self.over_at, self.system.schedule.now + seconds)
        self.system.schedule.after(seconds, lambda: (call(), None)[1])

    # ---- requests, and what the JVM's producers send

    def fate(self, cluster: Cluster, api: str, process: Process | None) -> Fate:
        """Of a request of one of the service's processes."""
        if not self.requests or self.system.child_of(process) is None:
            return "ok"
        fate = self.requests.pop(0)
        self._note(next(kind for kind, known in FATES.items() if known == fate), f"{api} of {process.name if process else ''} to {cluster.name}")
        return fate

    def of_producer(self, task: Task) -> str:
        """Of a producer batch of stage one."""
        if not self.producers:
            return ""
        fault = self.producers.pop(0)
        self._note(next(kind for kind, known in OF_PRODUCER.items() if known == fault), str(task.place))
        return fault

    # ---- processes

    def _caller(self, _: random.Random, child: Child | None) -> str:
        return child.name if child else ""

    def _freeze(self, child: Child) -> None:
        process = child.process
        assert process is not None
        seconds = random.Random(self.calls).uniform(0.5, 60)  # noqa: S311
        self._later(seconds, lambda: self.system.schedule.thaw(process))
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
            self._later(chance.uniform(0.5, 30), lambda: self.system.schedule.thaw(jvm))
            child = next(child for child in self.system.children if child.engine and child.engine.process is jvm)
            if chance.random() < 0.5:
                self._later(0.0, lambda: self.system.kill(child) if child.process and child.process.is_alive else None)
        return jvm.name if jvm else ""

    def _terminate_worker(self, chance: random.Random, _: Child | None) -> str:
        child = chance.choice([child for child in self.system.children if child.name.startswith("worker")])
        child.is_told_to_stop = True
        return child.name

    def _second_stage_one(self, chance: random.Random, _: Child | None) -> str:
        self.system.add_stage_one()
        self._later(chance.uniform(2, 40), lambda child=self.system.children[-1]: self._remove(child))  # type: ignore[misc]
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

    # ---- clusters

    def _away(self, chance: random.Random, name: str) -> str:
        cluster = self.system.source if name == "source" else self.system.destination
        seconds = chance.choice((0.3, 3.0, 15.0, 60.0)) * chance.uniform(0.5, 1.5)
        cluster.set_away(True)
        self._later(seconds, lambda: cluster.set_away(False))
        return f"for {seconds:.1f} s"

    def _partition(self, chance: random.Random) -> int:
        return chance.randrange(logs.partitions(self.system.source, TOPIC))

    def _retention(self, chance: random.Random, _: Child | None) -> str:
        partition = self._partition(chance)
        offset = self.judge.copied_to(partition) + 1
        self.system.source.delete_records(TOPIC, partition, offset)
        return f"partition {partition} begins at {offset}"

    def _compact(self, chance: random.Random, _: Child | None) -> str:
        partition = self._partition(chance)
        before = logs.data(self.system.source, Place(TOPIC, partition))
        self.system.source.compact(TOPIC, partition)
        removed = frozenset(before) - frozenset(logs.data(self.system.source, Place(TOPIC, partition)))
        self.judge.allow_missing(partition, removed)
        return f"partition {partition}: {sorted(removed)}"

    def _add_partition(self, _: random.Random, __: Child | None) -> str:
        count = logs.partitions(self.system.source, TOPIC) + 1
        self.system.source.add_partitions(TOPIC, count)
        return str(count)

    def _delete_unread_source(self, chance: random.Random, _: Child | None) -> str:
        partition = self._partition(chance)
        end = self.system.source.log(TOPIC, partition).end
        offset = chance.randint(0, end)
        self.judge.allow_missing(partition, range(offset))
        if offset > self.judge.copied_to(partition) + 1:  # nobody can know whether what was never read could be seen
            self.allowed.add(SourceTruncated.exit_code)
        self.system.source.delete_records(TOPIC, partition, offset)
        return f"partition {partition} begins at {offset} of {end}, copied to {self.judge.copied_to(partition)}"

    def _lose_source(self, chance: random.Random, _: Child | None) -> str:
        partition = self._partition(chance)
        end = self.system.source.log(TOPIC, partition).end
        if not end:
            return ""
        count = chance.randint(1, min(4, end))
        copied, read_to = self.judge.copied_to(partition), self.system.read_to.get(Place(TOPIC, partition), 0)
        self.system.source.lose_newest(TOPIC, partition, count, same_epoch=chance.random() < 0.3)
        if end - count < read_to:  # some of it is copied, or can be on its way
            self.judge.is_source_history_lost = True
            (self.demanded if end - count <= copied else self.allowed).add(SourceTruncated.exit_code)
        else:
            self.judge.look_again(partition)
        return f"partition {partition}: {count} of {end}, read to {read_to}, copied to {copied}"

    def _recreate_source(self, chance: random.Random, _: Child | None) -> str:
        count = logs.partitions(self.system.source, TOPIC)
        if not self._has_frontiers():
            return ""
        self.judge.is_source_history_lost = True
        self.demanded = {SourceRecreated.exit_code, TopicMissing.exit_code}
        self.system.source.delete_topic(TOPIC)
        self._later(chance.choice((0.0, 0.1, 5.0)), lambda: self.system.source.create_topic(TOPIC, count))
        return f"{count} partitions"

    def _has_frontiers(self) -> bool:
        """Whether it is written down which source is copied."""
        return any(group.offsets for group in self.system.destination.groups.values())

    def _delete_between(self, chance: random.Random, _: Child | None) -> str:
        place = Place(PROXY, self._partition(chance))
        if not logs.has(self.system.destination, place):
            return ""
        offset = chance.randint(0, self.system.destination.log(*place).end)
        self.system.destination.delete_records(*place, offset)
        return f"{place} begins at {offset}"

    def _lose_between(self, chance: random.Random, _: Child | None) -> str:
        place = Place(PROXY, self._partition(chance))
        if not logs.has(self.system.destination, place) or not self.system.destination.log(*place).end:
            return ""
        count = chance.randint(1, min(4, self.system.destination.log(*place).end))
        self.system.destination.lose_newest(*place, count, same_epoch=chance.random() < 0.3)
        return f"{place}: {count}"

    def _compact_between(self, chance: random.Random, _: Child | None) -> str:
        place = Place(PROXY, self._partition(chance))
        if not logs.has(self.system.destination, place):
            return ""
        self.allowed.add(TopicsUnfit.exit_code)
        self.system.destination.alter_config(PROXY, cleanup_policy="compact")
        return f"{place}: {self.system.destination.compact(*place)} records are gone"

    def _recreate_destination(self, _: random.Random, __: Child | None) -> str:
        place = Place(COPY, 0)
        if not logs.has(self.system.destination, place):
            return ""
        count = logs.partitions(self.system.destination, COPY)
        self.system.destination.delete_topic(COPY)
        self.system.destination.create_topic(COPY, count)
        self.judge.begin_again()
        # seen while running it is an end, and so it is for who is given a partition where another worker went on; a start copies it from the beginning
        self.allowed |= {DestinationTruncated.exit_code, FrontierLost.exit_code}
        return f"{count} partitions"

    def _lose_destination(self, chance: random.Random, _: Child | None) -> str:
        place = Place(COPY, self._partition(chance))
        if not logs.has(self.system.destination, place) or not self.system.destination.log(*place).end:
            return ""
        count = chance.randint(1, min(4, self.system.destination.log(*place).end))
        self.judge.is_destination_history_lost = True
        stable = self.system.destination.log(*place).stable
        lost = self.system.destination.lose_newest(*place, count, same_epoch=chance.random() < 0.3)
        ends = {DestinationTruncated.exit_code, HangingTransaction.exit_code}  # a lost marker leaves its transaction open
        self.allowed |= ends
        is_alone = len(self.system.plan.faults) == 1  # with another fault, others can come to these offsets before it is seen
        if is_alone and any(record.kind == DATA and record.offset < stable for record in lost):  # what an open transaction loses, its marker can hide
            self.demanded = ends
        return f"{place}: {count}"

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
        "source away": lambda self, chance, _: self._away(chance, "source"),
        "destination away": lambda self, chance, _: self._away(chance, "destination"),
        "second stage one": _second_stage_one,
        "worker added": _add_worker,
        "worker removed": _remove_worker,
        "records committed at the source are deleted": _retention,
        "source compacted": _compact,
        "partition added": _add_partition,
        "unread intermediate records deleted": _delete_between,
        "newest intermediate records lost": _lose_between,
        "destination recreated": _recreate_destination,
        "unread source records deleted": _delete_unread_source,
        "newest source records lost": _lose_source,
        "source recreated": _recreate_source,
        "newest destination records lost": _lose_destination,
        "intermediate topic compacted": _compact_between,
    }
