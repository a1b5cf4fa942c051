"""Who has to be allowed what: the least ACLs of each command, in one table. docs/reference.md has it, and every start holds it against the clusters.

A client that is asked to says what its principal may do with a topic or a group (KIP-430). So a start asks once and names all that is missing, instead of
meeting one refusal after the other, or none: a refused purge, for instance, is only a topic that grows. Transactional ids cannot be
asked for, creating a topic is asked for without creating it, and what was taken away while the service runs is looked up when it is missed (`named`).

Read, Write and Delete of a topic, and Read of a group, include Describe (Kafka's documentation, "Authorization and ACLs"): a row says Describe only
where nothing else of the same resource is needed. A cluster that does not say what is allowed (before 2.3) is not asked further.
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

from common import source_candidates, tables, topics
from common.errors import AccessRefused
from common.kafka_clients import REQUEST_TIMEOUT_S, admin, ask_cluster
from common.routes import SAME, Route
from common.settings import Settings

Command = Literal["run replicator", "run deduplicator", "verify", "recover", "recover --apply", "topics", "topics --apply",
                  "offsets translate", "offsets translate --apply", "status", "lag", "inspect"]
Side = Literal["source", "destination"]
Resource = Literal["Topic", "Group", "TransactionalId"]
Operation = Literal["Read", "Write", "Create", "Delete", "Alter", "AlterConfigs", "Describe", "DescribeConfigs"]
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
FLAGS = {"Topic": "--topic", "Group": "--group", "TransactionalId": "--resource-pattern-type prefixed --transactional-id"}


@dataclass(frozen=True, slots=True)
class Permission:
    """One ACL: an operation on what a setting names, for the commands that need it."""

    side: Side
    resource: Resource
    named_by: str
    operation: Operation
    commands: tuple[Command, ...]
    why: str

    def names(self, settings: Settings, routes: Iterable[Route], group: str = "") -> list[str]:
        """The names of the resource in one service, of a topic one for each route; `group` is the command line's."""
        if self.named_by == PARKED and settings.text("filter.on_error") != "park":
            return []
        field = {"source.topic": "source_topic", "destination.topic": "destination_topic", "intermediate.topic": "intermediate_topic",
                 PARKED: "parked_topic"}.get(self.named_by)
        if field:
            return list(dict.fromkeys(str(getattr(route, field)) for route in routes))
        return [{"application": settings.application, "application-": f"{settings.application}-", "--group": group}[self.named_by]]


