"""`reo run deduplicator --stop-at-end`: when has stage two, running alone, copied what there was?

With stage one in the same service, stage one knows: it holds the frontier against the source. Alone, the measure is the
intermediate topics: what they had at the start is behind the group's committed offsets.
"""

from __future__ import annotations

from collections.abc import Iterable

from common import machine, positions
from common.errors import ClusterUnreachable, HangingTransaction
from common.kafka_clients import admin, reader
from common.routes import Place
from common.settings import Settings

EVERY_S = 0.5


class AtEnd:
    """The ends of the intermediate topics at the start, and whether they are reached."""

    def __init__(self, settings: Settings, places: Iterable[Place]) -> None:
        self.reader = reader(settings.destination, settings)
        self.ends = positions.ends(admin(settings.destination, settings), places)
        self.due = 0.0

    def reached(self) -> bool:
        """Whether everything is committed; asks now and then."""
        if machine.monotonic() < self.due:
            return False
        self.due = machine.monotonic() + EVERY_S
        try:
            commits = positions.read_commits(self.reader, self.ends, EVERY_S)
        except (ClusterUnreachable, HangingTransaction):
            return False
        return all(place in commits and commits[place].intermediate_offset >= end for place, end in self.ends.items())
