"""The fence of `reo cutover`: an ACL at the source that denies everybody to write to a topic. It can be taken away again.

A DENY wins over every ALLOW, on the next produce request. What it does not stop: a super user, and the end of a transaction
that is open (a producer can still commit or abort it). `User:*` from every host on the literal topic is used for nothing
else here, so the ACL itself tells that it is the fence: nothing is stored about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclBinding, AclBindingFilter, AclOperation, AclPermissionType, AdminClient, ResourcePatternType, ResourceType

from common import machine
from common.errors import AccessRefused, ClusterUnreachable, MoveRefused
from common.kafka_clients import REQUEST_TIMEOUT_S, ask_with_retries
from common.source_clusters import Cluster

Result = TypeVar("Result")
PAUSE_S = 0.1


class Fence:
    """The ACLs of the topics to fence, on one cluster."""

    def __init__(self, cluster: Cluster, client: AdminClient) -> None:
        self.cluster = cluster
        self.client = client

    def find_fenced(self, topics: Iterable[str]) -> list[str]:
        """Which of these topics are fenced; MoveRefused when the cluster has no authorizer."""
        fence_of_any = AclBindingFilter(  # None: of any name
            ResourceType.TOPIC, None, ResourcePatternType.LITERAL, "User:*", "*", AclOperation.WRITE, AclPermissionType.DENY)  # type: ignore[arg-type]
        acls = self._ask("reading", lambda: self.client.describe_acls(fence_of_any, request_timeout=REQUEST_TIMEOUT_S).result())
        fenced = {acl.name for acl in acls}
        return [topic for topic in topics if topic in fenced]

    def add(self, topics: Iterable[str]) -> None:
        """Fence these topics; returns when the cluster says that they are. One that is fenced already stays so."""
        wanted = list(topics)
        acls = [AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:*", "*", AclOperation.WRITE, AclPermissionType.DENY)
                for topic in wanted]
        for future in self.client.create_acls(acls, request_timeout=REQUEST_TIMEOUT_S).values():
            self._ask("creating", future.result)
        self._wait(lambda: self.find_fenced(wanted) == wanted)

    def remove(self, topics: Iterable[str]) -> None:
        """Take the fence of these topics away; returns when the cluster says that it is gone."""
        wanted = list(topics)
        filters = [AclBindingFilter(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:*", "*", AclOperation.WRITE, AclPermissionType.DENY)
                   for topic in wanted]
        for future in self.client.delete_acls(filters, request_timeout=REQUEST_TIMEOUT_S).values() if filters else ():
            self._ask("deleting", future.result)
        self._wait(lambda: not self.find_fenced(wanted))

    def _wait(self, condition: Callable[[], bool]) -> None:
        """The controller has answered; the broker that is asked hears of it a moment later."""
        deadline = machine.monotonic() + REQUEST_TIMEOUT_S
        while not condition():
            if machine.monotonic() > deadline:
                raise ClusterUnreachable(f"the {self.cluster.name} cluster has taken the ACLs {REQUEST_TIMEOUT_S:.0f} s ago, and the broker that is asked "
                                         "does not have them yet. Run the command again")
            machine.sleep(PAUSE_S)

    def _ask(self, action: str, ask: Callable[[], Result]) -> Result:
        def ask_cluster() -> Result:
            try:
                return ask()
            except KafkaException as failed:
                if failed.args[0].code() == KafkaError.SECURITY_DISABLED:
                    raise MoveRefused(f"the {self.cluster.name} cluster has no authorizer (authorizer.class.name), so nobody can be denied to write. Stop "
                                         "the producers, and run the command without --fence") from None
                raise
        try:
            return ask_with_retries(f"{action} ACLs of the {self.cluster.name} cluster", REQUEST_TIMEOUT_S, ask_cluster)
        except AccessRefused as refused:
            principal = self.cluster.security.sasl_username or "…"
            raise AccessRefused(f"{refused}. A fence needs Alter on the cluster: kafka-acls.sh --bootstrap-server {self.cluster.bootstrap_servers} --add "
                                f"--allow-principal User:{principal} --operation Alter --cluster", names_what_to_grant=True) from None
