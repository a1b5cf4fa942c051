"""A timeout for joining the group, where librdkafka reports no error.

If a broker does not support group.protocol=consumer (KIP-848), or has it switched off as 3.9 has,
librdkafka 2.16 retries for ever, without an error and without a log line. So a worker that is not a
member after JOIN_TIMEOUT_S, while the cluster answers, says so and ends.
"""

from __future__ import annotations

from common import clock
from common.errors import ClusterUnreachable, SettingsInvalid
from common.kafka.consumer_group import Group
from deduplicator.intermediate_consumer import Intermediate

JOIN_TIMEOUT_S = 30.0
"""Joining takes a second, and this protocol does not wait for other members."""
STALL_S = 5.0
"""`check` is called every second. If it was not called for so long, the process was stopped
(SIGSTOP, a paused machine), or its cluster did not answer.
"""


class JoinTimeout:
    """Checked regularly, until the worker is a member for the first time."""

    def __init__(self, group: Group, intermediate: Intermediate) -> None:
        self.group = group
        self.intermediate = intermediate
        self.done = not intermediate.incremental
        self.checked_at = clock.monotonic()
        self.deadline = self.checked_at + JOIN_TIMEOUT_S

    def check(self) -> None:
        """SettingsInvalid when the time is over and the cluster answers; while the cluster does not
        answer, the time does not end.
        """
        self.done = self.done or self.intermediate.is_member
        now = clock.monotonic()
        was_stalled, self.checked_at = now > self.checked_at + STALL_S, now
        if self.done or (now < self.deadline and not was_stalled):
            return
        self.deadline = now + JOIN_TIMEOUT_S
        if was_stalled:  # the process did not run, so the group had no time to accept it
            return
        try:
            self.group.list_assigned()
        except ClusterUnreachable:
            return
        if self.intermediate.topics:
            raise SettingsInvalid(
                "deduplicator.group_protocol=consumer: the destination cluster has not accepted"
                f" this worker into group {self.group.name} for {JOIN_TIMEOUT_S:.0f} s. Kafka"
                " supports this protocol from 4.0 on: set it to classic, or enable the protocol on"
                " the brokers"
            )
