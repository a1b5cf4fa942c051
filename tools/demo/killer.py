"""Chooses, from a seed, at which point of the copy which process is killed, and kills it while it
works.

A stage is killed when what it has written passes a threshold, and only while it says that it is at
work: a process that is still starting has nothing to lose.

Before a new run begins, stage two has read all that older ones have written: after a kill of stage
one nothing comes twice. So its last one is a zombie: everything of the service stands still, as on
a machine that hangs, another service takes its place, and then the JVM of the first one goes on.
What that writes comes a second time, and stage two has to drop it.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from common.errors import ClusterUnreachable
from common.kafka import intermediate_records, partition_offsets
from common.routes import TopicPartition
from tools.demo.process import kill
from tools.demo.service import Service

EARLIEST, LATEST = 0.05, 0.85
AHEAD = 0.08
"""How far, as a part of all records, the load may be ahead of the next kill: no kill is missed
because the copy was too fast.
"""
QUIET_S = 60
VICTIMS = {"replicator": ("replicator", "java"), "deduplicator": ("deduplicator",)}
ZOMBIE = "everything"
"""The victim that wakes again."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill that happened."""

    stage: str
    victim: str
    written: int

    def __str__(self) -> str:
        """The line that says so."""
        how, of = "SIGKILL", f"of stage {'one' if self.stage == 'replicator' else 'two'}"
        if self.victim == ZOMBIE:
            how, of = "SIGSTOP", "of the service"
        return f"{how} {self.victim:<12} {of} after {self.written:>7} written records"


class Killer:
    """Watches both topics of the destination cluster at `address` and kills at the thresholds."""

    def __init__(
        self,
        seed: int,
        kills: int,
        total: int,
        service: Service,
        address: str,
        topics: dict[str, str],
        partitions: int,
    ) -> None:
        choose = random.Random(seed)
        self.total = total
        self.service = service
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        self.reader = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "demo",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )
        self.covered = dict.fromkeys(range(partitions), 0)
        """By partition, how many source offsets the newest known envelope covers: stage two
        deletes envelopes that it has copied.
        """
        self.topics = topics
        self.partitions = range(partitions)
        self.due = {
            stage: sorted(choose.uniform(EARLIEST, LATEST) for _ in range(kills))
            for stage in topics
        }
        self.victims = {
            stage: [choose.choice(VICTIMS[stage]) for _ in range(kills)] for stage in topics
        }
        self.victims["replicator"][-1:] = [ZOMBIE] * bool(kills)
        self.zombie: Service | None = None
        """The service that was replaced."""
        self.asleep: list[int] = []
        """The process id of its JVM, until that goes on."""
        self.written_at_kill = dict.fromkeys(topics, 0)
        self.done: list[Kill] = []

    def work(self, progress: Callable[[str, int], None], said: Callable[[str], None]) -> None:
        """Until everything is killed that was planned, or nothing moves any more."""
        while self.service.code is None and not self.service.total("reo_ready", stage="replicator"):
            time.sleep(0.1)  # the topics are made by the service
        seen, moved_at = dict.fromkeys(self.topics, 0), time.monotonic()
        while (
            (any(self.due.values()) or self.zombie)
            and self.service.code is None
            and time.monotonic() - moved_at < QUIET_S
        ):
            for stage in self.topics:
                written = self.written(stage)
                if written != seen[stage]:
                    seen[stage], moved_at = written, time.monotonic()
                progress(stage, written)
                if (
                    self.due[stage]
                    and written > self.written_at_kill[stage]
                    and written >= self.due[stage][0] * self.total
                ):
                    self._kill(stage, written, said)
            self._wake(said)
            time.sleep(0.01)
        self.end_zombie()

    def _wake(self, said: Callable[[str], None]) -> None:
        """Let the zombie go on as soon as the other service copies, until stage two has dropped
        something of it.
        """
        if not self.zombie or not self.service.total("reo_ready", stage="replicator"):
            return
        if self.asleep:
            os.kill(self.asleep.pop(), signal.SIGCONT)
            said("SIGCONT java         of the first service, while another one copies")
        if self.service.total("reo_records_dropped_total", reason="stale"):
            self.end_zombie()

    def end_zombie(self) -> None:
        """SIGKILL, if there is one."""
        if self.zombie:
            self.zombie.kill_all()
        self.zombie = None

    def hold(self, loaded: int) -> bool:
        """Whether the load has to wait for a kill that is due before."""
        waiting = [points[0] for points in self.due.values() if points]
        return bool(waiting) and loaded > (min(waiting) + AHEAD) * self.total

    def written(self, stage: str) -> int:
        """How many records the stage has written (markers of transactions included): stage one in
        envelopes.
        """
        topic_partitions = [
            TopicPartition(self.topics[stage], partition) for partition in self.partitions
        ]
        try:
            begins, ends = partition_offsets.list_bounds(self.admin, topic_partitions)
        except ClusterUnreachable:
            return 0
        if stage == "deduplicator":
            return sum(ends.values())
        heads = intermediate_records.read_newest_heads(
            self.reader,
            {tp: (begins[tp], ends[tp]) for tp in topic_partitions},
            {tp: tp for tp in topic_partitions},
        )
        for tp, head in heads.items():
            self.covered[tp.partition] = max(self.covered[tp.partition], head.through + 1)
        return sum(self.covered.values())

    def _kill(self, stage: str, written: int, said: Callable[[str], None]) -> None:
        victim = self.victims[stage][0]
        if not self.service.total("reo_ready", stage=stage):
            return
        if victim == ZOMBIE:
            self.zombie = self.service.replace()
            self.asleep = self.zombie.processes("java")
        else:
            alive = self.service.processes(victim)
            if not alive or not kill(alive[0]):
                return
        self.due[stage].pop(0)
        self.victims[stage].pop(0)
        self.written_at_kill[stage] = written
        happened = Kill(stage, victim, written)
        self.done.append(happened)
        said(str(happened))
