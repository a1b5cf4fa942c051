"""Envelopes come again, in any order, as from zombies and late retries: each is a true statement
for ever, so that costs nothing but work.
"""

from __future__ import annotations

import random
import threading
import time
from typing import cast

from confluent_kafka import Consumer, TopicPartition

from common.envelope import parse_head
from common.records import Consumed
from tests.harness.copy_judge import Record
from tools.faults.run import HEAL_S, PARTITIONS, Run, Story

REPEATED, REPEATED_AT_ONCE = 500, 5


class Repeater(threading.Thread):
    """Writes the envelopes of the intermediate topic again and again, in any order, as zombies and
    late retries would.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(daemon=True, name="repeater")
        self.clusters, self.topic = run.clusters, f"{run.topic}-proxy"
        self.rng = random.Random(run.rng.random())  # noqa: S311
        self.envelopes: list[tuple[int, Record]] = []
        self.repeated = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        """Read, and repeat some of what was read."""
        cluster = self.clusters.destination.for_another_thread()
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.address,
                "group.id": "repeater",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.assign(
            [TopicPartition(self.topic, partition, 0) for partition in range(PARTITIONS)]
        )
        while not self.stopping.is_set():
            messages = cast(list[Consumed], consumer.consume(100, 0.2))
            self.envelopes += [
                (message.partition(), Record(None, message.value()))
                for message in messages
                if message.error() is None
            ]
            self.envelopes = self.envelopes[-REPEATED:]
            if self.envelopes:
                cluster.write(self.topic, self.rng.choices(self.envelopes, k=REPEATED_AT_ONCE))
                self.repeated += REPEATED_AT_ONCE
        consumer.close()


def repeat_envelopes(run: Run) -> None:
    """Envelopes come again, in any order, also those of runs that have ended: each is a true
    statement for ever.
    """
    service = run.start()
    run.wait_for_progress()
    repeater = Repeater(run)
    repeater.start()
    try:
        for _ in range(2):
            run.wait_for_progress()
            run.kill_stage(service, "jvm")
            run.wait_for_progress()
    finally:
        repeater.stopping.set()
        repeater.join(HEAL_S)
    epochs = {parse_head(record.value).epoch for _, record in repeater.envelopes}
    assert repeater.repeated, "no envelope was repeated"
    run.record_fault("repeated intermediate records", repeater.repeated)
    run.record_fault("runs of the repeated records", len(epochs))
    time.sleep(run.rng.uniform(0, 1))


STORIES = (Story("envelopes repeated in any order", repeat_envelopes),)
