"""What admin calls return: as concurrent.futures.Future, but `result` waits in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulator.schedule import Schedule, Signal

FOREVER_S = 1e9


class Future:
    """An answer that comes."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._is_done = False
        self._value: Any = None
        self._error: Exception | None = None
        self._signal = Signal(schedule)
        self._callbacks: list[Callable[[], object]] = []

    def done(self) -> bool:
        """Whether it is there."""
        return self._is_done

    def result(self, timeout: float | None = None) -> Any:
        """Waits for it; raises what went wrong, TimeoutError when it does not come in time."""
        deadline = self.schedule.now + (FOREVER_S if timeout is None else timeout)
        while not self._is_done:
            if self.schedule.now >= deadline:
                raise TimeoutError
            self.schedule.wait(self._signal, deadline - self.schedule.now)
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self, timeout: float | None = None) -> Exception | None:
        """What went wrong, if anything did."""
        try:
            self.result(timeout)
        except Exception as error:
            return error
        return None

    def on_completed(self, call: Callable[[], object]) -> None:
        """Called when it is there."""
        if self._is_done:
            call()
        else:
            self._callbacks.append(call)

    def add_done_callback(self, call: Callable[[Future], object]) -> None:
        """The same, with the future."""
        self.on_completed(lambda: call(self))

    def set(self, value: Any) -> None:
        """It is there."""
        self._value = value
        self._complete()

    def fail(self, error: Exception) -> None:
        """It will not come."""
        self._error = error
        self._complete()

    def set_from_answer(self, request_future: Future, key: Any) -> None:
        """One part of a request's answer."""
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
