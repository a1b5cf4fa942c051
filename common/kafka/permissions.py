"""The ACLs that each command needs at least, in one table. docs/reference.md shows it, and every
start compares it with the clusters.

A cluster can report what the client's principal may do with a topic or a group (KIP-430). So a
start asks once and names everything that is missing. Otherwise it would meet one refusal after the
other, or none: a refused purge, for example, only lets a topic grow. Transactional ids have no such
report; the permission to create a topic is tested with validate_only; a permission that is removed
while the service runs is looked up when a request fails (`explain_refusals`).

Read, Write and Delete of a topic, and Read of a group, include Describe (Kafka's documentation,
"Authorization and ACLs"): a row has Describe only where nothing else of the same resource is
needed. A cluster that does not report permissions (before 2.3) is not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from common import source_candidates
from common.errors import AccessRefused
from common.kafka import topics
from common.kafka.clients import admin
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S, ask_cluster
from common.routes import SAME, Route
from common.settings import Settings, destination_settings, sync_settings

Command = Literal[
    "run replicator",
    "run deduplicator",
    "verify",
    "recover",
    "recover --apply",
    "topics",
    "topics --apply",
    "offsets translate",
    "offsets translate --apply",
    "status",
    "lag",
    "inspect",
]
Side = Literal["source", "destination"]
Resource = Literal["Topic", "Group", "TransactionalId"]
Operation = Literal[
    "Read", "Write", "Create", "Delete", "Alter", "AlterConfigs", "Describe", "DescribeConfigs"
]
OF_STAGE: dict[str, Command] = {"replicator": "run replicator", "deduplicator": "run deduplicator"}
STAGES = tuple(OF_STAGE.values())
RECOVER: tuple[Command, ...] = ("recover", "recover --apply")
TOPICS: tuple[Command, ...] = ("topics", "topics --apply")
MAKING: tuple[Command, ...] = (*STAGES, "recover --apply", "topics --apply")
OFFSETS: tuple[Command, ...] = ("offsets translate", "offsets translate --apply")
LOOKS: tuple[Command, ...] = ("status", "lag")
PARKED = "parked topic"
ONLY_OF_TOPICS = ("destination.topic", "application-")
"""With `destination.postgresql` there is no destination topic and no transaction."""
REFUSED = "AUTHORIZATION_FAILED"
TRANSACTIONAL_ID = f"TRANSACTIONAL_ID_{REFUSED}"
FLAGS = {
    "Topic": "--topic",
    "Group": "--group",
    "TransactionalId": "--resource-pattern-type prefixed --transactional-id",
}


def of_service(settings: Settings, stages: Iterable[str]) -> list[Command]:
    """What a service with these stages does: the stages, and beside stage two what the settings ask
    for.
    """
    stages = list(stages)
    beside: list[Command] = []
    if "deduplicator" in stages:
        beside += ["offsets translate --apply"] if settings.offsets.sync_groups else []
        beside += ["topics --apply"] if sync_settings.list_synced_configs(settings) else []
    return [*(OF_STAGE[stage] for stage in stages), *beside]


@dataclass(frozen=True, slots=True)
class Permission:
    """One ACL: an operation on the resource that a setting names, for the commands that need it."""

    side: Side
    resource: Resource
    named_by: str
    operation: Operation
    commands: tuple[Command, ...]
    why: str

    def names(self, settings: Settings, routes: Iterable[Route], group: str = "") -> list[str]:
        """The names of the resource in one service; for a topic, one for each route. `group` is the
        one on the command line, if any.
        """
        if self.named_by == PARKED and settings.filter.on_error != "park":
            return []
        field = {
            "source.topic": "source_topic",
            "destination.topic": "destination_topic",
            "intermediate.topic": "intermediate_topic",
            PARKED: "parked_topic",
        }.get(self.named_by)
        if field:
            return list(dict.fromkeys(str(getattr(route, field)) for route in routes))
        if self.named_by == "--group" and not group:
            return []
        return [
            {
                "application": settings.application,
                "application-": f"{settings.application}-",
                "--group": group,
            }[self.named_by]
        ]


PERMISSIONS: tuple[Permission, ...] = (
    Permission(
        "source",
        "Topic",
        "source.topic",
        "Read",
        ("run replicator", "verify", *RECOVER, *OFFSETS, *LOOKS),
        "the records",
    ),
    Permission(
        "source",
        "Topic",
        "source.topic",
        "Describe",
        ("run deduplicator", *TOPICS, "inspect"),
        "its id, partitions and offsets: where a copy begins",
    ),
    Permission(
        "source",
        "Topic",
        "source.topic",
        "DescribeConfigs",
        (*STAGES, "verify", *RECOVER, *TOPICS),
        "what the copy takes over; the largest record; compaction",
    ),
    Permission(
        "source", "Group", "--group", "Describe", OFFSETS, "the offsets that are translated"
    ),
    Permission(
        "destination",
        "Topic",
        "destination.topic",
        "Create",
        (*STAGES, "topics --apply"),
        "only if reo is to make the topic",
    ),
    Permission(
        "destination",
        "Topic",
        "destination.topic",
        "Alter",
        MAKING,
        "only when the source has more partitions: to add them",
    ),
    Permission(
        "destination",
        "Topic",
        "destination.topic",
        "AlterConfigs",
        ("topics --apply",),
        "what is to be made alike; includes DescribeConfigs",
    ),
    Permission(
        "destination",
        "Topic",
        "destination.topic",
        "Describe",
        ("run replicator", *TOPICS, *LOOKS),
        "that it is there and has the partitions",
    ),
    Permission(
        "destination",
        "Topic",
        "destination.topic",
        "DescribeConfigs",
        (*STAGES, "verify", *RECOVER, "topics"),
        "timestamps, the largest record, compaction",
    ),
    Permission(
        "destination",
        "Topic",
        "destination.topic",
        "Read",
        ("run deduplicator", "verify", *RECOVER, *OFFSETS),
        "the check at the start; the records",
    ),
    Permission(
        "destination", "Topic", "destination.topic", "Write", ("run deduplicator",), "the copy"
    ),
    Permission(
        "destination",
        "Topic",
        "intermediate.topic",
        "Create",
        MAKING,
        "only if reo is to make the topic",
    ),
    Permission(
        "destination",
        "Topic",
        "intermediate.topic",
        "Alter",
        MAKING,
        "only when the source has more partitions: to add them",
    ),
    Permission(
        "destination",
        "Topic",
        "intermediate.topic",
        "AlterConfigs",
        ("topics --apply",),
        "what is to be made alike; includes DescribeConfigs",
    ),
    Permission(
        "destination",
        "Topic",
        "intermediate.topic",
        "DescribeConfigs",
        (*STAGES, "recover --apply", "topics"),
        "the largest record",
    ),
    Permission(
        "destination",
        "Topic",
        "intermediate.topic",
        "Read",
        (*STAGES, "recover --apply", *LOOKS, "inspect"),
        "its records; the newest one, live",
    ),
    Permission(
        "destination",
        "Topic",
        "intermediate.topic",
        "Describe",
        ("recover", *OFFSETS, *TOPICS),
        "the group's offsets on it; its partitions",
    ),
    Permission(
        "destination",
        "Topic",
        "intermediate.topic",
        "Write",
        ("run replicator",),
        "what was read at the source",
    ),
    Permission(
        "destination",
        "Topic",
        "intermediate.topic",
        "Delete",
        ("run deduplicator",),
        "records whose copy is committed are deleted",
    ),
    Permission(
        "destination", "Topic", PARKED, "Create", STAGES, "only if reo is to make the topic"
    ),
    Permission("destination", "Topic", PARKED, "Describe", ("run replicator",), "that it is there"),
    Permission(
        "destination",
        "Topic",
        PARKED,
        "Write",
        ("run deduplicator",),
        "records on which the filter fails",
    ),
    Permission(
        "destination",
        "Group",
        "application",
        "Read",
        ("run deduplicator", "recover --apply"),
        "its members; the frontier",
    ),
    Permission(
        "destination",
        "Group",
        "application",
        "Describe",
        ("run replicator", "recover", *OFFSETS, *LOOKS),
        "the frontier",
    ),
    Permission(
        "destination",
        "Group",
        "--group",
        "Describe",
        ("offsets translate",),
        "the offsets that it has there",
    ),
    Permission(
        "destination", "Group", "--group", "Read", ("offsets translate --apply",), "the commit"
    ),
    Permission(
        "destination",
        "TransactionalId",
        "application-",
        "Write",
        ("run deduplicator",),
        "the transactions; all that begin so (prefixed)",
    ),
)


def list_needed(commands: Iterable[Command], to_tables: bool = False) -> list[Permission]:
    """The rows of these commands, without each Describe that another needed row includes."""
    wanted = set(commands)
    rows = [
        row
        for row in PERMISSIONS
        if wanted & set(row.commands) and not (to_tables and row.named_by in ONLY_OF_TOPICS)
    ]
    including = {
        (row.side, row.named_by) for row in rows if row.operation in ("Read", "Write", "Delete")
    }
    return [
        row
        for row in rows
        if row.operation != "Describe" or (row.side, row.named_by) not in including
    ]


class NeededPermission(NamedTuple):
    """A permission, and the name of the resource for which a command needs it."""

    row: Permission
    name: str


def find_missing(
    settings: Settings, commands: Iterable[Command], group: str = ""
) -> list[NeededPermission]:
    """What the clusters do not allow now, as far as they report it."""
    settings = source_candidates.select_answering(settings)
    routes = topics.list_routes(
        settings, admin(settings.source_cluster, settings), settings.connect_timeout_s
    )
    rows = [
        NeededPermission(row, name)
        for row in list_needed(commands, destination_settings.is_outside_kafka(settings))
        for name in row.names(settings, routes, group)
    ]
    missing: list[NeededPermission] = []
    partitions: dict[str, int] = {}
    for cluster in (settings.source_cluster, settings.destination_cluster):
        own = [needed for needed in rows if needed.row.side == cluster.name]
        client = admin(cluster, settings)
        states = ask_cluster(
            cluster, client, settings.connect_timeout_s, partial(_describe_resources, client, own)
        )
        missing += [needed for needed in own if _is_missing(needed, states, partitions)]
        for route in routes if cluster is settings.source_cluster else ():
            source = states.get(("Topic", route.source_topic), ResourceState(None))
            # see `topic_creation.prepare`
            for name in (
                route.intermediate_topic,
                *((route.destination_topic,) if route.mapping == SAME else ()),
            ):
                partitions[name] = max(partitions.get(name, 0), source.partitions)
    return missing


def check_permissions(settings: Settings, *commands: Command, group: str = "") -> None:
    """AccessRefused, with every missing ACL, before anything is done; see also `ask_cluster`."""
    missing = find_missing(settings, commands, group)
    if missing:
        raise AccessRefused(describe_missing(settings, commands, missing), names_what_to_grant=True)


@contextmanager
def explain_refusals(settings: Settings, *commands: Command) -> Iterator[None]:
    """Add the names of missing ACLs to an AccessRefused from inside, when they can be found."""
    try:
        yield
    except AccessRefused as refused:
        # a failed authentication already says so
        if refused.names_what_to_grant or REFUSED not in str(refused):
            raise
        missing = find_missing(settings, commands)
        if TRANSACTIONAL_ID in str(refused):
            missing = [
                NeededPermission(row, name)
                for row in list_needed(commands)
                if row.resource == "TransactionalId"
                for name in row.names(settings, ())
            ]
        if not missing:
            raise
        raise AccessRefused(
            f"{refused}. {describe_missing(settings, commands, missing)}", names_what_to_grant=True
        ) from None


def describe_missing(
    settings: Settings, commands: Sequence[Command], missing: Sequence[NeededPermission]
) -> str:
    """What is missing, and the commands that grant it."""
    parts = []
    for cluster in (settings.source_cluster, settings.destination_cluster):
        own = [(row, name) for row, name in missing if row.side == cluster.name]
        if own:
            principal = (
                f"User:{cluster.security.sasl_username}"
                if cluster.security.sasl_username
                else "<the principal of its certificate>"
            )
            tool = (
                f"kafka-acls.sh --bootstrap-server {cluster.bootstrap_servers} --add"
                f" --allow-principal {principal}"
            )
            what = ", ".join(f"{row.operation} on {row.resource} {name}" for row, name in own)
            how = "; ".join(
                f"{tool} --operation {row.operation} {FLAGS[row.resource]} {name}"
                for row, name in own
            )
            parts.append(
                f"the {cluster.name} cluster does not allow {principal}: {what}. To grant it: {how}"
            )
    return f"`reo {'` and `reo '.join(commands)}` is refused what it needs: {'. '.join(parts)}"


@dataclass(slots=True)
class ResourceState:
    """What a cluster reports about one topic or group; `allowed` is None when it does not report
    permissions.
    """

    allowed: set[str] | None
    partitions: int = 0
    exists: bool = True


def _is_missing(
    needed: NeededPermission,
    states: Mapping[tuple[str, str], ResourceState],
    partitions: Mapping[str, int],
) -> bool:
    """Whether it is not allowed; Create matters only when the topic does not exist, Alter only when
    it has too few partitions.
    """
    state = states.get((needed.row.resource, needed.name))
    if state is None or state.allowed is None or state.exists == (needed.row.operation == "Create"):
        return False
    if needed.row.operation == "Alter" and not 0 < state.partitions < partitions.get(
        needed.name, 0
    ):
        return False
    return needed.row.operation not in state.allowed


def _describe_resources(
    client: AdminClient, rows: Iterable[NeededPermission]
) -> dict[tuple[str, str], ResourceState]:
    """The state of every topic and group of these rows."""
    asked = list(rows)
    found: dict[tuple[str, str], ResourceState] = {}
    topics = sorted({name for row, name in asked if row.resource == "Topic"})
    if topics:
        answers = client.describe_topics(
            TopicCollection(topics),
            include_authorized_operations=True,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        found |= {("Topic", name): _topic_state(answer) for name, answer in answers.items()}
    for name in sorted({name for row, name in asked if row.resource == "Group"}):
        answer = client.describe_consumer_groups(
            [name], include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S
        )[name]
        found["Group", name] = _group_state(answer)
    to_make = sorted(
        {
            name
            for row, name in asked
            if row.operation == "Create" and not found["Topic", name].exists
        }
    )
    if to_make:
        answers = client.create_topics(
            [NewTopic(name, 1, -1) for name in to_make],
            validate_only=True,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        for name, answer in answers.items():
            found["Topic", name].allowed = {"Create"} if _is_allowed(answer) else set()
    return found


def _topic_state(answer: Future[Any]) -> ResourceState:
    """Without Describe on a topic, nothing is allowed except, perhaps, its configuration."""
    try:
        found = answer.result()
    except KafkaException as failed:
        if failed.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return ResourceState({"DescribeConfigs", "AlterConfigs"})
        if failed.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return ResourceState(set(), exists=False)
        raise
    return ResourceState(_operation_names(found.authorized_operations), len(found.partitions))


def _group_state(answer: Future[Any]) -> ResourceState:
    try:
        return ResourceState(_operation_names(answer.result().authorized_operations))
    except KafkaException as failed:
        if failed.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return ResourceState(set())
        if failed.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            # its members subscribe to topics that this principal may not describe (KIP-848)
            return ResourceState(None)
        raise


def _is_allowed(answer: Future[Any]) -> bool:
    try:
        answer.result()
    except KafkaException as failed:
        return bool(
            failed.args[0].code()
            not in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
        )
    return True


def _operation_names(operations: Any) -> set[str] | None:
    """The names as in the table; None when the cluster does not report them."""
    return (
        {operation.name.title().replace("_", "") for operation in operations}
        if operations
        else None
    )
