"""What the log says of a process that does not work for long: why, as /readyz has it, and when it
works again. The processes do not say it themselves: they report the same reason again and again, or
stand in a call.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from common import clock

log = logging.getLogger(__name__)
LONG_S = 30.0
"""A start, a rebalance or a broker that restarts takes less."""


@dataclass(slots=True)
class Wait:
    """Of one process, since it has worked last; on the monotonic clock."""

    since: float
    why: str
    why_since: float
    logged: str = ""
    """The last reason that is in the log."""


class WaitingLog:
    """The processes that do not work now."""

    def __init__(self) -> None:
        self.waits: dict[str, Wait] = {}

    def update(self, waits: Mapping[str, str]) -> None:
        """Log what there is to say now; called repeatedly. `waits`: why each process that is not
        ready does not work.
        """
        now = clock.monotonic()
        for process in sorted(self.waits.keys() - waits.keys()):
            wait = self.waits.pop(process)
            if wait.logged:
                log.info("%s works again, after %.0f s", process, now - wait.since)
        for process, why in waits.items():
            wait = self.waits.setdefault(process, Wait(now, why, now))
            if why != wait.why:
                wait.why, wait.why_since = why, now
            # reasons that take turns are one wait; a new one after that has to last, too
            begun = wait.why_since if wait.logged else wait.since
            if why != wait.logged and now - begun >= LONG_S:
                log.warning("%s has not worked for %.0f s: it %s", process, now - wait.since, why)
                wait.logged = why