PERMISSIONS: tuple[Permission, ...] = (
    Permission("source", "Topic", "source.topic", "Read", ("run replicator", "verify", *RECOVER, *OFFSETS, *LOOKS), "the records"),
    Permission("source", "Topic", "source.topic", "Describe", ("run deduplicator", *TOPICS, "inspect"), "its id, partitions and offsets: where a copy begins"),
    Permission("source", "Topic", "source.topic", "DescribeConfigs", (*STAGES, "verify", *RECOVER, *TOPICS),
               "what the copy takes over; the largest record; compaction"),
    Permission("source", "Group", "--group", "Describe", OFFSETS, "the offsets that are translated"),
    Permission("destination", "Topic", "destination.topic", "Create", (*STAGES, "topics --apply"), "only if reo is to make the topic"),
    Permission("destination", "Topic", "destination.topic", "Alter", MAKING, "only when the source has more partitions: to add them"),
    Permission("destination", "Topic", "destination.topic", "AlterConfigs", ("topics --apply",), "what is to be made alike; includes DescribeConfigs"),
    Permission("destination", "Topic", "destination.topic", "Describe", ("run replicator", *TOPICS, *LOOKS), "that it is there and has the partitions"),
    Permission("destination", "Topic", "destination.topic", "DescribeConfigs", (*STAGES, "verify", *RECOVER, "topics"),
               "timestamps, the largest record, compaction"),
    Permission("destination", "Topic", "destination.topic", "Read", ("run deduplicator", "verify", *RECOVER, *OFFSETS), "the check at the start; the records"),
    Permission("destination", "Topic", "destination.topic", "Write", ("run deduplicator",), "the copy"),
    Permission("destination", "Topic", "intermediate.topic", "Create", MAKING, "only if reo is to make the topic"),
    Permission("destination", "Topic", "intermediate.topic", "Alter", MAKING, "only when the source has more partitions: to add them"),
    Permission("destination", "Topic", "intermediate.topic", "AlterConfigs", ("topics --apply",), "what is to be made alike; includes DescribeConfigs"),
    Permission("destination", "Topic", "intermediate.topic", "DescribeConfigs", (*STAGES, "recover --apply", "topics"), "the largest record"),
    Permission("destination", "Topic", "intermediate.topic", "Read", (*STAGES, "recover --apply", *LOOKS, "inspect"), "its records; the newest one, live"),
    Permission("destination", "Topic", "intermediate.topic", "Describe", ("recover", *OFFSETS, *TOPICS), "the group's offsets on it; its partitions"),
    Permission("destination", "Topic", "intermediate.topic", "Write", ("run replicator",), "what was read at the source"),
    Permission("destination", "Topic", "intermediate.topic", "Delete", ("run deduplicator",), "records whose copy is committed are deleted"),
    Permission("destination", "Topic", PARKED, "Create", STAGES, "only if reo is to make the topic"),
    Permission("destination", "Topic", PARKED, "Describe", ("run replicator",), "that it is there"),
    Permission("destination", "Topic", PARKED, "Write", ("run deduplicator",), "records on which the filter fails"),
    Permission("destination", "Group", "application", "Read", ("run deduplicator", "recover --apply"), "its members; the frontier"),
    Permission("destination", "Group", "application", "Describe", ("run replicator", "recover", *OFFSETS, *LOOKS), "the frontier"),
    Permission("destination", "Group", "--group", "Describe", ("offsets translate",), "the offsets that it has there"),
    Permission("destination", "Group", "--group", "Read", ("offsets translate --apply",), "the commit"),
    Permission("destination", "TransactionalId", "application-", "Write", ("run deduplicator",), "the transactions; all that begin so (prefixed)"),
)


def needed(commands: Iterable[Command], to_tables: bool = False) -> list[Permission]:
    """The rows of these commands, without a Describe that another row includes which is always needed."""
    wanted = set(commands)
    rows = [row for row in PERMISSIONS if wanted & set(row.commands) and not (to_tables and row.named_by in ONLY_OF_TOPICS)]
    including = {(row.side, row.named_by) for row in rows if row.operation in ("Read", "Write", "Delete")}
    return [row for row in rows if row.operation != "Describe" or (row.side, row.named_by) not in including]


class Lacking(NamedTuple):
    """A row, and the name of what it lacks for."""

    row: Permission
    name: str


def missing(settings: Settings, commands: Iterable[Command], group: str = "") -> list[Lacking]:
    """What the clusters do not allow now, as far as they say."""
    settings = source_candidates.select_answering(settings)
    routes = topics.routes_now(settings, admin(settings.source, settings), settings.number("connect_timeout_s"))
    rows = [Lacking(row, name) for row in needed(commands, tables.named(settings)) for name in row.names(settings, routes, group)]
    found: list[Lacking] = []
    partitions: dict[str, int] = {}
    for cluster in (settings.source, settings.destination):
        own = [lacking for lacking in rows if lacking.row.side == cluster.name]
        client = admin(cluster, settings)
        states = ask_cluster(cluster, client, settings.number("connect_timeout_s"), partial(_states, client, own))
        found += [lacking for lacking in own if _lacks(lacking, states, partitions)]
        for route in routes if cluster is settings.source else ():
            source = states.get(("Topic", route.source_topic), State(None))
            for name in (route.intermediate_topic, *((route.destination_topic,) if route.mapping == SAME else ())):  # see `topics.prepare`
                partitions[name] = max(partitions.get(name, 0), source.partitions)
    return found


def check(settings: Settings, *commands: Command, group: str = "") -> None:
    """AccessRefused, with every ACL that is missing, before anything is done; see also `ask_cluster`."""
    lacking = missing(settings, commands, group)
    if lacking:
        raise AccessRefused(to_grant(settings, commands, lacking), names_what_to_grant=True)


