"""`reo acls`: the ACLs of the copied topics at the source and at the destination; `--apply` creates
those that the destination lacks.

Nobody is allowed more at the destination than at the source, at any moment:

    at the source                  at the destination
    DENY, by name, prefix or `*`   the same on the destination topic only; before any ALLOW
    ALLOW to read, by name         the same
    ALLOW of anything else         only with `--with-write`: a second writer breaks a running copy
    ALLOW by a prefix or `*`       left out: it covers other topics too
    the DENY of `reo cutover`      left out: it is for the source only
    DENY that stops the service    left out, and with it every ALLOW of that topic

No ALLOW of a route with a mapping, or with other sources beside it, is created: who may read one
source would read the others. ACLs that only the destination has stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType

from common import source_pool
from common.errors import MoveRefused
from common.kafka import source_topics
from common.kafka.clients import create_admin_clients
from common.routes import Route
from common.settings import Settings, destination_kind
from reo.migration.acl_client import AclClient, copy_acl_to_topic
from reo.migration.write_denial import build_deny_acl
from reo.report import format_table, print_json

READ_OPERATIONS = (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
SERVICE_OPERATIONS = (*READ_OPERATIONS, AclOperation.WRITE, AclOperation.ALL)
OPEN_WITHOUT_ACLS = "allow.everyone.if.no.acl.found"
OPEN = (
    f"left out: the destination sets {OPEN_WITHOUT_ACLS}; where it is true, the topic's first ACL"
    " denies it to all other principals, also the service: create the service's own ACLs first"
)
TITLES = "cluster|topic|principal|host|permission|operation|at the destination"
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY


@dataclass(frozen=True, slots=True)
class AclRow:
    """One ACL of either side; `new` is the one to create at the destination."""

    side: str
    acl: AclBinding
    new: AclBinding | None
    reason: str
    blocks_allows: bool = False
    """A DENY that cannot be created: without it no ALLOW of the topic may be created either."""

    def refuse(self, reason: str) -> AclRow:
        """The same, with nothing to create."""
        return replace(self, new=None, reason=reason) if self.new else self

    def to_dict(self) -> dict[str, object]:
        """As a JSON object, in Kafka's words."""
        return {
            "cluster": self.side,
            "topic": self.acl.name,
            "pattern": _format_word(self.acl.resource_pattern_type),
            "principal": self.acl.principal,
            "host": self.acl.host,
            "operation": _format_word(self.acl.operation),
            "permission": _format_word(self.acl.permission_type),
            "created_as": None if self.new is None else self.new.name,
            "why": self.reason,
        }

    def format_cells(self) -> tuple[str, ...]:
        """As text for a person."""
        is_literal = self.acl.resource_pattern_type == ResourcePatternType.LITERAL
        return (
            self.side,
            self.acl.name if is_literal else f"{self.acl.name}… (prefix)",
            self.acl.principal,
            self.acl.host,
            _format_word(self.acl.permission_type),
            _format_word(self.acl.operation),
            f"create on {self.new.name}" if self.new else self.reason,
        )


