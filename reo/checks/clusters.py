"""Both clusters: do they answer, and are the destination's brokers configured as a copy needs.

The broker configuration needs DescribeConfigs on the cluster, which a copy does not need: without
it the check reports that the configuration is unknown. This client has no admin request for a
transaction coordinator, so transactions are judged by the API versions (`reo.checks.api_versions`),
by the transaction state log (`__transaction_state`), and by the broker configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from common import clock
from common.errors import ClusterUnreachable, ReoError, SettingsInvalid, TopicsUnfit
from common.frontier import BYTES_MAX
from common.kafka.client_errors import translate
from common.kafka.clients import create_admin_client
from common.kafka.cluster_metadata import read_brokers
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S, ask_cluster
from common.settings import Settings, destination_kind
from common.settings.clusters import Cluster
from reo.checks.findings import Finding, report_failure, report_ok, report_warning

TRANSACTIONS = "__transaction_state"
FRONTIER_BYTES = 300
"""An upper bound: see `common.frontier`."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster that answers."""

    bootstrap_servers: str
    cluster_id: str
    brokers: int
    settings: Mapping[str, str] | None
    """The configuration of one of its brokers; None when it may not be described."""


def describe_cluster(settings: Settings, cluster: Cluster) -> ClusterDescription:
    """Describe a cluster; ClusterUnreachable or AccessRefused when it does not answer."""
    client, timeout_s = create_admin_client(cluster, settings), settings.connect_timeout_s

    def describe(request_s: float) -> ClusterDescription:
        metadata = read_brokers(client, request_s)
        return ClusterDescription(
            cluster.bootstrap_servers,
            str(metadata.cluster_id),
            len(metadata.brokers),
            _read_broker_settings(client, min(metadata.brokers)),
        )

    return ask_cluster(cluster, client, timeout_s, describe)


def describe_clusters(settings: Settings) -> list[ClusterDescription | ReoError]:
    """The destination and each source, asked at the same time, or why it does not answer."""

    def try_to_describe(cluster: Cluster) -> ClusterDescription | ReoError:
        try:
            return describe_cluster(settings, cluster)
        except ReoError as error:
            return error

    return clock.run_parallel(try_to_describe, [settings.destination_cluster, *settings.sources])


def report_answer(about: str, description: ClusterDescription) -> Finding:
    """A cluster that answers."""
    return report_ok(
        about,
        f"{description.bootstrap_servers} answers: cluster {description.cluster_id},"
        f" {description.brokers} broker{'' if description.brokers == 1 else 's'}",
    )


def check_sources(
    settings: Settings, answers: Iterable[ClusterDescription | ReoError]
) -> Iterator[Finding]:
    """The source cluster, or each candidate, of which one has to answer; `answers` are theirs."""
    is_any_answering = False
    for source, answer in zip(settings.sources, answers, strict=True):
        about = (
            f"source candidate {source.bootstrap_servers}"
            if settings.failover
            else "source cluster"
        )
        if isinstance(answer, ClusterDescription):
            yield report_answer(about, answer)
            is_any_answering = True
        elif len(settings.sources) == 1:
            raise answer
        else:
            yield report_warning(
                about, str(answer), "the copy goes on from another candidate, if there is one"
            )
    if not is_any_answering:
        yield report_failure(
            "source candidates",
            ClusterUnreachable(
                "none of them answers: check their addresses, and that they can be reached"
            ),
        )


def _read_broker_settings(client: AdminClient, broker: int) -> dict[str, str] | None:
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    try:
        entries = client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)[
            resource
        ].result()
    except KafkaException as failure:
        if failure.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return None
        raise
    return {name: str(entry.value) for name, entry in entries.items()}


def check_transaction_log(settings: Settings, destination: ClusterDescription) -> Iterator[Finding]:
    """Whether the destination has transaction coordinators, which store transactions in an internal
    topic; a class needs none.
    """
    about = "destination transactions"
    if destination_kind.is_outside_kafka(settings):
        return
    client = create_admin_client(settings.destination_cluster, settings)
    try:
        topic = client.describe_topics(
            TopicCollection([TRANSACTIONS]), request_timeout=REQUEST_TIMEOUT_S
        )[TRANSACTIONS].result()
    except KafkaException as failure:
        code = failure.args[0].code()
        if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            yield _check_missing_transaction_log(about, destination)
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            yield report_ok(
                about,
                f"{TRANSACTIONS} may not be described, which a copy does not need; whether its"
                " partitions have leaders is unknown",
            )
        else:
            raise translate(failure.args[0], f"describing {TRANSACTIONS}") from None
        return
    leaderless = list_leaderless(topic.partitions)
    if leaderless:
        raise ClusterUnreachable(
            f"{len(leaderless)} of the {len(topic.partitions)} partitions of {TRANSACTIONS} have no"
            " leader: transactions of these partitions wait until their brokers are back. Start"
            " these brokers"
        )
    yield report_ok(
        about,
        f"there are coordinators: the {len(topic.partitions)} partitions of {TRANSACTIONS} have"
        " leaders",
    )


