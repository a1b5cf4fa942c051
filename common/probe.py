"""Asks a server again and again whether it is there, in a thread of its own: who works must not wait for one that is not.

A consumer that gets nothing cannot tell whether there is nothing, and an idle session does not notice that its server is away. (Not by futures
of the admin client: when a question's time-out is over and the answer comes late, librdkafka 2.16 was seen to end the process by an assertion.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from common import machine
from common.errors import ReoError

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")


class Probe(Generic[Answer]):
    """`ask` gives the answer or raises; the server is away when none came for `patience_s`. The clock only goes forward."""

    def __init__(self, ask: Callable[[], Answer], nothing: Answer, patience_s: float, clock: Callable[[], float] = machine.monotonic) -> None:
        self.ask = ask
        self.answer = nothing
        """The last one."""
        self.patience_s = patience_s
        self.clock = clock
        self.answered_at = clock()
        self.over = False
        self.woken = machine.event()

    def start(self, name: str, every_s: float) -> None:
        """Ask from now on."""
        machine.background(partial(self._work, every_s), name)

    @property
    def has_answered(self) -> bool:
        """Lately."""
        return self.answered_within(self.patience_s)

    def answered_within(self, seconds: float) -> bool:
        """Whether the last answer is not older."""
        return self.clock() - self.answered_at <= seconds

    def close(self) -> None:
        """Ask no more."""
        self.over = True
        self.wake()

    def wake(self) -> None:
        """There is something new to ask for."""
        self.woken.set()

    def once(self) -> None:
        """Ask; what goes wrong is met by who works, as soon as there is something to do."""
        try:
            self.answer = self.ask()
            self.answered_at = self.clock()
        except ReoError as away:
            log.debug("no answer: %s", away)

    def _work(self, every_s: float) -> None:
        while not self.over:
            self.once()
            self.woken.wait(every_s)
            self.woken.clear()
