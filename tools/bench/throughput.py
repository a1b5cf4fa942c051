"""Throughput: one contender copies an existing topic from its beginning.

The rate is measured between 10 % and 95 % of the copy, so start-up is a separate figure; processor
time and the brokers' share are of the same interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tools.bench.contenders import Contender
from tools.bench.processes import Usage
from tools.bench.testbed import Testbed

PATIENCE_S = 900
LOW, HIGH = 0.10, 0.95


@dataclass
class Copy:
    """The figures of one copy."""

    first_record_s: float
    """From the start of the processes until a read_committed reader could have the first record."""
    records_per_s: float
    cpu_us: dict[str, float] = field(default_factory=dict)
    """Per record, by kind of process."""
    rss_mb: dict[str, float] = field(default_factory=dict)
    """At the end of the copy, by kind of process."""
    brokers_us: float = 0.0
    """Both brokers, per record."""

    def to_row(self) -> dict[str, Any]:
        """As a JSON object, with the sums over the contender's processes."""
        return asdict(self) | {
            "cpu_us_all": sum(self.cpu_us.values()),
            "rss_mb_all": sum(self.rss_mb.values()),
        }


@dataclass
class Mark:
    """The counters at one time of the copy."""

    at: float
    arrived: int
    used: dict[str, Usage]
    brokers: dict[str, Usage]

    def since(self, before: Mark) -> Copy:
        """The figures between two marks."""
        records = self.arrived - before.arrived
        cpu_us = {
            kind: 1e6 * (used.cpu_s - before.used[kind].cpu_s) / records
            for kind, used in self.used.items()
        }
        brokers_us = sum(
            1e6 * (used.cpu_s - before.brokers[name].cpu_s) / records
            for name, used in self.brokers.items()
        )
        return Copy(0.0, records / (self.at - before.at), cpu_us, {}, brokers_us)


def measure_copy(
    testbed: Testbed, contender: Contender, topics: Sequence[str], records: int
) -> Copy:
    """Let the contender copy `records` of filled topics; `topics` are where they arrive."""
    start_s = time.monotonic()
    contender.start()
    try:
        wait_until_copied(
            contender, lambda: testbed.count_arrived(*topics, committed_only=True) > 0
        )
        first_record_s = time.monotonic() - start_s
        low = _mark(testbed, contender, topics, LOW * records)
        copy = _mark(testbed, contender, topics, HIGH * records).since(low)
        wait_until_copied(contender, lambda: testbed.count_arrived(*topics) >= records)
        copy.rss_mb = {kind: used.rss_mb for kind, used in contender.usage().items()}
    finally:
        contender.stop()
    copy.first_record_s = first_record_s
    return copy


def _mark(testbed: Testbed, contender: Contender, topics: Sequence[str], records: float) -> Mark:
    wait_until_copied(contender, lambda: testbed.count_arrived(*topics) >= records)
    return Mark(
        time.monotonic(), testbed.count_arrived(*topics), contender.usage(), testbed.broker_usage()
    )


def wait_until_copied(contender: Contender, condition: Callable[[], bool]) -> None:
    """Wait; RuntimeError when the contender stops copying, or after PATIENCE_S."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        failure = contender.find_failure()
        if failure or time.monotonic() > deadline:
            raise RuntimeError(
                f"{contender.name} does not copy: {failure or f'nothing for {PATIENCE_S} s'}"
            )
        time.sleep(0.02)
