"""One thread, one virtual clock, many processes. Times decide which task runs next; where times are
equal, the seed decides.

Each task of a process (its main thread, its daemon threads) is a greenlet. Code that blocks (on a
sleep, an event, or the answer to a request) gives control back here, and goes on when its virtual
time has come. Nothing else gives control back, so the code between two such calls is one step. The
same seed gives the same steps.

A killed process is never resumed: none of its `finally` blocks runs. A frozen process (SIGSTOP) is
resumed after SIGCONT, however much has happened meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from greenlet import GreenletExit, getcurrent, greenlet

START_UNIX_S = 1_700_000_000.0
"""The Unix time at which the virtual clock is 0."""
NO_TICKET = -1
"""Of a function in the queue."""


@dataclass(eq=False)
class Process:
    """A process of the operating system. `clock_offset_s` is how far the clock of its host is from
    the true time.
    """

    name: str
    clock_offset_s: float = 0.0
    is_alive: bool = True
    is_frozen: bool = False
    tasks: list[Task] = field(default_factory=list)
    deferred_tasks: list[Task] = field(default_factory=list)
    """The tasks of a frozen process whose time came meanwhile."""
    thawed_at: float = 0.0
    on_end: Callable[[BaseException | None], None] | None = None
    """Called with the exception, or None, when the main task ends by itself; not when the process
    is killed.
    """


class Task:
    """One thread of a process."""

    def __init__(
        self, process: Process, name: str, work: Callable[[], object], thread: greenlet
    ) -> None:
        self.process = process
        self.name = name
        self.work = work
        self.greenlet = thread
        self.ticket = 0
        """Grows each time the task is resumed. Entries of the queue with an older ticket are
        ignored.
        """
        self.signalled = False


class Signal:
    """Wakes the tasks that wait for it, as a condition variable does."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.waiting: list[tuple[Task, int]] = []

    def notify(self) -> None:
        """Wake all waiting tasks."""
        for task, ticket in self.waiting:
            if task.ticket == ticket:
                task.signalled = True
                self.schedule.resume_later(0.0, task)
        self.waiting.clear()


class Schedule:
    """The clock, the queue, and the random numbers of the seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311
        self.now = 0.0
        """True virtual time, in seconds."""
        self.queue: list[tuple[float, float, int, Task | Callable[[], None]]] = []
        """The time, a random number for equal times, the task's ticket, and what comes then."""
        self.steps = 0
        self.task: Task | None = None
        """The task that runs now; None in a callback and outside the schedule."""
        self.on_call: Callable[[Process], None] | None = None
        """Called before a process gives control back."""
        self.is_closing = False
        self.all_tasks: list[Task] = []
        self.main = getcurrent()

    @property
    def process(self) -> Process | None:
        """The process whose code runs now."""
        return self.task.process if self.task else None

    def resume_later(self, seconds: float, task: Task) -> None:
        """Resume a task after this time."""
        heappush(self.queue, (self.now + seconds, self.random.random(), task.ticket, task))

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call a function later, outside all processes: a timer of a broker, a fault."""
        self.call_at(self.now + seconds, call)

    def call_at(self, at_s: float, call: Callable[[], None]) -> None:
        """As `call_later`, at this time."""
        heappush(self.queue, (at_s, self.random.random(), NO_TICKET, call))

    def start(self, process: Process, work: Callable[[], object], name: str = "main") -> Task:
        """Start a thread of a process. The first one is the main thread; the process ends with
        it.
        """
        task = Task(process, name, work, greenlet(self._run_task, self.main))
        process.tasks.append(task)
        self.all_tasks.append(task)
        self.resume_later(0.0, task)
        return task

    def sleep(self, seconds: float) -> None:
        """Suspend the running task for this time."""
        task = self.task
        if self.is_closing:
            raise GreenletExit
        assert task is not None, "only a process's own code can wait"
        if self.on_call:
            self.on_call(task.process)
        self.resume_later(max(0.0, seconds), task)
        self.main.switch()
        if self.is_closing:
            raise GreenletExit

    def wait(self, signal: Signal, seconds: float) -> bool:
        """Suspend the running task until the signal or the timeout. Returns whether the signal
        came.
        """
        task = self.task
        if task is not None:
            task.signalled = False
            signal.waiting.append((task, task.ticket))
        self.sleep(seconds)
        return task is not None and task.signalled

    def kill(self, process: Process) -> None:
        """SIGKILL. A process whose code runs now goes on until its next call."""
        process.is_alive = False

    def freeze(self, process: Process) -> None:
        """SIGSTOP. A process whose code runs now goes on until its next call."""
        process.is_frozen = True

    def thaw(self, process: Process) -> None:
        """SIGCONT."""
        process.is_frozen = False
        process.thawed_at = self.now
        for task in process.deferred_tasks:
            self.resume_later(0.0, task)
        process.deferred_tasks.clear()

    def run(self, until: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Run until this time, until nothing is left to do, or until `stop()`, which is called
        after each step, is true.
        """
        if stop():
            return
        queue = self.queue
        while queue and queue[0][0] <= until:
            at_s, _, ticket, action = heappop(queue)
            if isinstance(action, Task) and (
                action.ticket != ticket or not action.process.is_alive
            ):
                continue
            self.now = max(self.now, at_s)
            if not isinstance(action, Task):
                action()
            elif action.process.is_frozen:
                action.process.deferred_tasks.append(action)
                continue
            else:
                action.ticket += 1
                self.task = action
                action.greenlet.switch(action)
                self.task = None
            self.steps += 1
            if stop():
                return
        self.now = max(self.now, until)

    def _run_task(self, task: Task) -> None:
        error: BaseException | None = None
        try:
            task.work()
        except GreenletExit:
            return
        except BaseException as failed:
            error = failed
        if task.process.is_alive and task is task.process.tasks[0] and not self.is_closing:
            task.process.is_alive = False
            if task.process.on_end:
                task.process.on_end(error)

    def describe_stacks(self) -> list[str]:
        """For each task of a live process, the calls in which it waits, innermost call first."""
        stacks = []
        for task in self.all_tasks:
            frame = (
                task.greenlet.gr_frame if not task.greenlet.dead and task.process.is_alive else None
            )
            names = []
            while frame is not None:
                names.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
                frame = frame.f_back
            if names:
                stacks.append(
                    f"{task.process.name},"
                    f" {task.name}{' (frozen)' if task.process.is_frozen else ''}:"
                    f" {' < '.join(names[2:9])}"
                )
        return stacks

    def close(self) -> None:
        """Unwind the stacks of all tasks. A call that a `finally` block makes raises
        GreenletExit.
        """
        self.is_closing = True
        for task in self.all_tasks:
            if not task.greenlet.dead:
                task.greenlet.throw(GreenletExit)
        self.queue.clear()
        self.all_tasks.clear()
