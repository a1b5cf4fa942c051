"""What admin calls return: as concurrent.futures.Future, but `result` waits in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tools.simulator.schedule import Schedule, Signal

FOREVER_S = 1e9


class Future:
    """The result of a request."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._is_done = False
        self._value: Any = None
        self._signal = Signal(schedule)
        self._callbacks: list[Callable[[Future], object]] = []

    def done(self) -> bool:
        """Whether there is a result or an error."""
        return self._is_done

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result. Raises the error of the request; TimeoutError after the timeout."""
        deadline = self.schedule.now + (FOREVER_S if timeout is None else timeout)
        while not self._is_done:
            if self.schedule.now >= deadline:
                raise TimeoutError
            self.schedule.wait(self._signal, deadline - self.schedule.now)
        if isinstance(self._value, Exception):
            raise self._value
        return self._value

    def exception(self, timeout: float | None = None) -> Exception | None:
        """The error of the request, or None."""
        try:
            self.result(timeout)
        except Exception as error:
            return error
        return None

    def add_done_callback(self, call: Callable[[Future], object]) -> None:
        """Call a function when there is a result or an error."""
        if self._is_done:
            call(self)
        else:
            self._callbacks.append(call)

    def set(self, value: Any) -> None:
        """Set the result, or the error if the value is an exception."""
        self._value, self._is_done = value, True
        self._signal.notify()
        for call in self._callbacks:
            call(self)
