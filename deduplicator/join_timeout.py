"""Whether the group takes this worker in, where nobody would say that it does not.

A broker that does not offer group.protocol=consumer (KIP-848), or has it switched off as 3.9 has, is asked again by librdkafka 2.16 for ever, without an
error and without a line in its log. So a worker that is no member after WITHIN_S, while the cluster answers, says so and ends.
"""

from __future__ import annotations

from common import machine
from common.errors import ClusterUnreachable, SettingsInvalid
from common.group import Group
from deduplicator.intermediate import Intermediate

WITHIN_S = 30.0
"""A member that needs longer is none: joining takes a second, and this protocol does not wait for other members."""
STANDING_S = 5.0
"""It is looked at every second: a process that does not for so long stood still (SIGSTOP, a paused machine), or its cluster was silent."""


class JoinTimeout:
    """Looked at now and then, until the worker is a member for the first time."""

    def __init__(self, group: Group, intermediate: Intermediate) -> None:
        self.group = group
        self.intermediate = intermediate
        self.done = not intermediate.incremental
        self.seen_at = machine.monotonic()
        self.by = self.seen_at + WITHIN_S

    def check(self) -> None:
        """SettingsInvalid when the time is over and the cluster answers; a cluster that is silent is waited for."""
        self.done = self.done or self.intermediate.is_member
        now = machine.monotonic()
        stood_still, self.seen_at = now > self.seen_at + STANDING_S, now
        if self.done or (now < self.by and not stood_still):
            return
        self.by = now + WITHIN_S
        if stood_still:  # it has not waited, and its group has not been asked
            return
        try:
            self.group.assigned()
        except ClusterUnreachable:
            return
        if self.intermediate.topics:
            raise SettingsInvalid(f"deduplicator.group_protocol=consumer: the destination cluster has not taken this worker into group {self.group.name} for "
                                  f"{WITHIN_S:.0f} s. Kafka offers that protocol from 4.0 on: set it to classic, or switch it on there")
