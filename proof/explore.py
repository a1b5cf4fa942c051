"""Exhaustive exploration, breadth first: every state once, every step from it, every invariant, and liveness from all of them.

Liveness needs no second exploration: of each state one step is chosen, the first in `FAIR` among those that are no faults, and
that edge is kept. Since a fault-free step of a reachable state leads to a reachable state, following the edges stays
among the states explored; from each it has to end in `done`, and must not go round in a circle.
"""

from __future__ import annotations

import gc
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from proof import broker
from proof.invariants import Invariants
from proof.service import Service
from proof.stage_one import PLANNED, StageOne
from proof.stage_two import StageTwo
from proof.world import Log, Shape, Step, Transaction, Violation, World

FAIR = ("EndTxn", "marker", "time-out", "fenced", "restart", "lost", "rebalance", "start", "first", "write", "offsets", "refused", "end", "answered", "begin",
        "gone", "consume", "superseded", "hole", "failed", "behind", "drained", "complete", "plan", "finished", "deliver", "batch")
"""What happens when faults stop: brokers finish, workers come back, stage two catches up, stage one heals and goes on."""
RANK = {name: rank for rank, name in enumerate(FAIR)}
NEVER = len(FAIR)


@dataclass
class Result:
    """What an exploration found; `violation` is empty when everything holds."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    violation: str = ""
    story: list[str] = field(default_factory=list)
    """The steps that lead there; a shortest way."""
    reached: Counter[str] = field(default_factory=Counter)
    complete: bool = True
    """Whether the exploration came to its end (or found a violation)."""


class Explorer:
    """One exploration of one shape, with the service's modules or mutated ones."""

    def __init__(self, shape: Shape, service: Service | None = None) -> None:
        self.shape = shape
        self.service = service or Service()
        self.one = StageOne(shape, self.service)
        self.two = StageTwo(shape, self.service)
        self.invariants = Invariants(shape, self.service)
        self.index: dict[World, int] = {}
        self.worlds: list[World] = []
        self.came_from = array("q")
        self.came_by: list[str] = []
        self.leads_to = array("q")
        self.shared: dict[object, object] = {}
        self.result = Result()

    def initial(self) -> World:
        """Nothing copied, nothing committed, workers about to join."""
        each = range(len(self.shape.source))
        joining = self.two.down._replace(phase="joining", producers=("ready", "ready"))
        world = World(tuple(Log(0, ()) for _ in each), tuple(None for _ in each), tuple(() for _ in each), tuple(() for _ in each),
                      (broker.NONE,) * (2 * self.shape.workers), PLANNED, None, (joining,) * self.shape.workers, tuple(-1 for _ in each), 1,
                      False, 0)
        while not self.shape.fine and (any(worker.phase != "idle" for worker in world.workers) or any(world.pending)):
            world = next(step.world for step in self.steps(world) if step.name != "pause")
        return world._replace(budget=self.shape.budget)

    def steps(self, world: World) -> Iterator[Step]:
        """Every step from a state."""
        yield from broker.steps(world, self.shape)
        if world.budget and world.run.state != "done":
            yield from broker.lost_unread(world, self.shape)
            if "recreated" in self.shape.faults:
                yield from broker.recreated(world, self.service)
        yield from self.two.steps(world)
        yield from self.one.steps(world)

    def run(self, states_max: int = 0, told: Callable[[int, int], None] = lambda _states, _depth: None) -> Result:
        """Explore until nothing is new, an invariant is violated, or there are `states_max` states."""
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            self._explore(states_max, told)
            if not self.result.violation:
                self.check_live()
        finally:
            if was_enabled:
                gc.enable()
        self.result.states = len(self.worlds)
        self.result.reached.update(dict.fromkeys(self.service.reached, 1))
        return self.result

    def _explore(self, states_max: int, told: Callable[[int, int], None]) -> None:
        self._add(self.initial(), -1, "")
        position, level_ends = 0, 1
        while position < len(self.worlds):
            if position == level_ends:
                self.result.depth += 1
                level_ends = len(self.worlds)
                told(len(self.worlds), self.result.depth)
            if states_max and len(self.worlds) >= states_max:
                self.result.complete = False
                return
            try:
                self._expand(position)
            except Violation as violated:
                self._tell(position, str(violated))
                return
            position += 1

    def _expand(self, position: int) -> None:
        world = self.worlds[position]
        if world.run.state == "done":
            return
        best, chosen = NEVER, -1
        for name, fault, following in self.steps(world):
            after = forgotten(following)
            self.result.steps += 1
            self.result.reached[name] += 1
            found = self.index.get(after)
            if found is None:
                try:
                    self.invariants.holds(world, after)
                except Violation as violated:
                    raise Violation(f"{violated} (after {name})") from None
                found = self._add(after, position, name)
            rank = NEVER if fault else RANK.get(name, RANK.get(name.split(" ", 1)[0], NEVER))
            if rank < best:
                best, chosen = rank, found
        if chosen < 0:
            raise Violation("L2: nothing can happen any more, and the copy is not done")
        self.leads_to[position] = chosen

    def _add(self, world: World, came_from: int, came_by: str) -> int:
        """Keep a state; equal parts of states are kept once."""
        keep = self.shared.setdefault
        workers = tuple(keep(worker, worker) for worker in world.workers)
        kept = World(*(keep(part, part) for part in world._replace(workers=workers)))  # type: ignore[arg-type]
        number = self.index[kept] = len(self.worlds)
        self.worlds.append(kept)
        self.came_from.append(came_from)
        self.came_by.append(came_by)
        self.leads_to.append(-1)
        return number

    def check_live(self) -> None:
        """L1: the fair steps lead from every state to `done`."""
        live = bytearray(len(self.worlds))  # 0 unknown, 1 on the way, 2 leads to done
        for start in range(len(self.worlds)):
            path = []
            at = start
            while live[at] == 0:
                if self.leads_to[at] < 0:
                    live[at] = 2  # done; or, in an exploration that was cut short, not expanded
                    break
                live[at] = 1
                path.append(at)
                at = self.leads_to[at]
            if live[at] == 1:
                self._tell(start, "L1: without any further fault the copy goes round in a circle: " + ", ".join(self._circle(at)))
                return
            for passed in path:
                live[passed] = 2

    def walk(self, steps_max: int = 2000) -> None:
        """L1 for an exploration that has no end: the fair steps from the very beginning have to come to `done` before long."""
        world, taken = self.initial(), 0
        while world.run.state != "done" and not self.result.violation:
            taken += 1
            ranked = [(RANK.get(name, RANK.get(name.split(" ", 1)[0], NEVER)), after) for name, fault, after in self.steps(world) if not fault]
            world = forgotten(min(ranked, key=lambda step: step[0])[1])
            if taken > steps_max:
                self.result.violation = f"L1: {steps_max} fair steps without any fault do not come to an end"

    def _circle(self, at: int) -> list[str]:
        names: list[str] = []
        world = at
        while not names or world != at:
            following = self.leads_to[world]
            names.append(next((name for name, _, after in self.steps(self.worlds[world]) if self.index.get(forgotten(after)) == following), "?"))
            world = following
        return names[:12]

    def _tell(self, position: int, violation: str) -> None:
        self.result.violation = violation
        while position > 0:
            self.result.story.insert(0, self.came_by[position])
            position = self.came_from[position]


def forgotten(world: World) -> World:
    """Without what cannot matter any more: records that everybody has read, a number of a zombie that is gone."""
    logs = world.logs
    for partition, log in enumerate(logs):
        committed = world.committed[partition]
        low = min([committed[0] if committed else 0, *(held.position for worker in world.workers if (held := worker.held[partition]) is not None)])
        low = min(low, log.base + len(log.records))
        if low > log.base:
            logs = (*logs[:partition], Log(low, log.records[low - log.base:]), *logs[partition + 1:])
    transactions = world.transactions
    if any(transaction.status in ("none", "fenced") and transaction.end_sent for transaction in transactions):
        transactions = tuple(Transaction(one.status, False, False) if one.status == "fenced" else one for one in transactions)
    return world._replace(logs=logs, transactions=transactions) if logs is not world.logs or transactions is not world.transactions else world
