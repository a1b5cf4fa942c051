"""What a process needs from its runtime: clocks, sleep, random numbers, threads and events. Only
this module provides them.

So a simulator can replace it (`use_runtime`): with a virtual clock, seeded random numbers, and
background work that it schedules. Then the service's own processes run in one thread, and a
schedule can be repeated. In production nothing is replaced.

The functions look the runtime up at each call: `clock: Callable[[], float] = runtime.monotonic` is
the clock of the runtime that is in use by then. They are for calls that happen a few times per
batch, not once per record.

Not asked here: what a process asks of its kernel, its logs and its metrics, and what concerns a
real JVM or a signal; `tests/unit/project/test_tidy.py` names the modules that may ask directly.
"""

from __future__ import annotations

import random
import secrets
import threading
import time as real_time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")
Random = random.Random


class Event(Protocol):
    """As `threading.Event`."""

    def set(self) -> None:
        """From now on it is set; who waits goes on."""

    def clear(self) -> None:
        """From now on it is not."""

    def is_set(self) -> bool:
        """Whether it is."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or for so many seconds; returns whether it is set."""


class Runtime(Protocol):
    """The interface of a runtime; the functions of this module call the one in use."""

    def monotonic(self) -> float:
        """Seconds on a clock that only goes forward."""

    def time(self) -> float:
        """Unix time in seconds."""

    def sleep(self, seconds: float) -> None:
        """Do nothing for so long."""

    def get_random_bits(self, bits: int) -> int:
        """A number of so many bits that nobody can foresee."""

    def create_random(self) -> Random:
        """A generator for what is no secret."""

    def start_thread(self, work: Callable[[], object], name: str) -> None:
        """Do the work beside all else. It does not keep the process alive."""

    def run_parallel(
        self, work: Callable[[Argument], Answer], arguments: Iterable[Argument]
    ) -> list[Answer]:
        """Do the work for all arguments at the same time; the answers are in their order, the first
        error is raised.
        """

    def create_event(self) -> Event:
        """A new event, not set."""


class SystemRuntime:
    """The clocks, threads and random numbers of this interpreter."""

    def monotonic(self) -> float:
        """The kernel's."""
        return real_time.monotonic()

    def time(self) -> float:
        """The kernel's."""
        return real_time.time()

    def sleep(self, seconds: float) -> None:
        """Of the calling thread."""
        real_time.sleep(seconds)

    def get_random_bits(self, bits: int) -> int:
        """Of the kernel."""
        return secrets.randbits(bits)

    def create_random(self) -> Random:
        """With a seed of the kernel."""
        return random.Random()  # noqa: S311  (for what is no secret)

    def start_thread(self, work: Callable[[], object], name: str) -> None:
        """In a daemon thread."""
        threading.Thread(target=work, daemon=True, name=name).start()

    def run_parallel(
        self, work: Callable[[Argument], Answer], arguments: Iterable[Argument]
    ) -> list[Answer]:
        """In a thread each."""
        listed = list(arguments)
        with ThreadPoolExecutor(max(1, len(listed))) as pool:
            return list(pool.map(work, listed))

    def create_event(self) -> Event:
        """Of threads."""
        return threading.Event()


_in_use: Runtime = SystemRuntime()


def use_runtime(runtime: Runtime) -> Runtime:
    """Use this runtime from now on, in the whole interpreter; returns the previous one."""
    global _in_use
    before, _in_use = _in_use, runtime
    return before


def monotonic() -> float:
    """Seconds on a clock that only goes forward."""
    return _in_use.monotonic()


def time() -> float:
    """Unix time in seconds."""
    return _in_use.time()


def sleep(seconds: float) -> None:
    """Do nothing for so long."""
    _in_use.sleep(seconds)


def get_random_bits(bits: int) -> int:
    """A number of so many bits that nobody can foresee."""
    return _in_use.get_random_bits(bits)


def create_random() -> Random:
    """A generator for what is no secret."""
    return _in_use.create_random()


def start_thread(work: Callable[[], object], name: str) -> None:
    """Do the work beside all else. It does not keep the process alive."""
    _in_use.start_thread(work, name)


def run_parallel(work: Callable[[Argument], Answer], arguments: Iterable[Argument]) -> list[Answer]:
    """Do the work for all arguments at the same time; the answers are in their order, the first
    error is raised.
    """
    return _in_use.run_parallel(work, arguments)


def create_event() -> Event:
    """A new event, not set."""
    return _in_use.create_event()
