"""Requests to a cluster: repeated until there is an answer; without one, the reason is found out
(host name, port, TLS, authentication).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from common import clock
from common.errors import AccessRefused, ClusterUnreachable, ReoError
from common.kafka import clients, tls_probe
from common.kafka.client_errors import NAMED_BY_BROKER, PLAIN_TEXT, translate
from common.kafka.cluster_metadata import read_metadata
from common.settings.clusters import Cluster

log = logging.getLogger(__name__)
Result = TypeVar("Result")
REQUEST_TIMEOUT_S = 10.0
FIRST_REQUEST_S = 1.0
"""The timeout of the first request to a cluster; each later one has twice as long."""
_answered: set[str] = set()
"""Addresses that have answered a client of this process."""
_tried_tls: set[str] = set()
"""Silent addresses at which it was tried whether they speak TLS."""


def forget_answers() -> None:
    """From now on no cluster has answered: the simulator has many processes in one."""
    _answered.clear()
    _tried_tls.clear()


def ask_cluster(
    cluster: Cluster, client: AdminClient, timeout_s: float, ask: Callable[[float], Result]
) -> Result:
    """Ask until a broker of the cluster answers; `ask` is told for how many seconds to wait each
    time. See `ask_with_retries`. AccessRefused, with the reason, when the TLS or SASL handshake
    failed: at once when that is final and the cluster has not answered before.
    """
    cluster.handshake_error = cluster.connection_error = ""
    cluster.is_refused = False
    which = _describe(cluster)
    try:
        if cluster.bootstrap_servers not in _answered:
            _wait_for_first_answer(cluster, client, timeout_s)
        request_s = min(timeout_s, REQUEST_TIMEOUT_S)
        answer = ask_with_retries(which, timeout_s, lambda: ask(request_s))
    except ClusterUnreachable as silent:
        client.poll(0)  # calls `note_error`
        raise _explain_silence(cluster, silent) from None
    _answered.add(cluster.bootstrap_servers)
    return answer


def _describe(cluster: Cluster) -> str:
    return f"the {cluster.name} cluster at {cluster.bootstrap_servers}"


def _wait_for_first_answer(cluster: Cluster, client: AdminClient, timeout_s: float) -> None:
    """Ask again and again, each time for longer, and log why there is no answer yet."""
    deadline, request_s = clock.monotonic() + timeout_s, FIRST_REQUEST_S
    while True:
        left_s = deadline - clock.monotonic()
        try:
            read_metadata(client, max(0.1, min(request_s, left_s)))
        except KafkaException as failed:
            error = translate(failed.args[0], _describe(cluster))
        else:
            return
        client.poll(0)  # calls `note_error`
        left_s = deadline - clock.monotonic()
        if not isinstance(error, ClusterUnreachable) or cluster.is_refused or left_s <= 0:
            raise error
        log.warning(
            "waiting for %s, up to %.0f s more: %s",
            _describe(cluster),
            left_s,
            cluster.handshake_error or cluster.connection_error or "no answer yet",
        )
        request_s = min(2 * request_s, REQUEST_TIMEOUT_S)
        clock.sleep(0.05)


def ask_for_change(
    cluster: Cluster,
    client: AdminClient,
    doing: str,
    timeout_s: float,
    ask: Callable[[], Result],
) -> Result:
    """See `ask_with_retries`; for a request that creates topics or partitions. A client that has
    created more than its quota allows (`controller_mutation_rate`, KIP-599) is told for how long
    the broker reads no more of its requests, which would only time out: so long this waits.
    """
    answer = ask_with_retries(doing, timeout_s, ask)
    client.poll(0)  # calls `note_throttling`
    throttled_s, cluster.throttled_s = cluster.throttled_s, 0.0
    if throttled_s > 1:
        log.warning(
            "%s throttles this client for %.0f s, by its quota on creating topics and partitions"
            " (controller_mutation_rate): waiting",
            _describe(cluster),
            throttled_s,
        )
    clock.sleep(throttled_s)
    return answer


def _explain_silence(cluster: Cluster, silent: ClusterUnreachable) -> ReoError:
    """Why a cluster does not answer, as far as it is known, and what to do about it."""
    which, handshake_error = _describe(cluster), cluster.handshake_error
    # a proxy before brokers that are away accepts connections, and closes them
    if "Disconnected" in handshake_error and cluster.bootstrap_servers in _answered:
        return ClusterUnreachable(
            f"{which} cannot be reached any more: {handshake_error}",
            "Check that the brokers run and can be reached from here",
        )
    if handshake_error:
        return _explain_handshake(cluster)
    if cluster.connection_error:
        return _explain_connection(cluster)
    if not cluster.security.has_tls and _is_waiting_for_tls(cluster.bootstrap_servers):
        protocol = cluster.security.security_protocol
        with_tls = "SSL or SASL_SSL" if protocol == "PLAINTEXT" else "SASL_SSL"
        return ClusterUnreachable(
            f"{which} does not answer: its listener speaks TLS, and"
            f" {cluster.name}.security_protocol is {protocol}",
            f"Set it to {with_tls}, or use the address of a plain-text listener",
        )
    return silent


def _explain_handshake(cluster: Cluster) -> AccessRefused:
    why = cluster.handshake_error
    if PLAIN_TEXT.search(why):
        protocol = cluster.security.security_protocol.replace("SSL", "PLAINTEXT")
        why = (
            f"its listener does not speak TLS ({why}): use the address of a TLS listener, or"
            f" {cluster.name}.security_protocol={protocol}"
        )
    elif "certificate verify failed" in why:
        ca_file = cluster.security.ssl_ca_file
        why = tls_probe.explain_failed_verification(cluster.bootstrap_servers, ca_file) or why
    return AccessRefused(
        f"{_describe(cluster)}: the TLS or SASL handshake failed: {why}",
        f"Check the settings {cluster.name}.security_protocol, {cluster.name}.sasl_… and"
        f" {cluster.name}.ssl_…",
    )


def _explain_connection(cluster: Cluster) -> ClusterUnreachable:
    why = cluster.connection_error
    named_by_broker = NAMED_BY_BROKER.match(why)
    if named_by_broker:
        address, broker = named_by_broker.groups()
        return ClusterUnreachable(
            f"{_describe(cluster)} names {address} as the address of its broker {broker}, which"
            f" cannot be reached: {why}",
            "Start that broker, or correct its advertised.listeners to an address that can be"
            " reached from here",
        )
    if "Failed to resolve" in why:
        to_do = (
            f"Correct the host in {cluster.name}.bootstrap_servers, or make its name known here"
            " (DNS)"
        )
    elif "Connection refused" in why:
        to_do = (
            "Nothing listens there: start the broker, or correct the port in"
            f" {cluster.name}.bootstrap_servers"
        )
    else:
        to_do = "Check the address and that the brokers run and can be reached from here"
    return ClusterUnreachable(f"{_describe(cluster)} cannot be reached: {why}", to_do)


def _is_waiting_for_tls(bootstrap_servers: str) -> bool:
    """Whether a silent cluster waits for a TLS handshake: tried once per process, because a frozen
    broker makes it wait, and never after an answer.
    """
    if bootstrap_servers in _answered | _tried_tls:
        return False
    _tried_tls.add(bootstrap_servers)
    return clients.has_tls_listener(bootstrap_servers)


def ask_with_retries(
    doing: str,
    timeout_s: float,
    ask: Callable[[], Result],
    later: tuple[type[ReoError], ...] = (ClusterUnreachable,),
) -> Result:
    """Ask until there is an answer. The errors in `later` are raised only after `timeout_s`; all
    others are translated and raised at once.
    """
    deadline = clock.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except KafkaException as failed:
            error = translate(failed.args[0], doing)
            if not isinstance(error, later) or clock.monotonic() > deadline:
                raise error from None
            clock.sleep(0.05)
