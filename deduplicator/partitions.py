"""The partitions of the intermediate topics that the group has given to this worker, and what it knows of each.

    the group's callback ──on_assigned──▶ waiting ──start──▶ assigned ──on_revoked──▶ revoked, until `pop_revoked`
                                             ▲                  │
                                             └────reload────┘

The callbacks run inside the consumer's `poll` and do nothing but note: frontiers are read, and first ones committed, by the loop when the poll is
over (`deduplicator.loop`). A partition that waits is not fetched, or what is fetched of it is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from common.frontier import Frontier
from common.routes import Place
from deduplicator.destination_check import Surplus
from deduplicator.partitioner import Partitioner


@dataclass(slots=True)
class AssignedPartition:
    """What a worker holds for one intermediate partition while it owns it."""

    next_offset: int
    frontier: Frontier
    surplus: Surplus | None = None
    partitioner: Partitioner | None = None
    """Where records go, unless the route is one to one."""


class Partitions:
    """Written by the consumer's callbacks and by the loop, in one thread."""

    def __init__(self) -> None:
        self.assigned: dict[Place, AssignedPartition] = {}
        """Those whose frontier is known: records of others are passed over."""
        self.waiting: set[Place] = set()
        """Those whose frontier has to be read, or committed for the first time."""
        self.revoked: set[Place] = set()
        """Those that were given up, or have to begin anew: what belongs to them is to be forgotten."""

    def on_assigned(self, places: Iterable[Place]) -> None:
        """The group has given these to this worker."""
        places = set(places)
        self.on_revoked(places)
        self.waiting |= places

    def on_revoked(self, places: Iterable[Place]) -> None:
        """The group has taken these, or this worker has lost them."""
        for place in places:
            self.assigned.pop(place, None)
            self.waiting.discard(place)
            self.revoked.add(place)

    def start(self, assigned: Mapping[Place, AssignedPartition]) -> None:
        """The frontiers of these are known, and committed."""
        self.waiting -= assigned.keys()
        self.assigned.update(assigned)

    def reload(self) -> None:
        """After a failure the committed frontiers count, as after an assignment."""
        self.on_assigned(list(self.assigned))

    def pop_revoked(self) -> set[Place]:
        """Those that went since this was asked last; a partition that came back is one of them too."""
        revoked, self.revoked = self.revoked, set()
        return revoked
