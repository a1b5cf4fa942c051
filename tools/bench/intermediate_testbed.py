"""The intermediate topic as where a copy ends: what arrives there is what its envelopes cover of
the source, and stage one alone writes it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException

from common.errors import ReoError
from common.kafka import intermediate_records, partition_offsets
from tools.bench.contenders import Reo
from tools.bench.testbed import Testbed
from tools.bench.throughput import wait_until_copied

RUN_BEGINS = "begins at {"
"""What stage one says when its run has begun."""
PAUSE_S = 0.1
"""Before each look: it fetches an envelope of each partition."""


@dataclass
class IntermediateTestbed(Testbed):
    """The same brokers; records are counted by the newest envelopes."""

    def __post_init__(self) -> None:
        self.reader = Consumer(
            {
                "bootstrap.servers": self.destination.address,
                "group.id": "bench-envelopes",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
        )

    # nobody reads anything else
    def count_arrived(self, *topics: str, committed_only: bool = False) -> int:  # noqa: ARG002
        """The source offsets that are covered: the source has no gaps."""
        time.sleep(PAUSE_S)
        partitions = self.list_partitions(topics)
        try:
            begins, ends = partition_offsets.list_bounds(self.admin, partitions)
        except (KafkaException, ReoError):  # a new topic: no leader yet
            return 0
        heads = intermediate_records.read_newest_heads(
            self.reader,
            {tp: (begins[tp], ends[tp]) for tp in partitions},
            {tp: tp for tp in partitions},
        )
        return sum(head.through + 1 for head in heads.values())


def count_by_envelopes(testbed: Testbed) -> IntermediateTestbed:
    """The same testbed, with the intermediate topic as where a copy ends."""
    return IntermediateTestbed(testbed.folder, testbed.source, testbed.destination, testbed.admin)


class StageOneAlone(Reo):
    """Stage one without a reader. A run begins when stage two has read the intermediate topic, so
    stage two runs until then.
    """

    def __init__(self, testbed: Testbed, topic: str, label: str, **settings: str) -> None:
        super().__init__(testbed, topic, label, "replicator", **settings)
        self.stage_two = Reo(testbed, topic, label, "deduplicator", **settings)

    def start(self) -> None:
        """Start both, and stop stage two when the run has begun."""
        self.stage_two.start()
        super().start()
        try:
            wait_until_copied(self, lambda: RUN_BEGINS in self.service.log.read_text())
        finally:
            self.stage_two.stop()
