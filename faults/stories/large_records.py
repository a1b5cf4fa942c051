"""A topic at the destination refuses a record for its size: the intermediate topic, which leaves a
hole in what follows, or the destination topic. The stories are in `intermediates`.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import cast

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from common.errors import RecordRefused
from common.kafka import intermediate_records
from common.records import Consumed
from faults.run import PARTITIONS, Run
from tests.harness.judge import Record
from tests.harness.kafka import make_record, until

SMALL_BYTES, LARGE_BYTES = 200_000, 300_000
"""Above a producer's batch.size: the Java client splits a refused batch into parts of that size,
again and again if they are too large too.
"""
HOLE_ATTEMPTS = 6


class IntermediateReader(threading.Thread):
    """Reads the intermediate topic as it is written: which source offsets came, in which order."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "witness",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        self.consumer.assign(
            [TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
        )
        self.source_offsets: dict[int, list[int]] = defaultdict(list)
        self.stopping = threading.Event()

    def run(self) -> None:
        """Read on."""
        while not self.stopping.is_set():
            for message in cast(list[Consumed], self.consumer.consume(1000, 0.1)):
                if (
                    message.error() is None
                    and intermediate_records.parse_read_up_to(message) is None
                ):
                    self.source_offsets[message.partition()].append(
                        intermediate_records.parse_origin(message).source_offset
                    )
        self.consumer.close()

    def count_lost_by_highest_seen(self) -> int:
        """What a rule loses that drops whatever is not beyond the highest offset seen."""
        lost = 0
        for offsets in list(self.source_offsets.values()):
            highest, forwarded = -1, set()
            for offset in list(offsets):
                if offset > highest:
                    highest = offset
                    forwarded.add(offset)
            lost += len(set(offsets) - forwarded)
        return lost


def set_max_message_bytes(run: Run, topic: str, size: int) -> None:
    """Set max.message.bytes of a topic at the destination."""
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    run.clusters.destination.admin.incremental_alter_configs([resource])[resource].result()
    until(
        lambda: run.clusters.destination.config(topic)["max.message.bytes"] == str(size),
        "the limit is set",
    )


def write_large_record(run: Run) -> None:
    """One in the middle of many small ones, in a partition."""
    numbers = [next(run.load.numbers) for _ in range(4001)]
    small = [make_record(number) for number in numbers]
    large = Record(b"large", b"x" * LARGE_BYTES, (), 1_700_000_000_000)
    run.clusters.source.write(
        run.topic, [(0, record) for record in (*small[:2000], large, *small[2000:])]
    )


def make_hole(run: Run) -> None:
    """The intermediate topic refuses one record in the middle of a batch, and takes those behind
    it: a named stop; with the limit raised, exact.

    Whether batches behind the refused one are on their way already is the producer's timing: it is
    done again until some were.
    """
    service = run.start()
    witness = IntermediateReader(run.clusters.destination.address, f"{run.topic}-proxy")
    witness.start()
    lost = 0
    for _ in range(HOLE_ATTEMPTS):
        run.wait_for_progress(5000, 6000)
        set_max_message_bytes(run, f"{run.topic}-proxy", SMALL_BYTES)
        write_large_record(run)
        run.record_fault("record refused by the intermediate topic")
        run.expect_stop(service, RecordRefused)
        set_max_message_bytes(run, f"{run.topic}-proxy", 1_100_000)
        service = run.start()
        run.wait_for_progress(5000, 6000)
        lost = witness.count_lost_by_highest_seen()
        if lost:
            break
    witness.stopping.set()
    witness.join()
    assert lost, "this was no hole: the rule of the highest offset seen would have lost nothing"
    run.record_fault("records that a highest-seen rule loses here", lost)


def refuse_large_record(run: Run) -> None:
    """The destination refuses a record: a named stop with its place; with the limit raised,
    exact.
    """
    service = run.start()
    run.wait_for_progress()
    set_max_message_bytes(run, run.topic, SMALL_BYTES)
    write_large_record(run)
    run.record_fault("record refused by the destination")
    run.expect_stop(service, RecordRefused)
    set_max_message_bytes(run, run.topic, 1_048_588)
    run.start()
    run.wait_for_progress()
