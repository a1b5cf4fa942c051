"""One run: a story, a seed, and the result.

A story injects faults and returns. `record_fault` counts the faults that happened; a run without
one proves nothing and is an error. Then either the copy becomes exact, judged record by record, or
the story expects that the service stops (`expect_final_stop`): then the copy may only have records
that the source had at the time of the fault.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from common.errors import Stop
from faults.load import Load
from faults.testbed import Brokers, ProxiedCluster
from faults.timeline import Timeline
from tests.conftest import make_topic_name
from tests.harness.judge import Partitions, compare_counters, compare_partitions, read_topic
from tests.harness.kafka import PAUSE_S, Clusters, until
from tests.harness.service import Service, build_environment, send_signal

PARTITIONS = 4
TRANSACTION_RECORDS = 500
"""Small transactions, so that a fault at a random time can hit every step of one."""
SESSION_S = 6
HEAL_S = 150
JUDGE_EVERY_S = 1.0
COUNTED_S = 30
DEFAULTS = {
    "deduplicator_transaction_records": str(TRANSACTION_RECORDS),
    "deduplicator_session_timeout_ms": str(1000 * SESSION_S),
    "deduplicator_transaction_timeout_ms": "12000",
    "replicator_memory_mb": "512",
}
RUN_BEGINS = "begins at {"


@dataclass
class Result:
    """A row of the campaign's table."""

    story: str
    seed: int
    hits: dict[str, int]
    verdict: str
    records: int = 0
    aborted: int = 0
    duplicates: int = 0
    holes: int = 0
    stale: int = 0
    torn: int = 0
    seconds: float = 0.0
    heal_s: float = 0.0
    """From the end of the load to an exact copy."""
    commit: str = ""
    """The commit of the code."""
    timeline: list[tuple[float, int, int]] = field(default_factory=list)
    """(seconds, offsets at the source, offsets at the destination), for stories that ask for it."""
    marks: list[tuple[float, str]] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether the run ended as expected."""
        return not self.verdict.startswith("FAILED")

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


@dataclass
class Run:
    """The clusters, the load and the services of a run, for its story."""

    clusters: Clusters
    folder: Path
    rng: random.Random
    topic: str
    load: Load
    hits: Counter[str] = field(default_factory=Counter)
    services: list[Service] = field(default_factory=list)
    """Services that must be running."""
    ended_services: list[Service] = field(default_factory=list)
    stage_two_deaths: int = 0
    expected_stop: str = ""
    counters_lost: bool = False
    started_s: float = field(default_factory=time.monotonic)
    marks: list[tuple[float, str]] = field(default_factory=list)

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
            DEFAULTS | {"instance": f"test-{number}"} | proxy_addresses | settings,
        )
        service = Service(self.folder / f"service-{number}" / "tmp", environment, arguments)
        self.services.append(service)
        return service.start()

    def record_fault(self, what: str, number: int = 1) -> None:
        """Count a fault that happened."""
        self.hits[what] += number
        self.marks.append((time.monotonic() - self.started_s, what))

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
        self.expected_stop = f"stopped as it has to: {error.__name__}, exit code {error.exit_code}"

    def read_source(self) -> Partitions:
        """All records of the source; the load must be paused."""
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
    timeline: bool = False
    """Whether offsets over time are recorded, for the picture."""


def run_story(story: Story, clusters: Clusters, seed: int, folder: Path) -> Result:
    """Run one story and judge the copy. A failure of the service is a verdict, not an exception, so
    that the campaign continues.
    """
    topic = make_topic_name(f"fault-{story.name}")
    clusters.source.create(topic, story.partitions)
    load = Load(
        clusters.source, topic, story.partitions, story.records_per_s, paused=story.starts_paused
    )
    run = Run(clusters, folder, random.Random(f"{seed} {story.name}"), topic, load)  # noqa: S311
    result = Result(story.name, seed, {}, "")
    timeline = Timeline(clusters, topic)
    if story.timeline:
        timeline.start()
    try:
        with load:
            story.inject(run)
        result.verdict = run.expected_stop or _judge(run, result)
        assert run.hits, "no fault happened: the run proves nothing"
    except Exception as failed:
        result.verdict = f"FAILED: {type(failed).__name__}: {failed}"
    finally:
        for service in run.services + run.ended_services:
            service.kill_all()
        result.timeline = timeline.stop() if story.timeline else []
    result.hits, result.marks, result.aborted = dict(run.hits), run.marks, load.aborted
    result.seconds = round(time.monotonic() - run.started_s, 1)
    return result


def _judge(run: Run, result: Result) -> str:
    """Wait for an exact copy; then compare the counters, stop the services, look for open
    transactions and compare again.
    """
    load_end_s = time.monotonic()
    source = run.read_source()
    result.records = sum(map(len, source.values()))
    differences = _wait_until_exact(run, source)
    result.heal_s = round(time.monotonic() - load_end_s, 1)
    services = run.services
    result.duplicates, result.holes, result.stale = (
        _sum_metric(services, "reo_records_dropped_total", reason=reason)
        for reason in ("duplicate", "hole", "stale")
    )
    result.torn = _sum_metric(services, "reo_torn_records_total")
    copy = run.clusters.destination.read(run.topic)
    if not run.counters_lost:
        differences += _compare_counters(run, copy)
    for service in services:
        if service.process.poll() is None:
            service.stop()
    if not run.clusters.destination.wait_until_no_transaction_is_open(run.topic):
        differences.append("a transaction is open")
    differences += compare_partitions(
        source, copy, read_topic(run.clusters.source.address, run.topic, "read_uncommitted")
    )
    return "exact" if not differences else "FAILED: " + "; ".join(dict.fromkeys(differences))


def _compare_counters(run: Run, copy: Partitions) -> list[str]:
    """Compare the service's counters with the copy; it may count a transaction after a consumer has
    read it.
    """
    deadline = time.monotonic() + COUNTED_S
    while True:
        uncertain_records = TRANSACTION_RECORDS * (
            run.stage_two_deaths
            + _sum_metric(run.services, "reo_transactions_total", outcome="unknown")
        )
        reported_records = _sum_metric(
            run.services, "reo_records_out_total", stage="deduplicator"
        ) + _sum_metric(run.services, "reo_torn_records_total")
        differences = compare_counters(copy, reported_records, uncertain_records)
        if not differences or time.monotonic() > deadline:
            return differences
        time.sleep(PAUSE_S)


def _wait_until_exact(run: Run, source: Partitions) -> list[str]:
    """Compare until the copy is exact; the failure when it does not become exact."""
    deadline = time.monotonic() + HEAL_S
    expected_records = sum(map(len, source.values()))
    while True:
        failed_services = [
            service for service in run.services if service.process.poll() not in (None, 0)
        ]
        if failed_services:
            reason = (
                " ".join(failed_services[-1].errors[:1])
                or failed_services[-1].read_log_tail()[-500:]
            )
            exit_code = failed_services[-1].process.returncode
            return [f"the service ended with exit code {exit_code}: {reason}"]
        if run.destination_offsets >= expected_records and not compare_partitions(
            source, run.clusters.destination.read(run.topic)
        ):
            return []
        if time.monotonic() > deadline:
            return [f"not exact after {HEAL_S} s"]
        time.sleep(JUDGE_EVERY_S)


def _sum_metric(services: list[Service], name: str, **labels: str) -> int:
    return int(sum(service.metric(name, **labels) for service in services))


def count_deaths(service: Service, stage: str) -> int:
    """How many processes of this stage the supervisor has seen end."""
    return len(re.findall(rf" reo: {stage}-\d+ ended ", service.log))
