"""Latency: from produce at the source to a read_committed consumer at the destination, by one
clock, under a steady load; and catching up after a stop.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from common.envelope import parse_head, read_records
from tools.bench.contenders import Contender
from tools.bench.load import write_steadily
from tools.bench.testbed import Testbed
from tools.bench.throughput import wait_until_copied

WARM_S = 15
"""Not counted: both are JVMs that compile while they run."""
CAUGHT_UP_MS = 1000.0


class Arrival(NamedTuple):
    """A record that a reader of the destination got."""

    at: float
    """Seconds since 1970, as `sent_at`."""
    sent_at: float

    @property
    def latency_ms(self) -> float:
        """From produce to here."""
        return 1000 * (self.at - self.sent_at)


class Reader:
    """A read_committed consumer in a thread of its own, as a user's application would be."""

    def __init__(self, testbed: Testbed, topic: str, partitions: int) -> None:
        self.arrivals: list[Arrival] = []
        self.over = threading.Event()
        self.consumer = Consumer(
            {
                "bootstrap.servers": testbed.destination.address,
                "group.id": "bench",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 500,
            }
        )
        self.consumer.assign(
            [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        )
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        while not self.over.is_set():
            first = self.consumer.poll(0.2)
            if first is None:
                continue
            messages = [first, *self.consumer.consume(1000, 0)]
            now = time.time()
            self.keep(now, [message.value() or b"" for message in messages if not message.error()])

    def keep(self, now: float, values: list[bytes]) -> None:
        """Note the arrival of these values."""
        self.arrivals += [Arrival(now, float(value or b"0")) for value in values]

    def close(self) -> None:
        """End the thread."""
        self.over.set()
        self.thread.join()
        self.consumer.close()


class EnvelopeReader(Reader):
    """A consumer of the intermediate topic. It reads the records of an envelope only afterwards:
    that costs more than to consume it.
    """

    def __init__(self, testbed: Testbed, topic: str, partitions: int) -> None:
        self.envelopes: list[tuple[float, bytes]] = []
        super().__init__(testbed, topic, partitions)

    def keep(self, now: float, values: list[bytes]) -> None:
        """Note the arrival of these envelopes."""
        self.envelopes += [(now, value) for value in values]

    def list_arrivals(self) -> Iterator[Arrival]:
        """Of the records in the envelopes."""
        for now, value in self.envelopes:
            for record in read_records(value, parse_head(value)):
                yield Arrival(now, float(record.value or b"0"))


@contextmanager
def run_steady_load(
    testbed: Testbed, contender: Contender, topic: str, rate: int, partitions: int
) -> Iterator[Reader]:
    """A steady load that is copied and read, from the time when the first records arrive."""
    stopping = threading.Event()
    producer_thread = threading.Thread(
        target=write_steadily, args=(testbed.source.address, topic, rate, partitions, stopping)
    )
    reader = None
    contender.start()
    try:
        producer_thread.start()
        wait_until_copied(contender, lambda: testbed.count_arrived(topic, committed_only=True) > 0)
        reader = Reader(testbed, topic, partitions)
        yield reader
        if failure := contender.find_failure():
            raise RuntimeError(f"{contender.name}: {failure}")
    finally:
        stopping.set()
        producer_thread.join()
        if reader is not None:
            reader.close()
        contender.stop()


def compute_quantiles(latencies_ms: list[float], expected: int, who: str) -> dict[str, float]:
    """Quantiles in ms; RuntimeError when fewer than half of the expected records arrived."""
    if len(latencies_ms) < expected // 2:
        raise RuntimeError(f"{who}: {len(latencies_ms)} records of {expected} arrived")
    cuts = statistics.quantiles(latencies_ms, n=100)
    return {
        "p50_ms": cuts[49],
        "p90_ms": cuts[89],
        "p99_ms": cuts[98],
        "max_ms": max(latencies_ms),
        "records": len(latencies_ms),
    }


def measure_latency(
    testbed: Testbed, contender: Contender, topic: str, rate: int, seconds: int, partitions: int
) -> dict[str, float]:
    """Quantiles in ms of what is sent in `seconds`, after the warm-up."""
    with run_steady_load(testbed, contender, topic, rate, partitions) as reader:
        time.sleep(WARM_S)
        begin = time.time()
        time.sleep(seconds)
    latencies_ms = [arrival.latency_ms for arrival in reader.arrivals if arrival.sent_at >= begin]
    return compute_quantiles(latencies_ms, rate * seconds, contender.name)


def measure_hops(
    testbed: Testbed, contender: Contender, topic: str, rate: int, seconds: int, partitions: int
) -> dict[str, dict[str, float]]:
    """As `measure_latency`, for each hop of reo: until a second consumer has the record from the
    intermediate topic, and from then on until the first one has it from the destination.

    The second consumer is one more reader for the broker, so the sum is a little more than what
    `measure_latency` finds.
    """
    with run_steady_load(testbed, contender, topic, rate, partitions) as reader:
        intermediate_reader = EnvelopeReader(testbed, f"{topic}-proxy", partitions)
        try:
            time.sleep(WARM_S)
            begin = time.time()
            time.sleep(seconds)
        finally:
            intermediate_reader.close()
    first_seen: dict[float, float] = {}
    for arrival in intermediate_reader.list_arrivals():
        first_seen.setdefault(arrival.sent_at, arrival.at)
    both = [
        (1000 * (first_seen[arrival.sent_at] - arrival.sent_at), arrival.latency_ms)
        for arrival in reader.arrivals
        if arrival.sent_at >= begin and arrival.sent_at in first_seen
    ]
    return {
        hop: compute_quantiles(latencies_ms, rate * seconds, hop)
        for hop, latencies_ms in (
            ("stage one", [stage_one for stage_one, _ in both]),
            ("stage two", [total - stage_one for stage_one, total in both]),
            ("both", [total for _, total in both]),
        )
    }


def measure_catch_up(
    testbed: Testbed, contender: Contender, topic: str, rate: int, stop_s: int, partitions: int
) -> dict[str, float]:
    """Stopped for `stop_s` while the load goes on, then started: seconds from the start until
    records are less than a second old.
    """
    with run_steady_load(testbed, contender, topic, rate, partitions) as reader:
        time.sleep(WARM_S)
        contender.stop()
        time.sleep(stop_s)
        begin = time.time()
        contender.start()
        wait_until_copied(
            contender,
            lambda: (
                bool(reader.arrivals)
                and reader.arrivals[-1].at > begin
                and reader.arrivals[-1].latency_ms < CAUGHT_UP_MS
            ),
        )
        return {"catch_up_s": time.time() - begin}
