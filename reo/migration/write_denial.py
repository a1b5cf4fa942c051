"""The DENY of `reo cutover`: an ACL at the source that denies everybody to write to a topic. It
can be taken away again.

A DENY wins over every ALLOW, on the next produce request. What it does not stop: a super user, and
the end of a transaction that is open. `User:*` from every host on the literal topic is used for
nothing else here, so the ACL itself tells that it is this DENY, and nothing is stored about it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient

from common import clock
from common.errors import MoveRefused, ReoError
from common.routes import name_some
from common.settings.clusters import Cluster
from reo.migration.acl_client import AclClient, build_topic_acl

HEARD_S = 5.0
"""By then every broker follows a new ACL."""


def build_deny_acl(topic: str) -> AclBinding:
    """The ACL that denies everybody to write to a topic."""
    return build_topic_acl(topic, "User:*", "*", AclOperation.WRITE, AclPermissionType.DENY)


class WriteDenial:
    """Denies writes to topics, on one cluster."""

    def __init__(self, cluster: Cluster, client: AdminClient) -> None:
        self.acls = AclClient(cluster, client)
        self.denied: list[str] = []
        """The topics to which writes are denied, as far as this process knows."""
        self.added_at_s = 0.0
        """By the monotonic clock."""

    def find_denied(self, topics: Iterable[str]) -> list[str]:
        """The topics among these that have the DENY."""
        return [topic for topic in topics if build_deny_acl(topic) in self.acls.describe(topic)]

    def look_up(self, topics: Iterable[str]) -> list[str]:
        """As `find_denied`, and these are known from now on; none without an authorizer, or
        without the right to see ACLs.
        """
        with suppress(ReoError):
            self.denied = self.find_denied(topics)
        return self.denied

    def check_is_possible(self) -> None:
        """MoveRefused without an authorizer."""
        try:
            self.acls.check_authorizer()
        except MoveRefused as no_authorizer:
            raise MoveRefused(
                f"{no_authorizer}. Stop the producers, and run the command without --deny-writes"
            ) from None

    def add(self, topics: Iterable[str]) -> None:
        """Deny writes to these topics. One that has the DENY keeps it."""
        self.check_is_possible()
        names = sorted(topics)
        self.denied = names  # first: a request without an answer may have been obeyed
        self.acls.create([build_deny_acl(topic) for topic in names])
        self.added_at_s = clock.monotonic()

    def check(self) -> None:
        """MoveRefused when a DENY that this process knows of was removed."""
        if not self._is_heard:
            return
        denied = self.find_denied(self.denied)
        removed = [topic for topic in self.denied if topic not in denied]
        if removed:
            self.denied = denied
            raise MoveRefused(
                f"the DENY to write to {name_some(removed)} was removed while the command relied on"
                " it (`reo cutover back`, or by hand): producers may have written since. Nothing"
                " has moved: run the command again"
            )

    def describe(self) -> str:
        """Whether writes are denied, as far as this process knows."""
        if not self.denied:
            return "writes are not denied at the source"
        names = name_some(self.denied)
        return f"writes to {names} at the source are denied: `reo cutover back` removes the DENY"

    @property
    def is_broken(self) -> bool:
        """Whether what is written now is written in spite of the DENY."""
        return bool(self.denied) and self._is_heard

    @property
    def _is_heard(self) -> bool:
        return clock.monotonic() > self.added_at_s + HEARD_S

    def remove(self, topics: Iterable[str]) -> None:
        """Remove the DENY from these topics."""
        self.acls.delete([build_deny_acl(topic) for topic in topics])
