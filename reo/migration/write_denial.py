"""The DENY of `reo cutover`: an ACL at the source that denies everybody to write to a topic. It
can be taken away again.

A DENY wins over every ALLOW, on the next produce request. What it does not stop: a super user, and
the end of a transaction that is open (a producer can still commit or abort it). `User:*` from every
host on the literal topic is used for nothing else here, so the ACL itself tells that it is this
DENY: nothing is stored about it.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient

from common.errors import MoveRefused
from common.settings.clusters import Cluster
from reo.migration.acl_client import AclClient, build_topic_acl


def build_deny_acl(topic: str) -> AclBinding:
    """The ACL that denies everybody to write to a topic."""
    return build_topic_acl(topic, "User:*", "*", AclOperation.WRITE, AclPermissionType.DENY)


class WriteDenial:
    """Denies writes to topics, on one cluster."""

    def __init__(self, cluster: Cluster, client: AdminClient) -> None:
        self.acls = AclClient(cluster, client)

    def find_denied(self, topics: Iterable[str]) -> list[str]:
        """The topics among these that have the DENY."""
        return [topic for topic in topics if build_deny_acl(topic) in self.acls.describe(topic)]

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
        self.acls.create([build_deny_acl(topic) for topic in topics])

    def remove(self, topics: Iterable[str]) -> None:
        """Remove the DENY from these topics."""
        self.acls.delete([build_deny_acl(topic) for topic in topics])
