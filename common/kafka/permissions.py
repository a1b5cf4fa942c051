"""Whether the clusters allow what a command needs: every start asks, and names what is missing.

A cluster can report what the client's principal may do with a topic or a group (KIP-430). So a
start asks once and names everything that is missing. Otherwise it would meet one refusal after the
other, or none: a refused purge, for example, only lets a topic grow. Transactional ids have no such
report; the permission to create a topic is tested with validate_only; a permission that is removed
while the service runs is looked up when a request fails (`explain_refusals`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from common import source_pool
from common.errors import AccessRefused
from common.kafka import source_topics
from common.kafka.clients import create_admin_client
from common.kafka.cluster_requests import ask_cluster
from common.kafka.needed_acls import Command, NeededPermission, list_needed
from common.routes import SAME
from common.settings import Settings, destination_kind
from common.settings.security import Security

REFUSED = "AUTHORIZATION_FAILED"
TRANSACTIONAL_ID = f"TRANSACTIONAL_ID_{REFUSED}"
FLAGS = {
    "Topic": "--topic",
    "Group": "--group",
    "TransactionalId": "--resource-pattern-type prefixed --transactional-id",
}


class ResourceState(NamedTuple):
    """What a cluster reports about one topic or group."""

    allowed: frozenset[str] | None
    """None when it does not report permissions (before Kafka 2.3): it is not checked."""
    partitions: int = 0
    exists: bool = True


REFUSED_STATES = {
    # without Describe on a topic, nothing is allowed except, perhaps, its configuration
    ("Topic", KafkaError.TOPIC_AUTHORIZATION_FAILED): ResourceState(
        frozenset({"DescribeConfigs", "AlterConfigs"})
    ),
    ("Topic", KafkaError.UNKNOWN_TOPIC_OR_PART): ResourceState(frozenset(), exists=False),
    ("Group", KafkaError.GROUP_AUTHORIZATION_FAILED): ResourceState(frozenset()),
    # its members subscribe to topics that this principal may not describe (KIP-848)
    ("Group", KafkaError.TOPIC_AUTHORIZATION_FAILED): ResourceState(None),
}
"""What the error says with which a cluster refuses to describe a resource."""
UNKNOWN_PRINCIPAL = "User:…"
"""In a command: to be replaced."""
CREATE_REFUSED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


def find_missing(
    settings: Settings, commands: Iterable[Command], group: str = ""
) -> list[NeededPermission]:
    """What the clusters do not allow now, as far as they report it."""
    settings = source_pool.select_answering(settings)
    routes = source_topics.list_routes(
        settings, create_admin_client(settings.source_cluster, settings), settings.connect_timeout_s
    )
    rows = [
        NeededPermission(row, name)
        for row in list_needed(commands, destination_kind.is_outside_kafka(settings))
        for name in row.list_names(settings, routes, group)
    ]
    missing: list[NeededPermission] = []
    partitions: dict[str, int] = {}
    for cluster in (settings.source_cluster, settings.destination_cluster):
        own = [needed for needed in rows if needed.row.side == cluster.name]
        client = create_admin_client(cluster, settings)
        states = ask_cluster(
            cluster, client, settings.connect_timeout_s, partial(_describe_resources, client, own)
        )
        missing += [needed for needed in own if _is_missing(needed, states, partitions)]
        for route in routes if cluster is settings.source_cluster else ():
            source = states.get(("Topic", route.source_topic), ResourceState(None))
            # see `topic_creation.prepare_topics`
            count = route.partitions.count_in(source.partitions)
            needed = {route.intermediate_topic: count}
            if route.mapping == SAME:
                needed[route.destination_topic] = route.partitions.first + count
            for name, least in needed.items():
                partitions[name] = max(partitions.get(name, 0), least)
    return missing


def check_permissions(settings: Settings, *commands: Command, group: str = "") -> None:
    """AccessRefused, with every missing ACL, before anything is done; see also `ask_cluster`."""
    missing = find_missing(settings, commands, group)
    if missing:
        raise AccessRefused(describe_missing(settings, commands, missing), is_explained=True)


@contextmanager
def explain_refusals(settings: Settings, *commands: Command) -> Iterator[None]:
    """Add the names of missing ACLs to an AccessRefused from inside, when they can be found."""
    try:
        yield
    except AccessRefused as refused:
        # a failed authentication already says so
        if refused.is_explained or REFUSED not in str(refused):
            raise
        missing = find_missing(settings, commands)
        if TRANSACTIONAL_ID in str(refused):
            missing = [
                NeededPermission(row, name)
                for row in list_needed(commands)
                if row.resource == "TransactionalId"
                for name in row.list_names(settings, ())
            ]
        if not missing:
            raise
        raise AccessRefused(
            f"{refused}. {describe_missing(settings, commands, missing)}", is_explained=True
        ) from None


def describe_missing(
    settings: Settings, commands: Sequence[Command], missing: Sequence[NeededPermission]
) -> str:
    """What is missing, and the commands that grant it."""
    parts = []
    for cluster in (settings.source_cluster, settings.destination_cluster):
        own = [(row, name) for row, name in missing if row.side == cluster.name]
        principal = find_principal(cluster.security)
        tool = (
            f"kafka-acls.sh --bootstrap-server {cluster.bootstrap_servers} --add"
            f" --allow-principal {shlex.quote(principal or UNKNOWN_PRINCIPAL)}"
        )
        what = ", ".join(f"{row.operation} on {row.resource} {name}" for row, name in own)
        how = "; ".join(
            f"{tool} --operation {row.operation} {FLAGS[row.resource]} {name}" for row, name in own
        )
        if own:
            parts.append(
                f"the {cluster.name} cluster does not allow"
                f" {principal or _describe_unknown(cluster.security)}: {what}. To grant it: {how}"
            )
    verb = "is refused what it needs" if len(commands) == 1 else "are refused what they need"
    return f"`reo {'` and `reo '.join(commands)}` {verb}: {'. '.join(parts)}"


def find_principal(security: Security) -> str:
    """Whom the brokers see, if the settings tell; else empty: a name that is in a certificate or a
    token.
    """
    if security.has_sasl:
        return f"User:{security.sasl_username}" if security.sasl_username else ""
    return "" if security.has_tls and security.ssl_certificate_file else "User:ANONYMOUS"


def _describe_unknown(security: Security) -> str:
    holder = "token" if security.has_sasl else "certificate"
    return f"the principal of its {holder} ({UNKNOWN_PRINCIPAL} below)"


def _describe_resources(
    client: AdminClient, rows: Iterable[NeededPermission], request_s: float
) -> dict[tuple[str, str], ResourceState]:
    """The state of every topic and group of these rows."""
    named = sorted({(row.resource, row.operation, name) for row, name in rows})
    names = {name for resource, _, name in named if resource == "Topic"}
    options: Any = {"include_authorized_operations": True, "request_timeout": request_s}
    answers: dict[tuple[str, str], Future[Any]] = {}
    if names:
        described = client.describe_topics(TopicCollection(sorted(names)), **options)
        answers = {("Topic", name): answer for name, answer in described.items()}
    for name in dict.fromkeys(name for resource, _, name in named if resource == "Group"):
        answers["Group", name] = client.describe_consumer_groups([name], **options)[name]
    states = {key: _read_state(key[0], answer) for key, answer in answers.items()}
    to_make = [
        NewTopic(name, 1, -1)
        for _, operation, name in named
        if operation == "Create" and not states["Topic", name].exists
    ]
    if to_make:
        for name, answer in client.create_topics(
            to_make, validate_only=True, request_timeout=request_s
        ).items():
            failed = answer.exception()
            is_refused = failed is not None and failed.args[0].code() in CREATE_REFUSED
            states["Topic", name] = ResourceState(
                frozenset() if is_refused else frozenset({"Create"}), exists=False
            )
    return states


def _read_state(resource: str, answer: Future[Any]) -> ResourceState:
    try:
        description = answer.result()
    except KafkaException as failed:
        state = REFUSED_STATES.get((resource, failed.args[0].code()))
        if state is None:
            raise
        return state
    operations = frozenset(
        each.name.title().replace("_", "") for each in description.authorized_operations or ()
    )
    partitions = len(description.partitions) if resource == "Topic" else 0
    return ResourceState(operations or None, partitions)


def _is_missing(
    needed: NeededPermission,
    states: Mapping[tuple[str, str], ResourceState],
    partitions: Mapping[str, int],
) -> bool:
    """Whether it is refused and needed: Create for a missing topic, Alter for a small one."""
    state = states.get((needed.row.resource, needed.name))
    if state is None or state.allowed is None or state.exists == (needed.row.operation == "Create"):
        return False
    has_enough = not 0 < state.partitions < partitions.get(needed.name, 0)
    if needed.row.operation == "Alter" and has_enough:
        return False
    return needed.row.operation not in state.allowed