@contextmanager
def named(settings: Settings, *commands: Command) -> Iterator[None]:
    """An AccessRefused from inside gets the names of what is missing, where they can be found out."""
    try:
        yield
    except AccessRefused as refused:
        if refused.names_what_to_grant or REFUSED not in str(refused):  # who is not let in at all is told so already
            raise
        lacking = missing(settings, commands)
        if TRANSACTIONAL_ID in str(refused):
            lacking = [Lacking(row, name) for row in needed(commands) if row.resource == "TransactionalId" for name in row.names(settings, ())]
        if not lacking:
            raise
        raise AccessRefused(f"{refused}. {to_grant(settings, commands, lacking)}", names_what_to_grant=True) from None


def to_grant(settings: Settings, commands: Sequence[Command], lacking: Sequence[Lacking]) -> str:
    """What is missing, and the commands that grant it."""
    parts = []
    for cluster in (settings.source, settings.destination):
        own = [(row, name) for row, name in lacking if row.side == cluster.name]
        if own:
            principal = f"User:{cluster.security.sasl_username}" if cluster.security.sasl_username else "<the principal of its certificate>"
            tool = f"kafka-acls.sh --bootstrap-server {cluster.bootstrap_servers} --add --allow-principal {principal}"
            what = ", ".join(f"{row.operation} on {row.resource} {name}" for row, name in own)
            how = "; ".join(f"{tool} --operation {row.operation} {FLAGS[row.resource]} {name}" for row, name in own)
            parts.append(f"the {cluster.name} cluster does not allow {principal}: {what}. To grant it: {how}")
    return f"`reo {'` and `reo '.join(commands)}` is refused what it needs: {'. '.join(parts)}"


@dataclass(slots=True)
class State:
    """What a cluster says of one topic or group; `allowed` is None when it does not say."""

    allowed: set[str] | None
    partitions: int = 0
    there: bool = True


def _lacks(lacking: Lacking, states: Mapping[tuple[str, str], State], partitions: Mapping[str, int]) -> bool:
    """Whether that is not allowed; making a topic and adding partitions only matter where there is none, or too few."""
    state = states.get((lacking.row.resource, lacking.name))
    if state is None or state.allowed is None or state.there == (lacking.row.operation == "Create"):
        return False
    if lacking.row.operation == "Alter" and not 0 < state.partitions < partitions.get(lacking.name, 0):
        return False
    return lacking.row.operation not in state.allowed


def _states(client: AdminClient, rows: Iterable[Lacking]) -> dict[tuple[str, str], State]:
    """Of every topic and group of these rows."""
    asked = list(rows)
    found: dict[tuple[str, str], State] = {}
    topics = sorted({name for row, name in asked if row.resource == "Topic"})
    if topics:
        answers = client.describe_topics(TopicCollection(topics), include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S)
        found |= {("Topic", name): _topic(answer) for name, answer in answers.items()}
    for name in sorted({name for row, name in asked if row.resource == "Group"}):
        answer = client.describe_consumer_groups([name], include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S)[name]
        found["Group", name] = _group(answer)
    to_make = sorted({name for row, name in asked if row.operation == "Create" and not found["Topic", name].there})
    if to_make:
        answers = client.create_topics([NewTopic(name, 1, -1) for name in to_make], validate_only=True, request_timeout=REQUEST_TIMEOUT_S)
        for name, answer in answers.items():
            found["Topic", name].allowed = {"Create"} if _may(answer) else set()
    return found


def _topic(answer: Future[Any]) -> State:
    """Who may not describe a topic may do nothing with it but, perhaps, see to its configuration."""
    try:
        found = answer.result()
    except KafkaException as failed:
        if failed.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return State({"DescribeConfigs", "AlterConfigs"})
        if failed.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return State(set(), there=False)
        raise
    return State(_words(found.authorized_operations), len(found.partitions))


def _group(answer: Future[Any]) -> State:
    try:
        return State(_words(answer.result().authorized_operations))
    except KafkaException as failed:
        if failed.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return State(set())
        if failed.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return State(None)  # its members subscribe to topics that may not be seen (KIP-848)
        raise


def _may(answer: Future[Any]) -> bool:
    try:
        answer.result()
    except KafkaException as failed:
        return bool(failed.args[0].code() not in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED))
    return True


def _words(operations: Any) -> set[str] | None:
    """As the table has them; a cluster that says nothing says None."""
    return {operation.name.title().replace("_", "") for operation in operations} if operations else None
