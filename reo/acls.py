"""`reo acls`: the ACLs of the copied topics at the source and at the destination; `--apply` creates those that the destination lacks.

Nobody is allowed more at the destination than at the source, at any moment:

| ACL at the source | at the destination |
|---|---|
| DENY that covers the topic, by its name, a prefix or `*` | the same DENY on the destination topic alone; before any ALLOW |
| ALLOW of Read, Describe, DescribeConfigs on the topic by its name | the same ALLOW |
| ALLOW of anything else by its name | only with `--with-write`: a second writer breaks a copy that goes on |
| ALLOW by a prefix or `*` | left out: it covers other topics too |
| the fence of `reo cutover run` | left out: it is there for the source alone |
| DENY that would stop the service itself | left out, and with it every ALLOW of that topic |

A route to a shared destination topic is left out: who may read one source would read the others. ACLs that only the
destination has stay. Groups, transactional ids and the cluster have ACLs of their own, which are not looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import orjson
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ConfigResource, ResourcePatternType, ResourceType

from common import destination_settings, source_candidates, topics
from common.errors import MoveRefused, ReoError
from common.kafka_clients import REQUEST_TIMEOUT_S, admin, ask_with_retries
from common.routes import Route
from common.settings import Settings
from reo.acl_client import AclClient, on_topic
from reo.fence import fence_acl
from reo.output import align_columns

READING = (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
OF_THE_SERVICE = (AclOperation.ALL, AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
OPEN_WITHOUT_ACLS = "allow.everyone.if.no.acl.found"
WITH_WRITE = "only with --with-write: another writer breaks a copy that goes on"


@dataclass(frozen=True, slots=True)
class AclRow:
    """One ACL of either side; `new` is the one to create at the destination."""

    side: str
    acl: AclBinding
    new: AclBinding | None
    why: str

    def to_dict(self) -> dict[str, object]:
        """For JSON, in Kafka's words."""
        return {"cluster": self.side, "topic": self.acl.name, "pattern": _word(self.acl.resource_pattern_type), "principal": self.acl.principal,
                "host": self.acl.host, "operation": _word(self.acl.operation), "permission": _word(self.acl.permission_type),
                "created_as": None if self.new is None else self.new.name, "why": self.why}

    def cells(self) -> tuple[str, ...]:
        """For people."""
        name = self.acl.name if self.acl.resource_pattern_type == ResourcePatternType.LITERAL else f"{self.acl.name}… (prefix)"
        what = f"create on {self.new.name}" if self.new else self.why
        return (self.side, name, self.acl.principal, self.acl.host, _word(self.acl.permission_type), _word(self.acl.operation), what)