class AclComparison:
    """The ACLs of all routes on both sides, at the time of its creation."""

    def __init__(self, settings: Settings, with_write: bool) -> None:
        self.settings = settings
        self.with_write = with_write
        source_admin, destination_admin = create_admin_clients(settings)
        self.source = AclClient(settings.source_cluster, source_admin)
        self.destination = AclClient(settings.destination_cluster, destination_admin)
        for client in (self.source, self.destination):
            client.check_authorizer()
        self.rows = [
            row
            for route in source_topics.describe_sources(
                settings, source_admin, settings.connect_timeout_s
            )
            for row in self._compare(route)
        ]

    @property
    def new_acls(self) -> list[AclBinding]:
        """What the destination lacks."""
        return list(dict.fromkeys(row.new for row in self.rows if row.new))

    def apply(self) -> None:
        """Create what the destination lacks: first every DENY, and when the cluster has them, every
        ALLOW.
        """
        for permission in (DENY, ALLOW):
            self.destination.create(
                [acl for acl in self.new_acls if acl.permission_type == permission]
            )

    def _compare(self, route: Route) -> list[AclRow]:
        name = route.destination_topic
        source_acls = sorted(
            self.source.describe(route.source_topic, ResourcePatternType.MATCH),
            key=lambda acl: (acl.permission_type == ALLOW, str(acl)),
        )
        covering_acls = self.destination.describe(name, ResourcePatternType.MATCH)
        destination_acls = self.destination.describe(name)
        rows = [self._decide(route, acl, destination_acls) for acl in source_acls]
        if any(row.new for row in rows) and not covering_acls and self._is_open_without_acls():
            rows = [row.refuse(OPEN) for row in rows]
        elif any(row.blocks_allows for row in rows):
            why = "left out: a DENY of this topic cannot be created"
            rows = [row.refuse(why) if row.acl.permission_type == ALLOW else row for row in rows]
        copied = {copy_acl_to_topic(acl, name) for acl in source_acls}
        here_only = [acl for acl in covering_acls if acl not in copied]
        return rows + [AclRow("destination", acl, None, "here only: stays") for acl in here_only]

    def _decide(
        self, route: Route, acl: AclBinding, destination_acls: Sequence[AclBinding]
    ) -> AclRow:
        """Decide what happens to one ACL of the source."""
        new = copy_acl_to_topic(acl, route.destination_topic)
        own = f"User:{self.settings.destination_cluster.security.sasl_username}"
        reason, blocks_allows = "", False
        if new in destination_acls:
            reason = "the destination has it"
        elif acl == build_deny_acl(route.source_topic):
            reason = "left out: the DENY of `reo cutover run`"
        elif acl.permission_type == DENY:
            if acl.principal in ("User:*", own) and acl.operation in SERVICE_OPERATIONS:
                who, blocks_allows = "its principal" if own == "User:" else own, True
                reason = (
                    f"left out: it would stop the service ({who}), so no ALLOW of this topic is"
                    " created either"
                )
        elif not route.is_one_to_one:
            reason = "left out: the destination topic may have other records"
        elif (acl.resource_pattern_type, acl.name) != (
            ResourcePatternType.LITERAL,
            route.source_topic,
        ):
            reason = "left out: it covers other topics too"
        elif acl.operation not in READ_OPERATIONS and not self.with_write:
            reason = "left out: only with --with-write: another writer breaks a running copy"
        return AclRow("source", acl, None if reason else new, reason, blocks_allows)

    def _is_open_without_acls(self) -> bool:
        """Whether all principals can use a topic without ACLs, or possibly can: a broker does not
        report a configured value of its authorizer (4.3).
        """
        value = self.destination.read_broker_config(OPEN_WITHOUT_ACLS)
        return value is not None and value.lower() != "false"


def _format_word(value: object) -> str:
    """Kafka's word for a kind of ACL."""
    return str(getattr(value, "name", value))


def run_command(settings: Settings, apply: bool, with_write: bool, as_json: bool) -> int:
    """The command: exit code 0 also when ACLs are missing; with `--apply` only when all ACLs
    that can be created exist.
    """
    destination_kind.refuse_command(settings, "reo acls", "there is no destination topic")
    settings = source_pool.select_answering(settings)
    comparison = AclComparison(settings, with_write)
    if apply:
        comparison.apply()
        if remaining := AclComparison(settings, with_write).new_acls:
            raise MoveRefused(
                "these ACLs are missing after the change, because the source's ACLs changed"
                f" meanwhile: {remaining}. Run the command again"
            )
    new = len(comparison.new_acls)
    if as_json:
        rows = [row.to_dict() for row in comparison.rows]
        print_json({"applied": apply and new > 0, "acls": rows})
        return 0
    if comparison.rows:
        print(format_table(TITLES, [row.format_cells() for row in comparison.rows]))
    to_do = f"ACLs to be created: {new}; `reo acls --apply` creates them"
    print("there is nothing to create" if not new else f"ACLs created: {new}" if apply else to_do)
    return 0
