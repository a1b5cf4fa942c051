"""Identical source clusters: one candidate after the other dies or stops, while all receive the
same records and the copy fails over.

The story has its own load: every candidate has a producer that retries without end, so a candidate
that was down gets the missed records in order.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Self

from tests.harness.kafka import Cluster, make_record, until
from tools.faults.run import PARTITIONS, Run, Story
from tools.faults.stories.brokers import FAULTS
from tools.faults.testbed import IdenticalCluster

RECORDS_PER_S = 1500
TICK_S = 0.02
FAILOVER = {
    "source_mode": "failover",
    "source_healthcheck_interval_ms": "500",
    "source_request_timeout_ms": "1000",
    "source_backoff_min_ms": "500",
}


class IdenticalFeed(threading.Thread):
    """Writes the same records to each candidate until the end of the `with` block; then each
    candidate has all records.
    """

    def __init__(self, candidates: Sequence[Cluster], topic: str) -> None:
        super().__init__(daemon=True, name=f"feed of {topic}")
        self.producers = [
            candidate.producer(linger_ms=2, message_timeout_ms=600_000) for candidate in candidates
        ]
        self.topic = topic
        self._ending = threading.Event()

    def __enter__(self) -> Self:
        """Begin."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End; every producer delivers its queue."""
        self._ending.set()
        self.join(60)
        assert not any(producer.flush(60) for producer in self.producers), (
            "a candidate did not get all records"
        )

    def run(self) -> None:
        """One tick after the other."""
        numbers = itertools.count()
        while not self._ending.wait(TICK_S):
            for number in itertools.islice(numbers, int(RECORDS_PER_S * TICK_S)):
                record = make_record(number)
                for producer in self.producers:
                    producer.produce(
                        self.topic,
                        record.value,
                        record.key,
                        number % PARTITIONS,
                        None,
                        None,
                        record.timestamp_ms,
                        list(record.headers),
                    )
            for producer in self.producers:
                producer.poll(0)


def fault_candidates(run: Run, way: str, times: int = 3) -> None:
    """A fault of each candidate in turn, with copied records in between; the copy must fail over at
    least once.
    """
    source = run.clusters.source
    assert isinstance(source, IdenticalCluster)
    candidates: list[Cluster] = [source, *source.others]
    for other in source.others:
        other.create(run.topic, PARTITIONS)
    with IdenticalFeed(candidates, run.topic):
        service = run.start(
            source_bootstrap_servers=";".join(candidate.address for candidate in candidates),
            **FAILOVER,
        )
        run.wait_for_progress()
        for number in range(times):
            FAULTS[way](candidates[number % len(candidates)].broker, run)
            run.wait_for_progress()
        until(
            lambda: service.metric("reo_source_switches_total") > 0,
            "the copy failed over to another candidate",
        )
        run.record_fault("failover", int(service.metric("reo_source_switches_total")))
        time.sleep(run.rng.uniform(0, 2))


STORIES = tuple(
    Story(
        f"identical sources, {way}",
        partial(fault_candidates, way=way),
        brokers="identical",
        starts_paused=True,
    )
    for way in ("SIGKILL", "SIGSTOP")
)