class AclComparison:
    """The ACLs of all routes on both sides, at the time of its creation."""

    def __init__(self, settings: Settings, with_write: bool) -> None:
        self.settings = settings
        self.with_write = with_write
        source_admin, self.destination_admin = admin(settings.source, settings), admin(settings.destination, settings)
        self.source, self.destination = AclClient(settings.source, source_admin), AclClient(settings.destination, self.destination_admin)
        self.rows = [row for route in topics.describe_sources(settings, source_admin, settings.number("connect_timeout_s")) for row in self._compare(route)]

    @property
    def new_acls(self) -> list[AclBinding]:
        """What the destination lacks."""
        return list(dict.fromkeys(row.new for row in self.rows if row.new))

    def apply(self) -> None:
        """Create what the destination lacks: first every DENY, and when the cluster has them, every ALLOW."""
        for permission in (AclPermissionType.DENY, AclPermissionType.ALLOW):
            self.destination.create([acl for acl in self.new_acls if acl.permission_type == permission])

    def _compare(self, route: Route) -> list[AclRow]:
        at_source = self.source.describe(route.source_topic, ResourcePatternType.MATCH)
        covering = self.destination.describe(route.destination_topic, ResourcePatternType.MATCH)
        there = self.destination.describe(route.destination_topic)
        rows = [self._decide(route, acl, there) for acl in sorted(at_source, key=lambda acl: (acl.permission_type == AclPermissionType.ALLOW, str(acl)))]
        is_open = any(row.new for row in rows) and not covering and self._is_open_without_acls()
        lacks_deny = any(row.acl.permission_type == AclPermissionType.DENY and row.new is None and row.why.startswith("left out: it would") for row in rows)
        if is_open:
            why = (f"left out: the destination sets {OPEN_WITHOUT_ACLS}; where it is true, the topic's first ACL takes it from everybody else, the "
                   "service too: create the service's own ACLs first")
            rows = [AclRow(row.side, row.acl, None, why if row.new else row.why) for row in rows]
        elif lacks_deny:
            why = "left out: a DENY of this topic cannot be created"
            rows = [AclRow(row.side, row.acl, None, why) if row.new and row.acl.permission_type == AclPermissionType.ALLOW else row for row in rows]
        copied = {on_topic(acl, route.destination_topic) for acl in at_source}
        return rows + [AclRow("destination", acl, None, "here only: stays") for acl in covering if acl not in copied]

    def _decide(self, route: Route, acl: AclBinding, there: Sequence[AclBinding]) -> AclRow:
        """One ACL of the source."""
        new = on_topic(acl, route.destination_topic)
        own = f"User:{self.settings.destination.security.sasl_username}"
        why = ""
        if new in there:
            why = "the destination has it"
        elif acl == fence_acl(route.source_topic):
            why = "left out: the fence of `reo cutover run`"
        elif route.shared:
            why = "left out: the destination topic is shared with other sources"
        elif acl.permission_type == AclPermissionType.DENY:
            if acl.principal in ("User:*", own) and acl.operation in OF_THE_SERVICE:
                why = f"left out: it would stop the service ({own if own != 'User:' else 'its principal'}), so no ALLOW of this topic is created either"
        elif acl.resource_pattern_type != ResourcePatternType.LITERAL or acl.name != route.source_topic:
            why = "left out: it covers other topics too"
        elif acl.operation not in READING and not self.with_write:
            why = f"left out: {WITH_WRITE}"
        return AclRow("source", acl, None if why else new, why)

    def _is_open_without_acls(self) -> bool:
        """Whether everybody may use a topic without ACLs, or may: a broker does not report the value of an authorizer's configuration that is set (4.3)."""
        def ask() -> bool:
            broker = self.destination_admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S).result().controller
            resource = ConfigResource(ResourceType.BROKER, str(broker.id))
            entries = self.destination_admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource].result()
            return OPEN_WITHOUT_ACLS in entries and str(entries[OPEN_WITHOUT_ACLS].value).lower() != "false"
        return ask_with_retries(f"reading {OPEN_WITHOUT_ACLS} of the destination cluster", REQUEST_TIMEOUT_S, ask)


def _word(value: object) -> str:
    """Kafka's word for a kind of ACL."""
    return str(getattr(value, "name", value))


def command(settings: Settings, apply: bool, with_write: bool, as_json: bool) -> int:
    """The sub-command: exit code 0 also when ACLs are missing; with `--apply` only when all that can be created is there."""
    try:
        destination_settings.refuse_command(settings, "reo acls", "there is no destination topic")
        settings = source_candidates.select_answering(settings)
        comparison = AclComparison(settings, with_write)
        if apply:
            comparison.apply()
            remaining = AclComparison(settings, with_write).new_acls
            if remaining:
                raise MoveRefused(f"these ACLs are missing after the change, since the source's were changed meanwhile: {remaining}. Run the command again")
    except ReoError as error:
        print(f"reo acls: {error}", file=sys.stderr)
        return error.exit_code
    new = len(comparison.new_acls)
    if as_json:
        print(orjson.dumps({"applied": apply and new > 0, "acls": [row.to_dict() for row in comparison.rows]}).decode())
        return 0
    if comparison.rows:
        head = ("cluster", "topic", "principal", "host", "permission", "operation", "at the destination")
        print("\n".join(align_columns([head, *(row.cells() for row in comparison.rows)])))
    print(f"ACLs created: {new}" if apply and new else f"ACLs to be created: {new}; `reo acls --apply` creates them" if new else "there is nothing to create")
    return 0
