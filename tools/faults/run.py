"""What a story has in its hands: the clusters, the load and the services of one run.

A story injects faults and returns. `record_fault` counts the faults that happened. What follows is
in `judged_run`, unless the story expects that the service stops (`expect_final_stop`): then the
copy may only have records that the source had at the time of the fault.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from common.errors import Stop
from tests.harness.copy_judge import Partitions
from tests.harness.kafka import Clusters, until
from tests.harness.service import Service, build_environment, send_signal
from tools.faults.load import Load
from tools.faults.testbed import Brokers, ProxiedCluster

PARTITIONS = 4
TRANSACTION_RECORDS = 500
"""Small transactions, so that a fault at a random time can hit every step of one."""
SESSION_S = 6
HEAL_S = 150
DEFAULTS = {
    "deduplicator_transaction_records": str(TRANSACTION_RECORDS),
    "deduplicator_session_timeout_ms": str(1000 * SESSION_S),
    "deduplicator_transaction_timeout_ms": "12000",
    "replicator_memory_mb": "512",
}
RUN_BEGINS = "begins at {"


@dataclass
class Run:
    """The clusters, the load and the services of a run, for its story."""

    clusters: Clusters
    folder: Path
    rng: random.Random
    topic: str
    load: Load
    settings: dict[str, str] = field(default_factory=dict)
    """Of each service; they win over those of its story."""
    hits: Counter[str] = field(default_factory=Counter)
    services: list[Service] = field(default_factory=list)
    """Services that must be running."""
    ended_services: list[Service] = field(default_factory=list)
    stage_two_deaths: int = 0
    expected_stop: str = ""
    counters_lost: bool = False
    started_s: float = field(default_factory=time.monotonic)

    def start(self, *arguments: str, **settings: str) -> Service:
        """Start a service that copies the topic, with small transactions and short sessions."""
        number = len(self.services) + len(self.ended_services)
        proxy_addresses = {
            f"{side}_bootstrap_servers": cluster.proxy.address
            for side, cluster in vars(self.clusters).items()
            if isinstance(cluster, ProxiedCluster)
        }
        environment = build_environment(
            self.clusters,
            self.topic,
            DEFAULTS | {"instance": f"test-{number}"} | proxy_addresses | settings | self.settings,
        )
        service = Service(self.folder / f"service-{number}" / "tmp", environment, arguments)
        self.services.append(service)
        return service.start()

    def record_fault(self, what: str, number: int = 1) -> None:
        """Count a fault that happened."""
        self.hits[what] += number

    @property
    def destination_offsets(self) -> int:
        """Offsets at the destination."""
        return self.clusters.destination.count_offsets(self.topic)

    def wait_for_progress(self, least: int = 1000, most: int = 4000) -> None:
        """Wait until more records have arrived, then for up to 50 ms."""
        target_offsets = self.destination_offsets + self.rng.uniform(least, most)

        def has_arrived() -> bool:
            for service in self.services:
                assert service.process.poll() is None, (
                    "the service has ended with"
                    f" {service.process.returncode}:\n{service.read_log_tail()}"
                )
            return self.destination_offsets >= target_offsets

        until(has_arrived, f"{target_offsets:.0f} offsets at the destination", HEAL_S)
        time.sleep(self.rng.uniform(0, 0.05))

    def kill_stage(self, service: Service, stage: str, worker: int = 0) -> None:
        """SIGKILL to a stage's process, or to the JVM, while the load goes on."""
        victim = until(lambda: service.find_pid(stage, worker), f"{stage} {worker} runs")
        send_signal(victim)
        self.stage_two_deaths += stage == "deduplicator"
        self.record_fault(
            {
                "jvm": "SIGKILL of the JVM",
                "replicator": "SIGKILL of stage one",
                "deduplicator": "SIGKILL of stage two",
            }[stage]
        )

    def mark_ended(self, service: Service) -> None:
        """The service has ended as the story expects."""
        self.services.remove(service)
        self.ended_services.append(service)

    def stop(self, service: Service) -> None:
        """Stop the service with SIGTERM; its counters are lost."""
        service.stop()
        self.mark_ended(service)
        self.counters_lost = True

    def expect_stop(self, service: Service, error: type[Stop]) -> None:
        """Wait until the service stops with this error and its exit code."""
        code = service.wait_for_exit(HEAL_S)
        assert code == error.exit_code, (
            f"exit code {code} instead of {error.exit_code}:\n{service.read_log_tail()}"
        )
        assert any(f" {error.__name__}: " in line for line in service.errors), (
            f"{error.__name__} is not named:\n{service.read_log_tail()}"
        )
        self.mark_ended(service)
        self.counters_lost = True

    def expect_final_stop(self, service: Service, error: type[Stop], before: Partitions) -> None:
        """Expect a stop, which ends the story: each partition of the copy is a prefix of the
        source's records `before`.
        """
        self.expect_stop(service, error)
        copy = self.clusters.destination.read(self.topic)
        unexpected_partitions = [
            partition
            for partition, records in copy.items()
            if records != before.get(partition, [])[: len(records)]
        ]
        assert not unexpected_partitions, (
            f"partitions {unexpected_partitions} have records that the source did not have when it"
            " was harmed"
        )
        self.expected_stop = f"stopped as expected: {error.__name__}, exit code {error.exit_code}"

    def read_source(self) -> Partitions:
        """All records of the source; the load must be paused. Its last transaction can have timed
        out for the load, and be committed or aborted by the broker only later.
        """
        until(
            lambda: self.clusters.source.has_no_open_transaction(self.topic),
            "no transaction is open at the source",
        )
        return self.clusters.source.read(self.topic)


Inject = Callable[[Run], None]


@dataclass(frozen=True)
class Story:
    """A name, the function that injects the fault, and the brokers that it needs."""

    name: str
    inject: Inject
    brokers: Brokers = "shared"
    partitions: int = PARTITIONS
    records_per_s: int = 1500
    starts_paused: bool = False
    """Whether the load starts paused, until the story resumes it."""
