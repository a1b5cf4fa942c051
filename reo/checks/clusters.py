"""Both clusters from outside: do they answer, what can their brokers do, and are the destination's set as a copy needs them.

What a broker can do it says to every client (KIP-35), release by release more: librdkafka writes it into its log when it is asked to (`debug=feature`),
and nowhere else. How brokers are set may be seen with DescribeConfigs on the cluster, which a copy does not need: without it that is not
known, and said so. There is no admin request for a transaction coordinator in this client, so transactions are judged by what brokers can do,
by their log of transactions (`__transaction_state`), and by these settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from common import tables
from common.errors import ClusterUnreachable, ReoError, SettingsInvalid, TopicsUnfit
from common.frontier import BYTES_MAX
from common.kafka_clients import REQUEST_TIMEOUT_S, admin, ask_cluster, translate
from common.settings import Settings
from common.source_clusters import Cluster
from reo.checks.findings import Finding, failed, ok, warning

SAYS = re.compile(r"ApiKey \w+ \((\d+)\) Versions \d+\.\.(\d+)")
FETCH, OFFSET_FETCH, TXN_OFFSET_COMMIT, GROUP_HEARTBEAT = 1, 9, 28, 68
"""Kafka's numbers of requests (its protocol guide)."""
NEEDED = {"source": {FETCH: (10, "2.1")}, "destination": {TXN_OFFSET_COMMIT: (3, "2.5"), OFFSET_FETCH: (7, "2.5")}}
"""By request: the version that is needed, and the release that brought it (KIP-110, KIP-447)."""
TRANSACTIONS = "__transaction_state"
FRONTIER_BYTES = 300
"""A frontier has about 200."""


@dataclass(slots=True)
class Abilities:
    """A client's log that keeps what brokers say they can do: request → the highest version that all of them know."""

    versions: dict[int, int] = field(default_factory=dict)

    def log(self, _level: int, form: str, *more: object) -> None:
        """Called by confluent-kafka."""
        found = SAYS.search(form % more if more else form)
        if found:
            request, version = map(int, found.groups())
            self.versions[request] = min(version, self.versions.get(request, version))


@dataclass(frozen=True, slots=True)
class Seen:
    """A cluster that answers."""

    cluster_id: str
    brokers: int
    settings: Mapping[str, str] | None
    """Of one of its brokers; None when they may not be seen."""


def look(settings: Settings, cluster: Cluster) -> Seen:
    """Ask a cluster who it is; ClusterUnreachable or AccessRefused when it does not say."""
    client, timeout_s = admin(cluster, settings), settings.number("connect_timeout_s")

    def ask() -> Seen:
        found = client.describe_cluster(request_timeout=min(timeout_s, REQUEST_TIMEOUT_S)).result()
        return Seen(found.cluster_id, len(found.nodes), _broker_settings(client, found.nodes[0].id))
    return ask_cluster(cluster, client, timeout_s, ask)


def _broker_settings(client: AdminClient, broker: int) -> dict[str, str] | None:
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    try:
        entries = client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[resource].result()
    except KafkaException as refused:
        if refused.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return None
        raise
    return {name: str(entry.value) for name, entry in entries.items()}


def abilities(settings: Settings, cluster: Cluster) -> dict[int, int]:
    """What its brokers can do, by request; empty when the client did not hear it."""
    heard = Abilities()
    client = admin(cluster, settings, debug="feature", log_level=7, logger=heard)
    client.describe_cluster(request_timeout=REQUEST_TIMEOUT_S).result()  # brokers say it when they are connected to
    client.poll(0.1)  # hands over what was logged
    return heard.versions


def check_abilities(settings: Settings, cluster: Cluster) -> Iterator[Finding]:
    """Whether the brokers are new enough."""
    about = f"{cluster.name} brokers"
    try:
        known = abilities(settings, cluster)
    except KafkaException as silent:
        yield failed(about, translate(silent.args[0], f"asking the {cluster.name} cluster what it can do"))
        return
    if not known:
        yield warning(about, "they did not say which requests they know", "look up their version: the source needs 2.1, the destination 2.5")
        return
    wanting = sorted({release for request, (version, release) in NEEDED[cluster.name].items() if known.get(request, -1) < version})
    if wanting:
        yield failed(about, TopicsUnfit(f"the {cluster.name} cluster's brokers are older than Kafka {wanting[-1]}, which is needed. Upgrade them"))
    elif cluster.name == "destination" and settings.text("deduplicator.group_protocol") == "consumer" and known.get(GROUP_HEARTBEAT, -1) < 1:
        yield failed(about, SettingsInvalid("deduplicator.group_protocol=consumer needs brokers of Kafka 4.0 or later: set it to classic"))
    else:
        yield ok(about, f"they are new enough (at least Kafka {max(release for _, release in NEEDED[cluster.name].values())})")


