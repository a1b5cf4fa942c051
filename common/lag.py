"""Lag in records and in seconds, of one stage.

The seconds are those for which the first record that waits has waited. Nobody reads that record to know; two bounds are known without asking: the age of the
last record that came through (what waits behind it is younger, where timestamps rise), and the time since nothing was seen to wait. The smaller one is
reported. Without the second a topic that is written to once a day would lag by a day for a moment; without the first a process that has just started
would know nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from common.metrics import LAG, LAG_SECONDS
from common.routes import Place


class Lag:
    """What one process reports of its stage."""

    def __init__(self, stage: str, clock: Callable[[], float] = time.time) -> None:
        self.stage = stage
        self.clock = clock
        self.clear: dict[Place, float] = {}
        """When nothing was last seen to wait, Unix time."""

    def report(self, place: Place, records: int, through_ms: int | None) -> float | None:
        """Set both gauges: so many wait, and the timestamp of the last one that came through, in ms, as far as it is known; returns the seconds."""
        now = self.clock()
        if records == 0:
            self.clear[place] = now
        bounds = [now - since for since in (self.clear.get(place), through_ms / 1000 if through_ms is not None else None) if since is not None]
        labels = (self.stage, place.topic, str(place.partition))
        LAG.labels(*labels).set(records)
        if not bounds:
            return None
        LAG_SECONDS.labels(*labels).set(seconds := max(0.0, min(bounds)))
        return seconds
