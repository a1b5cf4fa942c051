"""Asks a server repeatedly whether it answers, in a thread of its own, so
that the working thread does not wait for it.

A consumer that gets no record cannot tell whether there is none, and an idle session does not
notice that its server is away. (The admin client's futures are not used: when an answer came after
the request's timeout, librdkafka 2.16 ended the process with an assertion.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from common import clock
from common.errors import ReoError

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")


class Probe(Generic[Answer]):
    """`ask` returns an answer or raises; without one for `patience_s` the server is away."""

    def __init__(
        self,
        ask: Callable[[], Answer],
        initial: Answer,
        patience_s: float,
    ) -> None:
        self.ask = ask
        self.answer = initial
        """The last one."""
        self.patience_s = patience_s
        self.answered_at = clock.monotonic()
        self.is_closed = False
        self.wake_event = clock.create_event()

    def start(self, name: str, every_s: float) -> None:
        """Start asking."""
        clock.start_thread(partial(self._run, every_s), name)

    @property
    def has_answered(self) -> bool:
        """Whether the last answer is not older than `patience_s`."""
        return self.has_answered_within(self.patience_s)

    def has_answered_within(self, seconds: float) -> bool:
        """Whether the last answer is not older than this."""
        return clock.monotonic() - self.answered_at <= seconds

    def close(self) -> None:
        """Stop asking."""
        self.is_closed = True
        self.wake()

    def wake(self) -> None:
        """Ask now: there is something new to ask for."""
        self.wake_event.set()

    def run_once(self) -> None:
        """Ask once. An error is only logged: the working thread meets it when it has work to do.
        One that nobody expected must not end the thread: nobody would ask any more.
        """
        try:
            self.answer = self.ask()
            self.answered_at = clock.monotonic()
        except ReoError as away:
            log.debug("no answer: %s", away)
        except Exception:
            log.exception("no answer: unexpected, a defect of reo or of a library")

    def _run(self, every_s: float) -> None:
        while not self.is_closed:
            self.run_once()
            self.wake_event.wait(every_s)
            self.wake_event.clear()
