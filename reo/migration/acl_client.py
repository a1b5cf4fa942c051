"""The ACLs of one cluster: describes, creates and deletes them, and waits until the cluster says
so. For `reo acls` and the DENY of `reo cutover`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from common import clock
from common.errors import AccessRefused, ClusterUnreachable, MoveRefused
from common.kafka.cluster_metadata import read_brokers
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S, ask_with_retries
from common.settings.clusters import Cluster

Result = TypeVar("Result")
PAUSE_S = 0.1
AUTHORIZER = "authorizer.class.name"


def build_topic_acl(
    name: str,
    principal: str,
    host: str,
    operation: AclOperation | str | int,
    permission: AclPermissionType | str | int,
) -> AclBinding:
    """An ACL on exactly this topic."""
    literal = ResourceType.TOPIC, name, ResourcePatternType.LITERAL
    return AclBinding(*literal, principal, host, operation, permission)


def copy_acl_to_topic(acl: AclBinding, name: str) -> AclBinding:
    """The same ACL on exactly this topic."""
    return build_topic_acl(name, acl.principal, acl.host, acl.operation, acl.permission_type)


class AclClient:
    """Errors: AccessRefused with the ACL that is needed, MoveRefused when the cluster has no
    authorizer.
    """

    def __init__(self, cluster: Cluster, client: AdminClient) -> None:
        self.cluster = cluster
        self.client = client

    def read_broker_config(self, name: str) -> str | None:
        """A configuration of a broker, None when the broker does not have it. AccessRefused without
        DescribeConfigs on the cluster.
        """

        def ask() -> str | None:
            broker = min(read_brokers(self.client, REQUEST_TIMEOUT_S).brokers)
            resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
            answers = self.client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
            entries = answers[resource].result()
            return str(entries[name].value) if name in entries else None

        return ask_with_retries(
            f"reading {name} of the {self.cluster.name} cluster", REQUEST_TIMEOUT_S, ask
        )

    def check_authorizer(self) -> None:
        """MoveRefused when the cluster has no authorizer. A client that may not read a broker's
        configuration is told nothing: there is one. (The client's answer to a DescribeAcls without
        an authorizer is an empty list, confluent-kafka 2.16.)
        """
        with suppress(AccessRefused):
            if not self.read_broker_config(AUTHORIZER):
                raise self._build_no_authorizer_error()

    def describe(
        self, name: str | None, pattern: ResourcePatternType = ResourcePatternType.LITERAL
    ) -> list[AclBinding]:
        """The ACLs of a topic (None: of any); with ResourcePatternType.MATCH also those of prefixes
        and wildcards that it has.
        """
        anyone: Any = None  # as the filter takes it, whatever its type hints say
        of_anyone = (anyone, anyone, AclOperation.ANY, AclPermissionType.ANY)
        acls = AclBindingFilter(ResourceType.TOPIC, name or anyone, pattern, *of_anyone)
        return self._ask(
            "Describe",
            lambda: list(
                self.client.describe_acls(acls, request_timeout=REQUEST_TIMEOUT_S).result()
            ),
        )

    def create(self, acls: Sequence[AclBinding]) -> None:
        """Create these; one that exists stays. Returns when the cluster has them."""
        self._change(acls, acls, self.client.create_acls, is_created=True)

    def delete(self, acls: Sequence[AclBinding]) -> None:
        """Delete exactly these. Returns when the cluster has none of them."""
        filters = [
            AclBindingFilter(
                acl.restype,
                acl.name,
                acl.resource_pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for acl in acls
        ]
        self._change(acls, filters, self.client.delete_acls, is_created=False)

    def _change(
        self,
        acls: Sequence[AclBinding],
        asked: Sequence[Any],
        request: Callable[..., Mapping[Any, Future[Any]]],
        is_created: bool,
    ) -> None:
        """The controller answers; the broker that is asked hears of it a moment later."""
        answers = request(list(asked), request_timeout=REQUEST_TIMEOUT_S) if acls else {}
        for future in answers.values():
            self._ask("Alter", future.result)
        deadline = clock.monotonic() + REQUEST_TIMEOUT_S
        for acl in acls:
            while (acl in self.describe(acl.name)) != is_created:
                if clock.monotonic() > deadline:
                    raise ClusterUnreachable(
                        f"the {self.cluster.name} cluster has changed its ACLs"
                        f" {REQUEST_TIMEOUT_S:.0f} s ago, and the broker that is asked does not"
                        " know it yet. Run the command again"
                    )
                clock.sleep(PAUSE_S)

    def _build_no_authorizer_error(self) -> MoveRefused:
        return MoveRefused(
            f"the {self.cluster.name} cluster has no authorizer ({AUTHORIZER}), so it has no ACLs:"
            " nobody can be allowed or denied anything there"
        )

    def _ask(self, operation: str, ask: Callable[[], Result]) -> Result:
        def ask_cluster() -> Result:
            try:
                return ask()
            except KafkaException as failed:
                if failed.args[0].code() == KafkaError.SECURITY_DISABLED:
                    raise self._build_no_authorizer_error() from None
                raise

        try:
            return ask_with_retries(
                f"the ACLs of the {self.cluster.name} cluster", REQUEST_TIMEOUT_S, ask_cluster
            )
        except AccessRefused as refused:
            principal = self.cluster.security.sasl_username or "…"
            raise AccessRefused(
                f"{refused}. ACLs need {operation} on the cluster: kafka-acls.sh --bootstrap-server"
                f" {self.cluster.bootstrap_servers} --add --allow-principal User:{principal}"
                f" --operation {operation} --cluster",
                is_explained=True,
            ) from None
