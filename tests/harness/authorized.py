"""A cluster with an authorizer: who may do what is exactly what its ACLs say. The listener without
a name is the judge's, who may do everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from tests.harness.kafka import ROOT, UNFENCED, Cluster, until
from tests.harness.secured import PLAIN
from tools.demo.broker import Broker, free_port

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PASSWORD = "secret-of-"


class Authorized:
    """A single-node cluster; `at` is where principals enter with their name and `PASSWORD` + name
    (SASL PLAIN). `open_without_acls`: a topic without ACLs is everybody's.
    """

    def __init__(
        self, folder: Path, principals: Iterable[str], open_without_acls: bool = False
    ) -> None:
        port = free_port()
        broker = Broker(folder, ROOT / "jars" / "broker")
        ways = f"PLAINTEXT://127.0.0.1:{broker.port},NAMED://127.0.0.1:{port}"
        users = " ".join(f'user_{name}="{PASSWORD}{name}"' for name in principals)
        broker.settings = UNFENCED | {
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": str(open_without_acls).lower(),
            "listeners": f"{ways},CONTROLLER://127.0.0.1:{broker.controller_port}",
            "advertised.listeners": ways,
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,NAMED:SASL_PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.named.plain.sasl.jaas.config": f"{PLAIN} required {users};",
        }
        self.at = f"127.0.0.1:{port}"
        self.broker = broker.start()
        self.cluster = Cluster(self.broker)

    def ready(self) -> Cluster:
        """Wait until it answers."""
        self.broker.wait()
        return self.cluster

    def access(self, principal: str) -> dict[str, str]:
        """The settings, without their side, with which a principal enters."""
        return {
            "bootstrap_servers": self.at,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": principal,
            "sasl_password": PASSWORD + principal,
        }

    def allow(self, bindings: Iterable[AclBinding]) -> None:
        """Give, all in one request."""
        wanted = list(bindings)
        for future in self.cluster.admin.create_acls(wanted).values():
            future.result()
        if wanted:  # the broker hears of what its controller has taken, all of a request at once
            until(lambda: self._has(wanted[-1]), "the broker has the ACLs")

    def forbid(self, binding: AclBinding) -> None:
        """Take away what was given."""
        for future in self.cluster.admin.delete_acls([_filter(binding)]).values():
            assert len(list(future.result())) == 1, "there was nothing to take away"
        until(lambda: not self._has(binding), "the broker has the ACL no more")

    def _has(self, binding: AclBinding) -> bool:
        """Whether the authorizer knows of it."""
        return bool(self.cluster.admin.describe_acls(_filter(binding)).result())


def _filter(binding: AclBinding) -> AclBindingFilter:
    """What fits this ACL only."""
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )


def acl(
    principal: str, resource: str, name: str, operation: str, prefixed: bool = False
) -> AclBinding:
    """One ACL, by Kafka's words for it."""
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    return AclBinding(
        ResourceType[resource],
        name,
        pattern,
        f"User:{principal}",
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )
