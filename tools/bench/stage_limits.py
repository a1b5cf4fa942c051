"""The limits: each stage alone, `reo verify`, and a loop of confluent-kafka that only consumes and
produces.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, cast

import orjson
from confluent_kafka import Consumer, Producer, TopicPartition

from common.parent_death_signal import list_children, set_parent_death_signal
from common.records import Consumed
from tools.bench.contenders import Reo
from tools.bench.intermediate_testbed import StageOneAlone, count_by_envelopes
from tools.bench.processes import usage_of
from tools.bench.testbed import Testbed
from tools.bench.throughput import measure_copy, wait_until_copied

BARE = "bare"


def measure_stage_one(testbed: Testbed, topic: str, label: str, records: int) -> dict[str, Any]:
    """From the source to the intermediate topic, without a reader."""
    testbed.delete_topics()
    return measure_copy(
        count_by_envelopes(testbed),
        StageOneAlone(testbed, topic, label),
        [f"{topic}-proxy"],
        records,
    ).to_row()


def measure_stage_two(testbed: Testbed, topic: str, label: str, records: int) -> dict[str, Any]:
    """From the intermediate topic, as `measure_stage_one` has filled it, to the destination."""
    return measure_copy(
        testbed, Reo(testbed, topic, label, "deduplicator"), [topic], records
    ).to_row()


def measure_verify(
    testbed: Testbed, topic: str, label: str, records: int, partitions: int
) -> dict[str, float]:
    """`reo verify` over the copy that `measure_stage_two` has left, with its start; the maximum of
    processor time and memory of all its processes.
    """
    # `measure_copy` counts markers: the last few records may not be copied
    stage_two = Reo(testbed, topic, label, "deduplicator")
    _run_until(
        stage_two, lambda: stage_two.service.total("reo_frontier_offset") == records - partitions
    )
    environment = os.environ | stage_two.service.settings
    process = subprocess.Popen(
        [sys.executable, "-m", "reo", "verify", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        preexec_fn=set_parent_death_signal,
    )
    cpu_s = rss_mb = 0.0
    while process.poll() is None:
        usage = usage_of([process.pid, *list_children(process.pid)])
        cpu_s, rss_mb = max(cpu_s, usage.cpu_s), max(rss_mb, usage.rss_mb)
        time.sleep(0.1)
    result = orjson.loads(process.communicate()[0] or b"{}")
    if process.returncode or result["records"] != records:
        raise RuntimeError(f"reo verify: exit code {process.returncode}, {result}")
    return {
        "records_per_s": records / result["seconds"],
        "cpu_us_all": 1e6 * cpu_s / records,
        "rss_mb_all": rss_mb,
    }


def _run_until(reo: Reo, condition: Callable[[], bool]) -> None:
    """Run a service until the condition holds."""
    reo.start()
    try:
        wait_until_copied(reo, condition)
    finally:
        reo.stop()


def measure_bare_loop(
    testbed: Testbed, topic: str, records: int, partitions: int
) -> dict[str, float]:
    """Consume and produce key, value, headers and timestamp; no transaction, no decision, one
    process.
    """
    testbed.delete_topics()
    testbed.destination.create_topic(BARE, partitions)
    consumer = _create_bare_consumer(testbed)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    producer = _create_bare_producer(testbed)
    copied, start_s, cpu_s = 0, 0.0, 0.0
    while copied < records:
        for message in cast(list[Consumed], consumer.consume(10_000, 0.2)):
            headers = cast(Any, message.headers() or [])
            while True:
                try:
                    producer.produce(
                        BARE,
                        message.value(),
                        message.key(),
                        message.partition(),
                        None,
                        None,
                        message.timestamp()[1],
                        headers,
                    )
                    break
                except BufferError:
                    producer.poll(0.05)
            copied += 1
        producer.poll(0)
        if copied and not start_s:
            start_s, cpu_s, copied = time.monotonic(), time.process_time(), 0
            records -= 10_000
    producer.flush(60)
    consumer.close()
    return {
        "records_per_s": copied / (time.monotonic() - start_s),
        "cpu_us_all": 1e6 * (time.process_time() - cpu_s) / copied,
    }


def _create_bare_consumer(testbed: Testbed) -> Consumer:
    """A consumer of the source that is not held back by its queue."""
    return Consumer(
        {
            "bootstrap.servers": testbed.source.address,
            "group.id": "bare",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 200_000,
            "queued.max.messages.kbytes": 131_072,
            "fetch.message.max.bytes": 4_194_304,
        }
    )


def _create_bare_producer(testbed: Testbed) -> Producer:
    """A producer for the destination as safe as ours, but for transactions."""
    return Producer(
        {
            "bootstrap.servers": testbed.destination.address,
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 500_000,
            "acks": "all",
            "enable.idempotence": True,
        }
    )
