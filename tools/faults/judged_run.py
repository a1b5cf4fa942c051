"""Runs a story with a seed and judges its copy: the row of the campaign's table.

A run without a fault proves nothing and is an error. After the story, either the copy becomes
exact, judged record by record, or the service has stopped as the story expects.
"""

from __future__ import annotations

import random
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.conftest import make_topic_name
from tests.harness.copy_judge import Partitions, compare_counters, compare_partitions, read_topic
from tests.harness.kafka import PAUSE_S, ROOT, Clusters
from tests.harness.service import Service
from tools.demo.broker import Broker
from tools.demo.fair_share import Limit
from tools.faults.load import Load
from tools.faults.run import HEAL_S, TRANSACTION_RECORDS, Run, Story
from tools.faults.testbed import ThreeBrokers

JUDGE_EVERY_S = 1.0
COUNTED_S = 30


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
    gaps: int = 0
    stale: int = 0
    torn: int = 0
    seconds: float = 0.0
    heal_s: float = 0.0
    """From the end of the load to an exact copy."""
    commit: str = ""
    """The commit of the code."""
    compiled: bool | None = None
    """Whether stage two used the compiled path; None when it had ended, or was not asked."""

    @property
    def is_good(self) -> bool:
        """Whether the run ended as expected."""
        return not self.verdict.startswith("FAILED")

    def to_dict(self) -> dict[str, object]:
        """As a JSON object."""
        return asdict(self)


def read_commit() -> str:
    """The commit of the working tree; empty outside a Git repository."""
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()


def run_story(story: Story, clusters: Clusters, seed: int, folder: Path, **settings: str) -> Result:
    """Run one story, with these settings of its services, and judge the copy. A failure of the
    service is a verdict, not an exception, so that the campaign continues.
    """
    topic = make_topic_name(f"fault-{story.name}")
    clusters.source.create(topic, story.partitions)
    load = Load(
        clusters.source, topic, story.partitions, story.records_per_s, paused=story.starts_paused
    )
    rng = random.Random(f"{seed} {story.name}")  # noqa: S311
    run = Run(clusters, folder, rng, topic, load, settings)
    result = Result(story.name, seed, {}, "", commit=read_commit())
    try:
        with load:
            story.inject(run)
        result.verdict = run.expected_stop or _judge(run, result)
        assert run.hits, "no fault happened: the run proves nothing"
        services = run.services + run.ended_services
        crashes = [crash for service in services for crash in service.crashes]
        assert not crashes, f"a process crashed: {crashes}"
    except Exception as failed:
        result.verdict = f"FAILED: {type(failed).__name__}: {failed}"
    finally:
        for service in run.services + run.ended_services:
            service.kill_all()
    # the log of shared brokers is not of this run alone
    if (
        not result.is_good
        and story.brokers != "shared"
        and _has_lost_markers(clusters.destination.broker)
    ):
        result.verdict = f"FAILED (perhaps KAFKA-20734, a broker skipped markers): {result.verdict}"
    result.hits, result.aborted = dict(run.hits), load.aborted
    result.seconds = round(time.monotonic() - run.started_s, 1)
    return result


def _has_lost_markers(broker: Broker | ThreeBrokers) -> bool:
    """Whether the log of one of these brokers says so (`demo.broker.MARKER_WRITER`)."""
    brokers = broker.brokers if isinstance(broker, ThreeBrokers) else [broker]
    logs = [one.folder / "broker.log" for one in brokers]
    return any("Couldn't find leader endpoint" in log.read_text(errors="replace") for log in logs)


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
    result.duplicates, result.gaps, result.stale = (
        _sum_metric(services, "reo_records_dropped_total", reason=reason)
        for reason in ("duplicate", "gap", "stale")
    )
    result.torn = _sum_metric(services, "reo_torn_records_total")
    result.compiled = _sum_metric(services, "reo_deduplicator_compiled") > 0
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
    read it, and a worker that is killed, or a transaction in doubt, may not have counted the last
    one.
    """
    limit = Limit(COUNTED_S)
    while True:
        uncertain_records = TRANSACTION_RECORDS * (
            max(
                run.stage_two_deaths,
                _sum_metric(run.services, "reo_stage_restarts_total", stage="deduplicator"),
            )
            + _sum_metric(run.services, "reo_transactions_total", outcome="unknown")
        )
        reported_records = _sum_metric(
            run.services, "reo_records_out_total", stage="deduplicator"
        ) + _sum_metric(run.services, "reo_torn_records_total")
        differences = compare_counters(copy, reported_records, uncertain_records)
        if not differences or limit.is_over():
            return differences
        time.sleep(PAUSE_S)


def _wait_until_exact(run: Run, source: Partitions) -> list[str]:
    """Compare until the copy is exact; the failure when it does not become exact."""
    limit = Limit(HEAL_S)
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
        if limit.is_over():
            return [f"not exact after {HEAL_S} s"]
        time.sleep(JUDGE_EVERY_S)


def _sum_metric(services: list[Service], name: str, **labels: str) -> int:
    return int(sum(service.metric(name, **labels) for service in services))
