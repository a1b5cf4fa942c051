"""`make bench`: throughput of a large copy, latency at a low rate, memory and processor time of each process.

Throughput is taken between 10 % and 95 % of the copy, so start-up is a figure of its own. Latency is from produce at the source to a
read_committed consumer at the destination, by one clock. Compare figures of one run only: the machine is shared.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.table import Table

from bench.processes import Usage, usage_of
from common import positions
from reo.demo.broker import Broker
from reo.demo.service import Service

JARS = Path(__file__).parent.parent / "jars" / "broker"
PARTITIONS = 4
BROKER_HEAP_MB = 1024
PATIENCE_S = 600


@dataclass
class Stand:
    """Two brokers and what is asked of them."""

    folder: Path
    source: Broker
    destination: Broker
    admin: AdminClient

    def service(self, topic: str) -> Service:
        """A service that copies this topic, with the default settings."""
        return Service({"REO_SOURCE_BOOTSTRAP_SERVERS": self.source.address, "REO_DESTINATION_BOOTSTRAP_SERVERS": self.destination.address,
                        "REO_SOURCE_TOPIC": topic}, self.folder / f"{topic}.log")

    def arrived(self, topic: str) -> int:
        """Offsets at the destination (markers of transactions included: less than one in a thousand)."""
        return sum(positions.ends(self.admin, topic, range(PARTITIONS)).values())


@dataclass
class Throughput:
    """One copy of a loaded topic."""

    records: int
    first_record_s: float = 0.0
    records_per_s: float = 0.0
    cpu_us: dict[str, float] = field(default_factory=dict)
    rss_mb: dict[str, float] = field(default_factory=dict)


def load(address: str, topic: str, records: int, value_bytes: int) -> None:
    """Write records of this value size, spread over the partitions, without compression."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 50, "batch.size": 1_000_000, "queue.buffering.max.messages": 1_000_000})
    block = os.urandom(value_bytes)
    for number in range(records):
        while True:
            try:
                producer.produce(topic, block, partition=number * PARTITIONS // records)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(120)


def throughput(stand: Stand, records: int, value_bytes: int) -> Throughput:
    """Copy a loaded topic from its beginning."""
    topic = f"load-{value_bytes}"
    stand.source.create_topic(topic, PARTITIONS)
    load(stand.source.address, topic, records, value_bytes)
    result = Throughput(records)
    service = stand.service(topic)
    begun = time.monotonic()
    try:
        service.start()
        _until(service, lambda: _exists(stand, topic) and stand.arrived(topic) > PARTITIONS)
        result.first_record_s = time.monotonic() - begun
        low = _reach(stand, service, topic, 0.10 * records)
        high = _reach(stand, service, topic, 0.95 * records)
        done = high.arrived - low.arrived
        result.records_per_s = done / (high.at - low.at)
        result.cpu_us = {name: 1e6 * (high.usage[name].cpu_s - low.usage[name].cpu_s) / done for name in high.usage}
        _until(service, lambda: stand.arrived(topic) >= records)
        result.rss_mb = {name: usage.rss_mb for name, usage in _usages(stand, service).items()}
    finally:
        service.stop()
    return result


@dataclass
class Mark:
    """A moment of the copy."""

    at: float
    arrived: int
    usage: dict[str, Usage]


def _reach(stand: Stand, service: Service, topic: str, wanted: float) -> Mark:
    _until(service, lambda: stand.arrived(topic) >= wanted)
    return Mark(time.monotonic(), stand.arrived(topic), _usages(stand, service))


def _usages(stand: Stand, service: Service) -> dict[str, Usage]:
    groups = {"stage one, JVM": service.processes("java"), "stage one, Python": service.processes("replicator"),
              "stage two": service.processes("deduplicator"), "supervisor": [service.process.pid] if service.process else []}
    for name, broker in (("source broker", stand.source), ("destination broker", stand.destination)):
        groups[name] = [broker.process.pid] if broker.process else []
    return {name: usage_of(processes) for name, processes in groups.items()}


def _exists(stand: Stand, topic: str) -> bool:
    return topic in stand.admin.list_topics(timeout=10).topics


def _until(service: Service, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if service.code is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the copy stopped (exit code {service.code}):\n{service.log.read_text()[-3000:]}")
        time.sleep(0.02)


def latency(stand: Stand, rate: int, seconds: int) -> list[float]:
    """Milliseconds from produce to a read_committed consumer, for each record of a steady load; the first 5 s are not counted."""
    topic = f"steady-{rate}"
    stand.source.create_topic(topic, PARTITIONS)
    service = stand.service(topic)
    found: list[float] = []
    try:
        service.start()
        _until(service, lambda: service.total("reo_ready", stage="replicator") == 1)
        consumer = Consumer({"bootstrap.servers": stand.destination.address, "group.id": "bench", "isolation.level": "read_committed",
                             "auto.offset.reset": "earliest", "fetch.wait.max.ms": 500})
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        producing = threading.Thread(target=_produce_steadily, args=(stand.source.address, topic, rate, seconds))
        producing.start()
        expected = rate * seconds
        deadline = time.monotonic() + seconds + 60
        while expected and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                sent, number = map(float, (message.value() or b"0 0").split())
                expected -= 1
                if number > 5 * rate:
                    found.append(1000 * (time.time() - sent))
        producing.join()
        consumer.close()
        if expected:
            raise RuntimeError(f"{expected} records did not arrive")
    finally:
        service.stop()
    return found


def _produce_steadily(address: str, topic: str, rate: int, seconds: int) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    begun = time.monotonic()
    for number in range(rate * seconds):
        delay = begun + number / rate - time.monotonic()
        if delay > 0:
            time.sleep(delay)
        producer.poll(0)
        producer.produce(topic, f"{time.time()} {number}".encode(), partition=number % PARTITIONS)
    producer.flush(30)


def report(console: Console, result: Throughput, value_bytes: int) -> None:
    """Print one copy's figures."""
    table = Table(title=f"{result.records:,} records of {value_bytes} B, {PARTITIONS} partitions, Real-Time Mode, default settings")
    table.add_column("")
    table.add_column("figure", justify="right")
    table.add_row("records/s between 10 % and 95 %", f"{result.records_per_s:,.0f}")
    table.add_row("first record at the destination after", f"{result.first_record_s:.1f} s")
    for name, microseconds in result.cpu_us.items():
        table.add_row(f"{name}: CPU per record / RSS at the end", f"{microseconds:.2f} µs / {result.rss_mb[name]:,.0f} MB")
    ours = [name for name in result.cpu_us if "broker" not in name]
    cpu_us, rss_mb = (sum(figures[name] for name in ours) for figures in (result.cpu_us, result.rss_mb))
    table.add_row("the service's processes together", f"{cpu_us:.2f} µs / {rss_mb:,.0f} MB")
    console.print(table)


def main() -> None:
    """Run all; print as it comes."""
    arguments = argparse.ArgumentParser(prog="bench")
    arguments.add_argument("--records", type=int, default=3_000_000)
    arguments.add_argument("--bytes", type=int, default=100)
    arguments.add_argument("--seconds", type=int, default=40, help="of the latency measurement")
    given = arguments.parse_args()
    console = Console(width=110)
    console.print(f"{os.cpu_count()} cores, Python {platform.python_version()}, Linux {platform.release()}; two single-node Kafka 4.3.1 brokers, "
                  f"{BROKER_HEAP_MB} MB heap each, on the same machine")
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="reo-bench-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        brokers = [Broker(folder / name, JARS, heap_mb=BROKER_HEAP_MB).start() for name in ("source", "destination")]
        for broker in brokers:
            stack.callback(broker.kill)
            broker.wait()
        stand = Stand(folder, brokers[0], brokers[1], AdminClient({"bootstrap.servers": brokers[1].address}))
        report(console, throughput(stand, given.records, given.bytes), given.bytes)
        found = sorted(latency(stand, 450, given.seconds))
        quantiles = statistics.quantiles(found, n=100)
        console.print(f"latency at 450 records/s over {given.seconds - 5} s ({len(found)} records): "
                      f"p50 {quantiles[49]:.0f} ms, p90 {quantiles[89]:.0f} ms, p99 {quantiles[98]:.0f} ms, max {found[-1]:.0f} ms")


if __name__ == "__main__":
    main()
