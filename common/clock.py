"""The clock, and what else the simulator replaces: sleep, threads, events and random bits. No other
module asks the interpreter for them.

So the simulator can put functions of its own in their place (`replace`): with a virtual clock,
threads that it schedules, and bits from a seed. Then the service's own processes run in one thread,
and a schedule can be repeated. In production nothing is replaced.

The functions are called through this module, and never kept: `tests/unit/project/test_tidy.py`
checks it, and names the modules that ask the interpreter directly, for what concerns a kernel, a
real JVM or a signal.
"""

from __future__ import annotations

import secrets
import threading
import time as real_time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")


def monotonic() -> float:
    """Seconds on a clock that only goes forward."""
    return real_time.monotonic()


def time() -> float:
    """Unix time in seconds."""
    return real_time.time()


def sleep(seconds: float) -> None:
    """Do nothing for so long."""
    real_time.sleep(seconds)


def get_random_bits(bits: int) -> int:
    """A number of so many bits that nobody can foresee."""
    return secrets.randbits(bits)


def start_thread(work: Callable[[], object], name: str) -> None:
    """Do the work beside all else. It does not keep the process alive."""
    threading.Thread(target=work, daemon=True, name=name).start()


def run_parallel(work: Callable[[Argument], Answer], arguments: Iterable[Argument]) -> list[Answer]:
    """Do the work for all arguments at once; answers in their order, or the first error."""
    listed = list(arguments)
    with ThreadPoolExecutor(max(1, len(listed))) as pool:
        return list(pool.map(work, listed))


def create_event() -> Event:
    """A new event, not set."""
    return Event()


FUNCTIONS = (monotonic, time, sleep, get_random_bits, start_thread, run_parallel, create_event)


def replace(virtual: object) -> Callable[[], None]:
    """Call this object's methods from now on, in all modules; returns what undoes it."""
    before = {function.__name__: globals()[function.__name__] for function in FUNCTIONS}
    globals().update({name: getattr(virtual, name) for name in before})
    return lambda: globals().update(before)