def list_leaderless(partitions: Iterable[Any]) -> list[int]:
    """The numbers of those of a topic's partitions, as they were described, that have no leader."""
    return [
        partition.id
        for partition in partitions
        if partition.leader is None or partition.leader.id < 0
    ]


def _check_missing_transaction_log(about: str, destination: ClusterDescription) -> Finding:
    replicas = int((destination.settings or {}).get("transaction.state.log.replication.factor", 0))
    if replicas > destination.brokers:
        raise TopicsUnfit(
            "the destination never had a transaction, and cannot have one:"
            f" transaction.state.log.replication.factor is {replicas}, and it has"
            f" {destination.brokers} brokers. Set it, and transaction.state.log.min.isr, to at most"
            " the number of brokers"
        )
    return report_ok(about, f"there was none yet: the first one creates {TRANSACTIONS}")


def check_broker_settings(settings: Settings, destination: ClusterDescription) -> Iterator[Finding]:
    """The settings with which the destination's brokers refuse requests of this copy, or may lose
    its records.
    """
    about = "destination broker settings"
    if destination.settings is None:
        timeout = (
            ""
            if destination_kind.is_outside_kafka(settings)
            else "transaction.max.timeout.ms at least"
            f" {settings.deduplicator.transaction_timeout_ms}, "
        )
        yield report_warning(
            about,
            "unknown: DescribeConfigs on the cluster is not allowed",
            f"compare by hand: {timeout}offset.metadata.max.bytes at least {FRONTIER_BYTES},"
            " unclean.leader.election.enable=false",
        )
        return
    unfit = list(_list_unfit_settings(about, settings, destination.settings))
    yield from unfit or [report_ok(about, "timeouts and the size of offset metadata fit this copy")]


def _list_unfit_settings(
    about: str, settings: Settings, brokers: Mapping[str, str]
) -> Iterator[Finding]:
    yield from _check_timeouts(about, settings, brokers)
    if get_number(brokers, "offset.metadata.max.bytes", BYTES_MAX) < FRONTIER_BYTES:
        yield report_failure(
            about,
            TopicsUnfit(
                "the destination's offset.metadata.max.bytes is"
                f" {brokers['offset.metadata.max.bytes']}: a frontier has up to {FRONTIER_BYTES}."
                " Set it to the default, 4096"
            ),
        )
    if brokers.get("unclean.leader.election.enable") == "true":
        yield report_warning(
            about,
            "unclean.leader.election.enable=true: an out-of-sync replica may become leader, and"
            " committed records and frontiers are then lost",
            "set it to false; `reo verify` tells whether a copy is still complete",
        )


def _check_timeouts(
    about: str, settings: Settings, brokers: Mapping[str, str]
) -> Iterator[Finding]:
    """The timeouts that the brokers would refuse: of transactions, and of the group's session."""
    transaction_ms, session_ms = (
        settings.deduplicator.transaction_timeout_ms,
        settings.deduplicator.session_timeout_ms,
    )
    if (
        not destination_kind.is_outside_kafka(settings)
        and get_number(brokers, "transaction.max.timeout.ms", transaction_ms) < transaction_ms
    ):
        yield report_failure(
            about,
            SettingsInvalid(
                f"deduplicator.transaction_timeout_ms is {transaction_ms}, and the destination's"
                f" transaction.max.timeout.ms {brokers['transaction.max.timeout.ms']}: the brokers"
                " would refuse stage two. Lower one or raise the other"
            ),
        )
    min_ms, max_ms = (
        get_number(brokers, "group.min.session.timeout.ms", 0),
        get_number(brokers, "group.max.session.timeout.ms", session_ms),
    )
    if not min_ms <= session_ms <= max_ms:
        yield report_failure(
            about,
            SettingsInvalid(
                f"deduplicator.session_timeout_ms is {session_ms}, and the destination accepts"
                f" {min_ms} to {max_ms} (group.min.session.timeout.ms,"
                " group.max.session.timeout.ms)"
            ),
        )


def get_number(brokers: Mapping[str, str], name: str, default: int) -> int:
    """A broker's setting; the default where it has none, or it is not a number."""
    return int(text) if (text := brokers.get(name, "")).lstrip("-").isdigit() else default
