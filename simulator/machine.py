"""What a simulated process gets instead of its machine: the clock of its host, sleep, threads, and random numbers from the seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TypeVar

from simulator.schedule import START_UNIX_S, Schedule, Signal

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")


class VirtualMachine:
    """For `common.machine`: all processes of a schedule; which one asks is known from the task that runs."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    def monotonic(self) -> float:
        """Seconds that only go forward."""
        return self.schedule.now

    def time(self) -> float:
        """Unix time as the process' host has it."""
        process = self.schedule.process
        return START_UNIX_S + self.schedule.now + (process.clock_offset_s if process else 0.0)

    def sleep(self, seconds: float) -> None:
        """Give control back for so long."""
        self.schedule.sleep(seconds)

    def random_bits(self, bits: int) -> int:
        """Of the seed."""
        return self.schedule.random.getrandbits(bits)

    def chance(self) -> random.Random:
        """Of the seed."""
        return self.schedule.random

    def background(self, work: Callable[[], object], name: str) -> None:
        """A thread: another task of the same process."""
        assert self.schedule.process is not None
        self.schedule.start(self.schedule.process, work, name)

    def all_at_once(self, work: Callable[[Argument], Answer], arguments: Iterable[Argument]) -> list[Answer]:
        """One after the other: who is asked first is nothing to the answers."""
        return [work(argument) for argument in arguments]

    def event(self) -> Event:
        """To wait for."""
        return Event(self.schedule)


class Event:
    """As threading.Event."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.signal = Signal(schedule)
        self.value = False

    def set(self) -> None:
        """Wake all that wait."""
        self.value = True
        self.signal.notify()

    def clear(self) -> None:
        """From now on there is something to wait for again."""
        self.value = False

    def is_set(self) -> bool:
        """Whether it was set."""
        return self.value

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is set, or so long."""
        if not self.value:
            self.schedule.wait(self.signal, 1e9 if timeout is None else timeout)
        return self.value
