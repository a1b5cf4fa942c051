"""Several clusters in one setting: how `source.bootstrap_servers` names them, and what does not fit `source.mode`. Pure.

What is done with them is in `common.candidates`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from common.rules import Rule, routes
from common.security import Security

ADDRESS = re.compile(r"(?:[A-Za-z_]+://)?(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]]+):(\d{1,5})")
PORT_MAX = 65_535
BETWEEN = ";"
"""Between clusters; commas are between the brokers of one."""


@dataclass
class Cluster:
    """One side: `name` is how messages call it."""

    name: str
    bootstrap_servers: str
    security: Security
    refused: str = ""
    """Why its brokers, or we, broke off a connection while it was made: written by the clients (`common.kafka_clients`), which say it only in passing."""
    unconnected: str = ""
    """Why no connection could be made, likewise."""


def named(text: str) -> list[str]:
    """Each cluster's brokers."""
    return [servers.strip() for servers in text.split(BETWEEN)]


def wrong_addresses(name: str, bootstrap_servers: str) -> Iterator[str]:
    """Addresses that no client could use: `name` is the setting's. Without a port stage one's client takes none, and stage two's takes 9092."""
    for address in bootstrap_servers.split(","):
        found = ADDRESS.fullmatch(address.strip())
        if not found or not 0 < int(found[1]) <= PORT_MAX:
            yield f"{name}: {address.strip()!r} is no address of a broker: host:port is expected, with a port from 1 to {PORT_MAX}"


def wrong(clusters: Sequence[str], failover: bool, rules: Sequence[Rule], appends: bool) -> Iterator[str]:
    """What contradicts itself, in words. A candidate is known by the records of the copy: they have to be there, unmixed, and the only ones."""
    if not all(clusters) or len(set(clusters)) < len(clusters):
        yield f"source.bootstrap_servers: a cluster between two {BETWEEN!r} is empty or named twice"
    if len(clusters) > 1 and not failover:
        yield f"source.bootstrap_servers names {len(clusters)} clusters, and source.mode is single: set source.mode=failover if they have the same records"
    if failover and appends:
        yield "source.mode=failover and deduplicator.without_frontier=append: a candidate is known by the records of the copy, which have to be the only ones"
    if failover and (any(rule.is_pattern for rule in rules) or not all(route.is_one_to_one for route in routes(rules, ()))):
        yield ("source.mode=failover copies topics that are named, each to a destination of its own and to the same partitions: a candidate is known by the "
               "records of the copy")
