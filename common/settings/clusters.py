"""A cluster in the settings: its addresses, and several source clusters in one setting
(`source.bootstrap_servers`). No I/O.

`common.source_pool` asks these clusters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from common.settings.security import Security
from common.topic_rules import Rule

ADDRESS = re.compile(
    r"(?i:(?:SASL_)?(?:PLAINTEXT|SSL)://)?(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]]+):(\d{1,5})"
)
PORT_MAX = 65_535
SEPARATOR = ";"
"""Separates clusters; commas separate the brokers of one cluster."""


@dataclass
class Cluster:
    """The source or the destination cluster; messages call it by its `name`."""

    name: str
    bootstrap_servers: str
    security: Security
    number: int = 0
    """Of a source candidate, from 1 on, in the order of the setting."""
    handshake_error: str = ""
    """Why the TLS or SASL handshake failed, on either side. The clients set it
    (`common.kafka.client_errors`), because librdkafka reports it only in `error_cb`.
    """
    is_refused: bool = False
    """Whether that was final: the credentials or the certificate; set in the same way."""
    connection_error: str = ""
    """Why no connection could be opened; set in the same way."""
    throttled_s: float = 0.0
    """For how long a broker said last that it reads no more requests of this client (KIP-599)."""


def split_clusters(text: str) -> list[str]:
    """The brokers of each cluster."""
    return [servers.strip() for servers in text.split(SEPARATOR)]


def find_address_errors(name: str, bootstrap_servers: str) -> Iterator[str]:
    """One message for each address that no client can use; `name` is the setting. Without a port,
    stage one's client fails and stage two's assumes 9092.
    """
    for address in bootstrap_servers.split(","):
        match = ADDRESS.fullmatch(address.strip())
        if not match or not 0 < int(match[1]) <= PORT_MAX:
            yield (
                f"{name}: {address.strip()!r} is no address of a broker: host:port is expected,"
                f" with a port from 1 to {PORT_MAX}"
            )


def find_errors(
    clusters: Sequence[str], failover: bool, rules: Sequence[Rule], appends: bool
) -> Iterator[str]:
    """One message for each contradiction. A candidate is recognised by the records that were
    copied.
    """
    if not all(clusters) or len(set(clusters)) < len(clusters):
        yield (
            f"source.bootstrap_servers: a cluster between two {SEPARATOR!r} is empty or named twice"
        )
    if len(clusters) > 1 and not failover:
        yield (
            f"source.bootstrap_servers names {len(clusters)} clusters, and source.mode is single:"
            " set source.mode=failover if they have the same records"
        )
    if failover and appends:
        yield (
            "source.mode=failover and deduplicator.without_frontier=append: a candidate is known by"
            " the records of the copy, which have to be the only ones"
        )
    if failover and any(rule.is_pattern for rule in rules):
        yield (
            "source.mode=failover and a pattern: a topic that one candidate does not have yet looks"
            " like one that was deleted, and its records would be left out. Name the topics"
        )
