"""What a start asks of the destination: who has the frontiers, and what is there of the records.

`Keeper` is all that `deduplicator.start` knows of it, as `deduplicator.destination.Destination` is all that the loop knows. For topics the group's commits are
the frontiers, and the records are read (`KafkaKeeper`). For tables both are in the database (`deduplicator.tables`), and the group's commits repeat them.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import NamedTuple, Protocol

from common import machine, positions, topics
from common.errors import ClusterUnreachable, DestinationTruncated, HangingTransaction
from common.frontier import Frontier
from common.group import Group
from common.kafka_clients import admin, reader
from common.positions import Committed
from common.pulse import Pulse
from common.routes import Place, Route
from common.settings import Settings
from deduplicator.check import Surplus, held_against_data
from deduplicator.destination import Output

log = logging.getLogger(__name__)
BEYOND_TIMEOUT_S = 20
"""How long after the transaction time-out offsets may stay undecided: the coordinator looks for expired ones every 10 s."""
Checked = tuple[dict[Place, Output], dict[Place, Surplus]]
"""By destination partition: where the output stands, and what is there beyond the frontier."""


class Found(NamedTuple):
    """The frontiers of some intermediate topics."""

    commits: dict[Place, Committed]
    """Of all their partitions, where there is one."""
    again: AbstractSet[Place]
    """Of the partitions that were asked for, those that have to be committed again as they are, before anything else."""


class Keeper(Protocol):
    """Waits while the destination is silent; a Stop when what is there cannot be gone on from."""

    def has_begun(self) -> bool:
        """Whether this service has a frontier, of whatever partition."""

    def found(self, wanted: Collection[Place]) -> Found:
        """What is committed; the wanted intermediate partitions are this worker's from now on."""

    def leads_to(self, routes: Collection[Route]) -> dict[str, topics.Topic] | None:
        """By intermediate topic, where its records go; None when a topic has to be made first."""

    def ends(self, outputs: Iterable[Place]) -> dict[Place, int]:
        """The next offset of each destination partition; 0 for one that never had a record."""

    def checked(self, frontiers: Mapping[Place, Frontier]) -> Checked:
        """The frontiers of destination partitions held against the data."""


class InGroup:
    """The frontiers that are the group's commits, and the clients to ask with."""

    def __init__(self, settings: Settings, pulse: Pulse) -> None:
        self.settings = settings
        self.pulse = pulse
        self.reader = reader(settings.destination, settings)
        self.admin = admin(settings.destination, settings)
        self.group = Group(settings, self.admin)
        self.undecided_s = settings.number("deduplicator.transaction_timeout_ms") / 1000 + BEYOND_TIMEOUT_S

    def described(self, names: Collection[str]) -> dict[str, topics.Topic]:
        """Those of these topics of the destination cluster that are there."""
        return topics.look_up(self.settings.destination, self.admin, names)

    def places(self, names: Collection[str]) -> list[Place]:
        """Their partitions."""
        return [Place(name, partition) for name, topic in self.described(names).items() for partition in range(topic.partitions)]

    def has_frontiers(self) -> bool:
        """Whether the group has a frontier, of whatever partition."""
        while True:
            self.pulse.beat()
            try:
                return bool(self.group.frontiers())
            except ClusterUnreachable as silent:
                self.pulse.wait("destination")
                log.warning("whether there are frontiers cannot be read yet: %s", silent)
                machine.sleep(0.2)

    def commits(self, names: Collection[str]) -> dict[Place, Committed]:
        """Every commit of the group on these intermediate topics; HangingTransaction when they stay undecided too long."""
        undecided_since: float | None = None
        while True:
            self.pulse.beat()
            try:
                places = self.places(names)
                try:
                    return positions.read_commits(self.reader, places)
                except (ClusterUnreachable, HangingTransaction):
                    self.group.commits(places)  # a consumer says of undecided offsets what it says of a silent cluster: no answer in time
                    undecided_since = None
                    raise
            except HangingTransaction as hanging:
                undecided_since = undecided_since or machine.monotonic()
                if machine.monotonic() > undecided_since + self.undecided_s:
                    raise HangingTransaction(f"{hanging} (undecided for {self.undecided_s:.0f} s)") from None
                log.warning("the frontier cannot be read yet: %s", hanging)
                self.pulse.wait("transaction")
            except ClusterUnreachable as silent:
                undecided_since = None
                log.warning("the frontier cannot be read yet: %s", silent)
                self.pulse.wait("destination")
            machine.sleep(0.2)


class KafkaKeeper:
    """Of destination topics."""

    def __init__(self, in_group: InGroup) -> None:
        self.in_group = in_group

    def has_begun(self) -> bool:
        """By the group's commits."""
        return self.in_group.has_frontiers()

    def found(self, wanted: Collection[Place]) -> Found:
        """The group's commits."""
        return Found(self.in_group.commits({place.topic for place in wanted}), frozenset())

    def leads_to(self, routes: Collection[Route]) -> dict[str, topics.Topic] | None:
        """The destination topics."""
        names = {name for route in routes for name in (route.intermediate_topic, route.destination_topic)}
        described = self.in_group.described(names)
        return None if len(described) < len(names) else {route.intermediate_topic: described[route.destination_topic] for route in routes}

    def ends(self, outputs: Iterable[Place]) -> dict[Place, int]:
        """As the brokers say."""
        return positions.ends(self.in_group.admin, outputs)

    def checked(self, frontiers: Mapping[Place, Frontier]) -> Checked:
        """Nothing is called missing while something is undecided.

        A coordinator writes the markers of a transaction one after the other, so right after a commit a frontier can be readable
        and its records not yet (found by `proof`).
        """
        client = self.in_group.admin
        names = {place.topic for place in frontiers}
        compacted = {name for name in names if topics.compacted(client, self.in_group.settings.destination, name)}
        undecided_s = self.in_group.undecided_s
        deadline = machine.monotonic() + undecided_s
        while True:
            self.in_group.pulse.beat()
            decided = True
            try:
                beginnings, ends = (ask(client, frontiers) for ask in (positions.beginnings, positions.ends))
                decided = positions.ends(client, frontiers, committed_only=True) == ends
                return held_against_data(self.in_group.reader, counted_from_here(frontiers, ends), beginnings, ends, compacted, self.in_group.pulse.beat)
            except ClusterUnreachable as silent:
                if decided:
                    log.warning("the destination cannot be held against the frontier yet: %s", silent)
                    self.in_group.pulse.wait("destination")
                    deadline = machine.monotonic() + undecided_s
                    continue
                missing = str(silent)  # behind an open transaction nothing is handed out, and no end of the partition is said
            except DestinationTruncated as truncated:
                if decided:
                    raise
                missing = str(truncated)
            where = ", ".join(sorted(names))
            if machine.monotonic() > deadline:
                raise HangingTransaction(f"a transaction on {where} stays open for more than {undecided_s:.0f} s, and with it: {missing}. "
                                         "`reo recover` names the command that aborts it; then start again")
            log.info("waiting for a transaction on %s to be decided: %s", where, missing)
            self.in_group.pulse.wait("transaction")
            machine.sleep(0.2)


def counted_from_here(frontiers: Mapping[Place, Frontier], ends: Mapping[Place, int]) -> dict[Place, Frontier]:
    """A route that was not one to one before has not counted its output: what is there is taken as it is, once."""
    found = dict(frontiers)
    for place, frontier in frontiers.items():
        if frontier.sent < 0:
            log.warning("%s was not this route's alone before: what is there cannot be checked, and is counted from now on", place)
            found[place] = replace(frontier, destination_known=ends[place] - 1, sent=0, last_written=None)
    return found