def check_transactions(settings: Settings, seen: Seen) -> Iterator[Finding]:
    """Whether the destination's transaction coordinators are there (a copy to tables has no transactions of Kafka's), and whether its brokers take ours."""
    about, in_kafka = "destination transactions", not tables.named(settings)
    try:
        if in_kafka:
            yield _transaction_log(settings, seen)
    except ReoError as wrong:
        yield failed(about, wrong)
    if seen.settings is None:
        timeout = f"transaction.max.timeout.ms at least {settings.number('deduplicator.transaction_timeout_ms')}, " if in_kafka else ""
        yield warning("destination broker settings", "they may not be seen: DescribeConfigs on the cluster is not allowed",
                      f"compare by hand: {timeout}offset.metadata.max.bytes at least {FRONTIER_BYTES}, unclean.leader.election.enable=false")
        return
    found = list(_broker_findings(settings, seen.settings))
    yield from found or [ok("destination broker settings", "time-outs and offset metadata fit this copy")]


def _transaction_log(settings: Settings, seen: Seen) -> Finding:
    """The topic that coordinators keep transactions in."""
    about = "destination transactions"
    client = admin(settings.destination, settings)
    try:
        topic = client.describe_topics(TopicCollection([TRANSACTIONS]), request_timeout=REQUEST_TIMEOUT_S)[TRANSACTIONS].result()
    except KafkaException as failure:
        code = failure.args[0].code()
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return ok(about, f"{TRANSACTIONS} may not be seen, which a copy does not need; whether its partitions have leaders is not known")
        if code != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise translate(failure.args[0], f"describing {TRANSACTIONS}") from None
        return _not_made_yet(about, seen)
    leaderless = [partition.id for partition in topic.partitions if partition.leader is None or partition.leader.id < 0]
    if leaderless:
        raise ClusterUnreachable(f"{len(leaderless)} of the {len(topic.partitions)} partitions of {TRANSACTIONS} have no leader: transactions that belong "
                                 "there wait until their brokers are back. Start these brokers")
    return ok(about, f"coordinators are there: the {len(topic.partitions)} partitions of {TRANSACTIONS} have leaders")


def _not_made_yet(about: str, seen: Seen) -> Finding:
    wanted = int((seen.settings or {}).get("transaction.state.log.replication.factor", 0))
    if wanted > seen.brokers:
        raise TopicsUnfit(f"the destination never had a transaction, and cannot have one: transaction.state.log.replication.factor is {wanted}, and it has "
                          f"{seen.brokers} brokers. Set it, and transaction.state.log.min.isr, to what the brokers can hold")
    return ok(about, f"there never was one: {TRANSACTIONS} is made with the first")


def _broker_findings(settings: Settings, brokers: Mapping[str, str]) -> Iterator[Finding]:
    """Where the destination's brokers refuse what this copy asks for, or may lose it."""
    about = "destination broker settings"
    transaction_ms, session_ms = settings.number("deduplicator.transaction_timeout_ms"), settings.number("deduplicator.session_timeout_ms")
    classic = settings.text("deduplicator.group_protocol") == "classic"
    number = _numbers(brokers)
    if not tables.named(settings) and number("transaction.max.timeout.ms", transaction_ms) < transaction_ms:
        yield failed(about, SettingsInvalid(f"deduplicator.transaction_timeout_ms is {transaction_ms}, and the destination's transaction.max.timeout.ms "
                                            f"{brokers['transaction.max.timeout.ms']}: stage two would be refused. Lower the one or raise the other"))
    least, most = number("group.min.session.timeout.ms", 0), number("group.max.session.timeout.ms", session_ms)
    if classic and not least <= session_ms <= most:
        yield failed(about, SettingsInvalid(f"deduplicator.session_timeout_ms is {session_ms}, and the destination takes {least} to {most} "
                                            "(group.min.session.timeout.ms, group.max.session.timeout.ms)"))
    if number("offset.metadata.max.bytes", BYTES_MAX) < FRONTIER_BYTES:
        yield failed(about, TopicsUnfit(f"the destination's offset.metadata.max.bytes is {brokers['offset.metadata.max.bytes']}: a frontier has up to "
                                        f"{FRONTIER_BYTES}. Set it to the default, 4096"))
    if not classic and "consumer" not in brokers.get("group.coordinator.rebalance.protocols", "consumer"):
        yield failed(about, SettingsInvalid("deduplicator.group_protocol=consumer is switched off at the destination "
                                            "(group.coordinator.rebalance.protocols): set it to classic"))
    if brokers.get("unclean.leader.election.enable") == "true":
        yield warning(about, "unclean.leader.election.enable=true: a broker that lags may become leader, and committed records and frontiers are lost",
                      "set it to false; `reo verify` tells whether a copy is still whole")


def _numbers(brokers: Mapping[str, str]) -> Callable[[str, int], int]:
    def number(name: str, default: int) -> int:
        return int(text) if (text := brokers.get(name, "")).lstrip("-").isdigit() else default
    return number
