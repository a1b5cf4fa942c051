"""Stage one in the model: Spark's batches and tasks, what can go wrong with them, and the run's life by its own table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from proof.service import TOPIC_ID, Service
from proof.world import Log, Run, Shape, Step, Task, Violation, World

Item = TypeVar("Item")
PLANNED = Run("planned", 0, 0, ())


def appended(world: World, partition: int, origin: tuple[int, int, int, int]) -> World:
    """The world with one record more on the intermediate topic."""
    log = world.logs[partition]
    return world._replace(logs=replaced(world.logs, partition, Log(log.base, (*log.records, origin))))


def replaced(items: tuple[Item, ...], position: int, item: Item) -> tuple[Item, ...]:
    """A tuple with one item changed."""
    return (*items[:position], item, *items[position + 1:])


class StageOne:
    """Successors by stage one, and by its zombie."""

    def __init__(self, shape: Shape, service: Service) -> None:
        self.shape = shape
        self.shell = shape.shell
        self.service = service
        self.source = shape.source
        self.partitions = range(len(shape.source))

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that stage one and its zombie may do now."""
        state = world.run.state
        if state == "planned":
            yield from self._plan(world)
        elif state == "running":
            yield from self._write(world)
            yield from self._verdicts(world)
        elif state == "drained":
            yield from self._drain(world)
        if world.zombie is not None:
            yield from self._haunt(world, world.zombie)
        if world.budget and state != "done":
            yield from self._end(world)

    def _readable(self, world: World) -> bool:
        """Whether `committed` answers now: every partition has a frontier, none is undecided."""
        return None not in world.committed and not (self.shell.waits_for_pending and any(world.pending))

    def _plan(self, world: World) -> Iterator[Step]:
        """Where the next run begins (`replicator.plan`)."""
        if not self._readable(world):
            return
        rules = [self.service.decode(committed[1]).rule for committed in world.committed if committed is not None]
        starts = [rule.frontier + self.shell.start_beyond for rule in rules]
        firsts = [sum(offset < start for offset in offsets) for start, offsets in zip(starts, self.source, strict=True)]
        if any(self.service.decode(committed[1]).destination_topic_id != TOPIC_ID for committed in world.committed if committed) and all(
                first == len(offsets) for first, offsets in zip(firsts, self.source, strict=True)):
            return  # not modelled: that stage one ends a copy of which stage two has yet to find that its destination is another one
        if all(first == len(offsets) for first, offsets in zip(firsts, self.source, strict=True)):
            yield Step("complete", False, world._replace(run=Run(self.service.after_run("planned", "complete"), 0, 0, ())))
            return
        known = max(rule.epoch for rule in rules)
        bits = {"rising": world.clock, "falling": 1000 - world.clock, "equal": 0}[self.shape.random_bits]
        epoch = self.service.of_run(world.clock, tuple(rule.epoch for rule in rules), bits) if self.shell.epoch_raised else known
        wrong = starts != [rule.frontier + 1 for rule in rules] or epoch <= known
        if wrong and "I10" not in self.shape.ignored:
            raise Violation(f"I10: a run begins at {starts} with epoch {epoch}; the frontiers are {[rule.frontier for rule in rules]}, epochs up to {known}")
        tasks = tuple(Task(first, first, False) for first in firsts)
        batch = 100 * world.clock if self.shape.random_bits == "equal" else 1  # Spark's timestamp: no other run's, whatever its epoch
        yield Step("plan", False, world._replace(run=Run(self.service.after_run("planned", "started"), epoch, batch, tasks), clock=world.clock + 1))

    def _write(self, world: World) -> Iterator[Step]:
        run = world.run
        for partition in self.partitions:
            offsets, task = self.source[partition], run.tasks[partition]
            after = Task(task.first, task.next + 1, task.lost)
            if task.next < len(offsets):
                origin = (offsets[task.next], run.epoch, run.batch, task.next - task.first)
                yield Step(f"deliver {partition}", False, appended(world, partition, origin)._replace(run=moved(run, partition, after)))
                if world.budget and "lose" in self.shape.faults:
                    lost = world._replace(run=moved(run, partition, after._replace(lost=True)), budget=world.budget - 1)
                    yield Step(f"lose {partition}", True, lost)
            if task.lost:
                again = world._replace(run=moved(run, partition, Task(task.first, task.first, False)))
                yield Step(f"retry {partition}", False, again)
                if world.budget and "straggler" in self.shape.faults and world.zombie is None and task.next < len(offsets):
                    idle = Task(0, len(offsets), False)
                    tasks = tuple(task if number == partition else idle for number in self.partitions)
                    straggler = Run("running", run.epoch, run.batch, tasks, whole=False)
                    yield Step(f"straggler {partition}", True, again._replace(zombie=straggler, budget=world.budget - 1))
        following = self._next_batch(run)
        if following is not None:
            yield Step("batch", False, world._replace(run=following))

    def _next_batch(self, run: Run) -> Run | None:
        """The run in its next batch, if this one is wholly written, as far as Spark knows."""
        ends = [len(offsets) for offsets in self.source]
        whole = not any(task.lost for task in run.tasks) or not self.shell.losses_noticed
        if not whole or not any(task.next > task.first for task in run.tasks):
            return None
        if not all(task.next > task.first or task.next >= end for task, end in zip(run.tasks, ends, strict=True)):
            return None
        return Run(run.state, run.epoch, run.batch + 1, tuple(Task(task.next, task.next, False) for task in run.tasks), run.whole)

    def _verdicts(self, world: World) -> Iterator[Step]:
        """What `replicator.watch` and the query's end say."""
        run = world.run
        if all(task.first == task.next == len(offsets) and not task.lost for task, offsets in zip(run.tasks, self.source, strict=True)):
            yield Step("finished", False, world._replace(run=run._replace(state=self.service.after_run("running", "finished"))))
        for event in self._complaints(world):
            yield Step(event, False, self._ended(world, event))
        if any(task.lost for task in run.tasks):
            yield Step("failed", False, self._ended(world, "failed"))

    def _complaints(self, world: World) -> Iterator[str]:
        """Superseded, hole."""
        if not self._readable(world):
            return
        rules = [self.service.decode(committed[1]).rule for committed in world.committed if committed is not None]
        if any(rule.epoch > world.run.epoch for rule in rules):
            yield "superseded"
        if any(rule.hole and rule.epoch == world.run.epoch for rule in rules):
            yield "hole"

    def _drain(self, world: World) -> Iterator[Step]:
        if not self._readable(world):
            return
        read = all(committed is not None and committed[0] >= log.base + len(log.records) for committed, log in zip(world.committed, world.logs, strict=True))
        if read:
            event = "complete"
            after = "done" if not self.shell.drained_by_position else self.service.after_run("drained", event)
            yield Step("drained", False, world._replace(run=PLANNED._replace(state=after)))
        if any(True for _ in self._complaints(world)):
            yield Step("behind", False, self._ended(world, "behind"))

    def _end(self, world: World) -> Iterator[Step]:
        """Faults of stage one."""
        state, faults = world.run.state, self.shape.faults
        less = world._replace(budget=world.budget - 1)
        if state == "running":
            for event in ("failed", "stalled"):
                if event in faults:
                    yield Step(event, True, self._ended(less, event))
        if "stopped" in faults:
            self.service.after_run(state, "stopped")
            yield Step(f"stopped {state}", True, less._replace(run=PLANNED))
        if "kill one" in faults and state != "planned":
            yield Step(f"kill one {state}", True, less._replace(run=PLANNED))
        if "zombie" in faults and state == "running" and world.zombie is None:
            yield Step("zombie", True, less._replace(run=PLANNED, zombie=world.run))

    def _ended(self, world: World, event: str) -> World:
        return world._replace(run=PLANNED._replace(state=self.service.after_run(world.run.state, event)))

    def _haunt(self, world: World, zombie: Run) -> Iterator[Step]:
        """A run that was replaced, or a task attempt that was given up, and that goes on writing."""
        for partition in self.partitions:
            offsets, task = self.source[partition], zombie.tasks[partition]
            if task.next >= len(offsets):
                continue
            after = Task(task.first, task.next + 1, task.lost)
            origin = (offsets[task.next], zombie.epoch, zombie.batch, task.next - task.first)
            yield Step(f"haunt {partition}", False, appended(world, partition, origin)._replace(zombie=self._laid(moved(zombie, partition, after))))
            if world.budget and "lose" in self.shape.faults and zombie.whole:
                lost = moved(zombie, partition, after._replace(lost=True))
                yield Step(f"haunt lose {partition}", True, world._replace(zombie=self._laid(lost), budget=world.budget - 1))
        if zombie.whole and self._readable(world) and any(self.service.decode(one[1]).rule.epoch > zombie.epoch for one in world.committed if one):
            self.service.after_run("running", "superseded")
            yield Step("haunt superseded", False, world._replace(zombie=None))  # its watch sees that a newer run is believed
        following = self._next_batch(zombie) if zombie.whole else None
        if following is not None:
            yield Step("haunt batch", False, world._replace(zombie=self._laid(following)))

    def _laid(self, zombie: Run) -> Run | None:
        """None when it has nothing left to write."""
        return None if all(task.next >= len(offsets) for task, offsets in zip(zombie.tasks, self.source, strict=True)) else zombie


def moved(run: Run, partition: int, task: Task) -> Run:
    """The run with one task changed."""
    return run._replace(tasks=replaced(run.tasks, partition, task))
