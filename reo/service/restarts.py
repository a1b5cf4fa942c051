"""What follows the end of a child, and when it is started again. The simulator's processes follow
the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from common import clock
from common.errors import ClusterUnreachable, Fenced, list_stop_codes

BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 30.0
BACKOFF_RESET_S = 60.0
WATCHDOG_INTERVAL_S = 5.0
OUTAGE_EXIT_CODE = ClusterUnreachable.exit_code
"""A cluster that does not answer at the start of the service means a wrong address; later it means
an outage, and a restart waits for it.
"""
FENCED_MAX, FENCED_WINDOW_S = 3, 300.0
"""A process is fenced once by a pause of its own that was longer than its transactions last, and
again and again by another service with its name, which restarts in the same way. The first of the
two that is fenced so often within this time ends, and the other one goes on.
"""


@dataclass(slots=True)
class Restarts:
    """The restarts of one child: each backoff is twice the last one, until the child has run for
    BACKOFF_RESET_S.
    """

    start_at: float = 0.0
    """When to start it again, in seconds of the monotonic clock."""
    backoff_s: float = BACKOFF_FIRST_S
    fenced_at: list[float] = field(default_factory=list)

    def is_end_of_service(self, code: int) -> bool:
        """Whether the service ends because the child has ended with this exit code; otherwise the
        child is started again.
        """
        if code == Fenced.exit_code:
            now = clock.monotonic()
            self.fenced_at = [*self.fenced_at, now][-FENCED_MAX:]
            return len(self.fenced_at) == FENCED_MAX and now - self.fenced_at[0] < FENCED_WINDOW_S
        return code in list_stop_codes() and code != OUTAGE_EXIT_CODE

    def start_later(self) -> float:
        """It has ended; returns the seconds until its start."""
        waits_s = self.backoff_s
        self.start_at = clock.monotonic() + waits_s
        self.backoff_s = min(BACKOFF_MAX_S, waits_s * 2)
        return waits_s

    def on_running(self, started: float) -> None:
        """It runs, since this Unix time."""
        if clock.time() - started > BACKOFF_RESET_S:
            self.backoff_s = BACKOFF_FIRST_S
