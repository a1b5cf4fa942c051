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
        self._error: Exception | None = None
        self._signal = Signal(schedule)
        self._callbacks: list[Callable[[], object]] = []

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
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self, timeout: float | None = None) -> Exception | None:
        """The error of the request, or None."""
        try:
            self.result(timeout)
        except Exception as error:
            return error
        return None

    def on_completed(self, call: Callable[[], object]) -> None:
        """Call a function when there is a result or an error."""
        if self._is_done:
            call()
        else:
            self._callbacks.append(call)

    def add_done_callback(self, call: Callable[[Future], object]) -> None:
        """Like `on_completed`, with the future as the argument."""
        self.on_completed(lambda: call(self))

    def set(self, value: Any) -> None:
        """Set the result."""
        self._value = value
        self._complete()

    def fail(self, error: Exception) -> None:
        """Set the error."""
        self._error = error
        self._complete()

    def set_from_answer(self, request_future: Future, key: Any) -> None:
        """Set the result from one key of a request's response."""
        if request_future._error is not None:
            self.fail(request_future._error)
        elif isinstance(request_future._value[key], Exception):
            self.fail(request_future._value[key])
        else:
            self.set(request_future._value[key])

    def _complete(self) -> None:
        self._is_done = True
        self._signal.notify()
        for call in self._callbacks:
            call()
