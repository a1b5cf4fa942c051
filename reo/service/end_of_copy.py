"""`--stop-at-end` of the whole service: when it may end with 0.

Stage one compares the frontiers with the source, and says that everything is copied. But a frontier
says what was copied to a destination that may be gone since; stage two finds that out when it
starts with a partition, and moves the frontier back. So the word of stage one counts only if all
workers of stage two were ready before it made its last plan, and have been ready since. Otherwise
it is asked again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from common import runtime
from common.stage_process import COMPLETE_FILE
from reo.service.deduplicator_stop_at_end import StopAtEnd

log = logging.getLogger(__name__)
CHECK_INTERVAL_S = 0.2


class EndOfCopy:
    """What is known of both stages; every time is of the monotonic clock, in seconds. `alone` is
    for a service without stage one.
    """

    def __init__(
        self, are_workers_ready: Callable[[], bool], alone: StopAtEnd | None = None
    ) -> None:
        self.are_workers_ready = are_workers_ready
        self.alone = alone
        self.ready_since: float | None = None
        """Since when all workers are known to be ready, without a break."""
        self.planned_at: float | None = None
        """When stage one began the plan that left nothing to copy."""
        self.next_check_at = 0.0

    def has_stage_one_copied(self, folder: Path) -> bool:
        """Whether the process of stage one that has just ended has copied everything, as it says in
        the service's folder. Without that, its exit code 0 is that of a SIGTERM.
        """
        said = folder / COMPLETE_FILE
        if not said.exists():
            return False
        self.planned_at = float(said.read_text())
        said.unlink()
        return True

    def check(self) -> Literal["complete", "ask again"] | None:
        """What follows, or None: wait. Looks at the workers at most every CHECK_INTERVAL_S."""
        now = runtime.monotonic()
        if now < self.next_check_at:
            return None
        self.next_check_at = now + CHECK_INTERVAL_S
        if not self.are_workers_ready():
            self.ready_since = None
            return None
        if self.alone is not None:
            return "complete" if self.alone.is_complete() else None
        if self.ready_since is None:
            self.ready_since = now
        if self.planned_at is None:
            return None
        if self.planned_at >= self.ready_since:
            return "complete"
        log.info(
            "stage two was ready only after stage one had compared its frontiers with the source:"
            " stage one compares them again"
        )
        self.planned_at = None
        return "ask again"
