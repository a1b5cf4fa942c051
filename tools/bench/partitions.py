"""What partitions cost: memory, threads, file descriptors, the time of a start, and the processor
time of a service that has nothing to copy.

The load is a topic with a few small records in each partition. After the service was measured, its
copy is compared with the source, record by record.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer

from common.errors import ReoError
from common.kafka.partition_offsets import read_commits
from common.kafka.visible_records import read_visible
from common.records import get_compared_content
from common.routes import TopicPartition
from tools.bench.contenders import Reo
from tools.bench.load import Kind, fill
from tools.bench.processes import Usage
from tools.bench.testbed import Testbed
from tools.bench.throughput import PATIENCE_S
from tools.demo.broker import Broker

RECORDS_A_PARTITION = 100
KIND = Kind("100 B", "none", lambda rng: rng.randbytes(100))
SETTLE_S, IDLE_S = 20.0, 300.0
"""From the copy's end until processor times are measured, and for how long: a batch of Spark's,
since with many partitions its boundary costs as much as a minute of the rest.
"""
LOOK_S = 2.0


def measure_partitions(testbed: Testbed, partitions: int) -> dict[str, Any]:
    """The figures of a service that has copied a topic of so many partitions."""
    topic, records = f"partitions-{partitions}", RECORDS_A_PARTITION * partitions
    testbed.delete_topics()
    testbed.source.create_topic(topic, partitions)
    fill(testbed.source.address, topic, KIND, records, partitions, RECORDS_A_PARTITION)
    reo = Reo(testbed, topic, topic)
    start_s = time.monotonic()
    reo.start()
    try:
        _wait_until_copied(testbed, reo, topic, partitions)
        copied_s = time.monotonic() - start_s
        time.sleep(SETTLE_S)
        figures = {"copied_s": copied_s, **_measure_idle(testbed, reo)}
    finally:
        reo.stop()
    contents = read_contents(testbed.source, topic, partitions)
    assert sum(map(len, contents.values())) == records
    if read_contents(testbed.destination, topic, partitions) != contents:
        raise RuntimeError("the copy is not exact")
    return figures


def _wait_until_copied(testbed: Testbed, reo: Reo, topic: str, partitions: int) -> None:
    """Until the group's frontiers are at the end. (To ask the service's port would cost it more
    than the copy.) While the brokers still create so many partitions, a stage may be restarted.
    """
    group = Consumer({"bootstrap.servers": testbed.destination.address, "group.id": f"reo-{topic}"})
    intermediate = [TopicPartition(f"{topic}-proxy", number) for number in range(partitions)]
    deadline = time.monotonic() + PATIENCE_S
    copied: list[int] = []
    while copied != [RECORDS_A_PARTITION - 1] * partitions:
        if reo.service.code is not None or time.monotonic() > deadline:
            raise RuntimeError(f"reo does not copy: {reo.service.log.read_text()[-2000:]}")
        time.sleep(LOOK_S)
        with suppress(ReoError):
            commits = read_commits(group, intermediate)
            copied = [commit.frontier.source_offset for commit in commits.values()]
    group.close()


def read_contents(broker: Broker, topic: str, partitions: int) -> dict[int, list[object]]:
    """The committed records of each partition, in their order."""
    reader = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    contents: dict[int, list[object]] = defaultdict(list)
    begins = {TopicPartition(topic, partition): 0 for partition in range(partitions)}
    for record in read_visible(reader, begins):
        contents[record.partition()].append(get_compared_content(record))
    reader.close()
    return contents


def _measure_idle(testbed: Testbed, reo: Reo) -> dict[str, Any]:
    before = reo.usage() | testbed.broker_usage()
    time.sleep(IDLE_S)
    used = reo.usage()
    idle_percent = _compute_percents(before, used | testbed.broker_usage())
    heaps = [read_heap(java) for java in reo.service.processes("java")]
    return {
        "idle_percent": idle_percent,
        "idle_percent_all": sum(idle_percent[kind] for kind in used),
        "rss_mb": {kind: usage.rss_mb for kind, usage in used.items()},
        "rss_mb_all": sum(usage.rss_mb for usage in used.values()),
        "heap_max_mb": sum(heap_max for heap_max, _ in heaps),
        "heap_live_mb": sum(live for _, live in heaps),
        "threads": {kind: usage.threads for kind, usage in used.items()},
        "threads_all": sum(usage.threads for usage in used.values()),
        "descriptors": {kind: usage.descriptors for kind, usage in used.items()},
        "descriptors_all": sum(usage.descriptors for usage in used.values()),
    }


def _compute_percents(before: Mapping[str, Usage], after: Mapping[str, Usage]) -> dict[str, float]:
    """Of one core."""
    return {
        kind: 100 * (usage.cpu_s - before[kind].cpu_s) / IDLE_S for kind, usage in after.items()
    }


def read_heap(java: int) -> tuple[float, float]:
    """A JVM's largest possible heap, and what a collection leaves of it, in MB."""
    flags = _ask_jvm(java, "VM.flags")
    maximum = re.search(r"-XX:MaxHeapSize=(\d+)", flags)
    assert maximum, flags
    _ask_jvm(java, "GC.run")
    used = re.findall(r"(?:PSYoungGen|ParOldGen) .* used (\d+)K", _ask_jvm(java, "GC.heap_info"))
    return int(maximum[1]) / 2**20, sum(map(int, used)) / 2**10


def _ask_jvm(java: int, command: str) -> str:
    return subprocess.run(
        ["jcmd", str(java), command], capture_output=True, text=True, check=True
    ).stdout
