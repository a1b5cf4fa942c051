"""Which ACLs `reo acls` creates, without brokers; with them: `tests/broker/test_acls.py`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
)

from common.kafka import source_topics
from common.routes import SAME, Route
from common.settings import load
from reo.migration import acls
from reo.migration.acl_client import build_topic_acl
from reo.migration.acls import AclComparison


class FakeAcls:
    """Those of both clusters: the source's topic has an ALLOW and a DENY."""

    def __init__(self, cluster: Any, _: object) -> None:
        self.cluster = cluster

    def check_authorizer(self) -> None:
        """There is one."""

    def describe(
        self, name: str, _: ResourcePatternType = ResourcePatternType.LITERAL
    ) -> list[AclBinding]:
        """Of a topic."""
        if self.cluster.name == "destination":
            return []
        return [
            build_topic_acl(name, f"User:{who}", "*", AclOperation.READ, permission)
            for who, permission in (
                ("shop", AclPermissionType.ALLOW),
                ("guest", AclPermissionType.DENY),
            )
        ]

    def read_broker_config(self, _: str) -> str:
        """Nobody may use a topic without ACLs."""
        return "false"


@pytest.mark.parametrize(
    ("mapping", "shared", "created"),
    [
        (SAME, False, ["User:guest", "User:shop"]),
        ("key", False, ["User:guest"]),
        (SAME, True, ["User:guest"]),
    ],
)
def test_who_may_read_a_source_may_read_no_more(
    monkeypatch: pytest.MonkeyPatch, mapping: str, shared: bool, created: list[str]
) -> None:
    """A destination topic may have records of other sources, which these settings need not name:
    only a DENY is created there.
    """
    route = Route("orders", "all", "all-proxy", mapping, shared=shared)
    monkeypatch.setattr(acls, "AclClient", FakeAcls)
    monkeypatch.setattr(acls, "create_admin_clients", lambda *_: (None, None))
    monkeypatch.setattr(source_topics, "describe_sources", lambda *_: {route: SimpleNamespace()})
    settings = load(
        {
            "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
            "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
            "REO_SOURCE_TOPIC": "orders",
        }
    )
    comparison = AclComparison(settings, with_write=False)
    assert [acl.principal for acl in comparison.new_acls] == created
    assert [row.reason for row in comparison.rows if row.new is None] == [
        "left out: the destination topic may have other records"
    ] * (2 - len(created))
