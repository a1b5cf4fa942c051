"""The brokers of a story, configured as the story needs.

Most stories inject faults into the service only and share one pair of brokers. A story that kills
brokers has its own pair: a defect of a single node (a torn transaction) must not affect the next
story. Three brokers are one cluster of three voters with replicas on all.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.harness.kafka import ROOT, Cluster, Clusters
from tools.demo.broker import Broker, free_port
from tools.faults.proxied_broker import make_proxied_broker
from tools.faults.proxy import Proxy

JARS = ROOT / "jars" / "broker"
HEAP_MB = 384
Brokers = Literal["shared", "own", "three", "guarded", "proxied", "identical"]
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""A broker with an authorizer: it checks the ACLs of a resource that has any."""


@dataclass
class ThreeBrokers:
    """One cluster of three brokers, with the attributes of a broker that
    `tests.harness.kafka.Cluster` uses.
    """

    brokers: list[Broker]

    @property
    def address(self) -> str:
        """All three: one may be down when a client starts."""
        return ",".join(broker.address for broker in self.brokers)


def make_three_brokers(folder: Path) -> ThreeBrokers:
    """Create the brokers; each with its node id, all with the same voters and replication."""
    ports = [free_port() for _ in range(3)]
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, 1))
    cluster_id = uuid.uuid4().hex[:22]
    common = {
        "controller.quorum.voters": voters,
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    return ThreeBrokers(
        [
            Broker(
                folder / f"broker-{number}",
                JARS,
                HEAP_MB,
                common | {"node.id": str(number)},
                controller_port=port,
                cluster_id=cluster_id,
            )
            for number, port in enumerate(ports, 1)
        ]
    )


@dataclass
class ProxiedCluster(Cluster):
    """A cluster that the service reaches through a proxy, and the tests directly."""

    proxy: Proxy = field(kw_only=True)


@dataclass
class IdenticalCluster(Cluster):
    """A cluster and the other candidates, which have the same records."""

    others: list[Cluster] = field(kw_only=True)


@contextmanager
def start_clusters(folder: Path, kind: Brokers, jars: Path = JARS) -> Iterator[Clusters]:
    """Start both clusters, of these jars if they are plain ones; kill them at the end."""
    with ExitStack() as stack:
        if kind == "proxied":
            pairs = [make_proxied_broker(folder / side, JARS) for side in ("source", "destination")]
            main_clusters: list[Cluster] = [
                ProxiedCluster(broker, proxy=stack.enter_context(proxy)) for broker, proxy in pairs
            ]
        elif kind == "identical":
            others = [
                Cluster(Broker(folder / f"source-{number}", JARS, HEAP_MB)) for number in (2, 3)
            ]
            main_clusters = [
                IdenticalCluster(Broker(folder / "source-1", JARS, HEAP_MB), others=others),
                Cluster(Broker(folder / "destination", JARS, HEAP_MB)),
            ]
        elif kind == "three":
            main_clusters = [
                Cluster(Broker(folder / "source", JARS, HEAP_MB)),
                Cluster(make_three_brokers(folder / "destination")),  # type: ignore[arg-type]
            ]
        else:
            main_clusters = [
                Cluster(
                    Broker(folder / side, jars, HEAP_MB, AUTHORIZER if kind == "guarded" else {})
                )
                for side in ("source", "destination")
            ]
        all_clusters = [
            *main_clusters,
            *(
                other
                for cluster in main_clusters
                if isinstance(cluster, IdenticalCluster)
                for other in cluster.others
            ),
        ]
        brokers = [
            broker
            for cluster in all_clusters
            for broker in (
                cluster.broker.brokers
                if isinstance(cluster.broker, ThreeBrokers)
                else [cluster.broker]
            )
        ]
        for broker in brokers:
            stack.callback(broker.kill)
            broker.start()
        for broker in brokers:
            broker.wait()
        yield Clusters(*main_clusters)
