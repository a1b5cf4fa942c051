"""What simulated processes get as their clock: that of their host, sleep, threads, and random bits
from the seed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from tools.simulator.schedule import START_UNIX_S, Schedule, Signal

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")


class VirtualClock:
    """Replaces `common.clock` for all processes of a schedule. The running task tells which
    process asks.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    def monotonic(self) -> float:
        """Monotonic seconds."""
        return self.schedule.now

    def time(self) -> float:
        """Unix time of the clock of the process's host."""
        process = self.schedule.process
        return START_UNIX_S + self.schedule.now + (process.clock_offset_s if process else 0.0)

    def sleep(self, seconds: float) -> None:
        """Suspend the running task for this time."""
        self.schedule.sleep(seconds)

    def get_random_bits(self, bits: int) -> int:
        """Random bits from the seed."""
        return self.schedule.random.getrandbits(bits)

    def start_thread(self, work: Callable[[], object], name: str) -> None:
        """Start a thread: another task of the same process."""
        assert self.schedule.process is not None
        self.schedule.start(self.schedule.process, work, name)

    def run_parallel(
        self, work: Callable[[Argument], Answer], arguments: Iterable[Argument]
    ) -> list[Answer]:
        """One after the other: the order does not change the results."""
        return [work(argument) for argument in arguments]

    def create_event(self) -> Event:
        """Create an event."""
        return Event(self.schedule)


class Event(threading.Event):
    """An event of the schedule."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self.schedule = schedule
        self.signal = Signal(schedule)
        self.value = False

    def set(self) -> None:
        """Wake all waiting tasks."""
        self.value = True
        self.signal.notify()

    def clear(self) -> None:
        """Reset the event."""
        self.value = False

    def is_set(self) -> bool:
        """Whether the event is set."""
        return self.value

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the event is set, or until the timeout."""
        if not self.value:
            self.schedule.wait(self.signal, 1e9 if timeout is None else timeout)
        return self.value
