"""Lag in records and in seconds, of one stage.

The seconds are those for which the first record that waits has waited. Nobody reads that record to know; two bounds are known without asking: the age of the
last record that came through (what waits behind it is younger, where timestamps rise), and the time since nothing was seen to wait. The smaller one is
reported. Without the second a topic that is written to once a day would lag by a day for a moment; without the first a process that has just started
would know nothing.

While a server does not answer nobody knows what waits. The records stay as they were last known; the seconds grow from the last report on (`grow`): what
was not seen to wait then may wait since.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from common import machine
from common.metrics import LAG, LAG_SECONDS
from common.routes import Place


class Lag:
    """What one process reports of its stage."""

    def __init__(self, stage: str, clock: Callable[[], float] = machine.time) -> None:
        self.stage = stage
        self.clock = clock
        self.clear: dict[Place, float] = {}
        """When nothing was last seen to wait, Unix time."""
        self.through_ms: dict[Place, int | None] = {}
        """As in the last report."""

    def report(self, place: Place, records: int, through_ms: int | None) -> float | None:
        """Set both gauges: so many wait, and the timestamp of the last one that came through, in ms, as far as it is known; returns the seconds."""
        now = self.clock()
        if records == 0:
            self.clear[place] = now
        self.through_ms[place] = through_ms
        LAG.labels(self.stage, place.topic, str(place.partition)).set(records)
        return self._set_seconds(place, now)

    def grow(self) -> None:
        """Nobody knows what waits now."""
        for place in self.through_ms:
            self._set_seconds(place, self.clock())

    def keep(self, places: Container[Place]) -> None:
        """All others are other processes' from now on."""
        self.through_ms = {place: through_ms for place, through_ms in self.through_ms.items() if place in places}
        self.clear = {place: since for place, since in self.clear.items() if place in places}

    def _set_seconds(self, place: Place, now: float) -> float | None:
        through_ms = self.through_ms[place]
        bounds = [since for since in (self.clear.get(place), through_ms / 1000 if through_ms is not None else None) if since is not None]
        if not bounds:
            return None
        seconds = max(0.0, now - max(bounds))
        LAG_SECONDS.labels(self.stage, place.topic, str(place.partition)).set(seconds)
        return seconds
