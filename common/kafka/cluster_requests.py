"""Requests to a cluster: repeated until there is an answer; without one, the reason is found out
(host name, port, TLS, authentication).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from common import runtime
from common.errors import AccessRefused, ClusterUnreachable, ReoError
from common.kafka import clients
from common.kafka.client_errors import PLAIN_TEXT, translate
from common.settings.clusters import Cluster

Result = TypeVar("Result")
REQUEST_TIMEOUT_S = 10.0
_known_addresses: set[str] = set()
"""Addresses that have answered a client, or for which `has_tls_listener` was tried."""


def ask_cluster(
    cluster: Cluster, client: AdminClient, timeout_s: float, ask: Callable[[], Result]
) -> Result:
    """Ask until a broker of the cluster answers; see `ask_with_retries`. AccessRefused, with the
    reason, when the TLS or SASL handshake failed.
    """
    cluster.handshake_error = cluster.connection_error = ""
    try:
        answer = ask_with_retries(
            f"the {cluster.name} cluster at {cluster.bootstrap_servers}", timeout_s, ask
        )
    except ClusterUnreachable as silent:
        client.poll(0)  # calls `note_error`
        raise _explain_silence(cluster, silent) from None
    _known_addresses.add(cluster.bootstrap_servers)
    return answer


def _explain_silence(cluster: Cluster, silent: ClusterUnreachable) -> ReoError:
    """Why a cluster does not answer, as far as it is known, and what to do about it."""
    which, connection_error, handshake_error = (
        f"the {cluster.name} cluster at {cluster.bootstrap_servers}",
        cluster.connection_error,
        cluster.handshake_error,
    )
    # a proxy before brokers that are away accepts connections, and closes them
    if "Disconnected" in handshake_error and cluster.bootstrap_servers in _known_addresses:
        return ClusterUnreachable(
            f"{which} cannot be reached any more: {handshake_error}",
            "Check that the brokers run and can be reached from here",
        )
    if handshake_error:
        why = (
            cluster.security.explain_failed_verification(cluster.bootstrap_servers)
            if "certificate verify failed" in handshake_error
            else ""
        )
        if PLAIN_TEXT.search(handshake_error):
            why = (
                f"its listener does not speak TLS ({handshake_error}): use the address of a TLS"
                f" listener, or {cluster.name}.security_protocol=PLAINTEXT"
            )
        return AccessRefused(
            f"{which}: the TLS or SASL handshake failed: {why or handshake_error}",
            f"Check the settings {cluster.name}.security_protocol, {cluster.name}.sasl_… and"
            f" {cluster.name}.ssl_…",
        )
    if connection_error:
        if "Failed to resolve" in connection_error:
            to_do = (
                f"Correct the host in {cluster.name}.bootstrap_servers, or make its name known here"
                " (DNS)"
            )
        elif "Connection refused" in connection_error:
            to_do = (
                "Nothing listens there: start the broker, or correct the port in"
                f" {cluster.name}.bootstrap_servers"
            )
        else:
            to_do = "Check the address and that the brokers run and can be reached from here"
        return ClusterUnreachable(f"{which} cannot be reached: {connection_error}", to_do)
    if not cluster.security.has_tls and _is_waiting_for_tls(cluster.bootstrap_servers):
        return ClusterUnreachable(
            f"{which} does not answer: its listener speaks TLS, and"
            f" {cluster.name}.security_protocol is {cluster.security.security_protocol}",
            "Set it to SSL or SASL_SSL, or use the address of a plain-text listener",
        )
    return silent


def _is_waiting_for_tls(bootstrap_servers: str) -> bool:
    """Whether a silent cluster waits for a TLS handshake: tried once per process, because a frozen
    broker makes it wait, and never after an answer.
    """
    if bootstrap_servers in _known_addresses:
        return False
    _known_addresses.add(bootstrap_servers)
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
    deadline = runtime.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except KafkaException as failed:
            error = translate(failed.args[0], doing)
            if not isinstance(error, later) or runtime.monotonic() > deadline:
                raise error from None
            runtime.sleep(0.05)
