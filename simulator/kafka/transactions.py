"""The transaction coordinator, with transactions v1: what a producer asks of it, its time-outs, and the markers that follow an end.

The states are Kafka's. `end` is answered when the decision is kept; the markers are written afterwards, each to its partition after a time of its own, and
until the last one is there nothing else can be done with the transactional id. An EndTxn says which producer and epoch it is of, and not which transaction:
one that comes late ends the transaction that is open then (KIP-890).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from confluent_kafka import KafkaError

from simulator.kafka.log import ABORT, COMMIT
from simulator.kafka.refused import Refused

if TYPE_CHECKING:
    from simulator.kafka.cluster import Cluster

State = Literal["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]
MARKER_S = (0.0005, 0.02)
SLOW_MARKER_S = (0.02, 0.3)
CHECK_S = 10.0
"""How often time-outs are looked for (transaction.abort.timed.out.transaction.cleanup.interval.ms)."""
Target = tuple[str, int] | str
"""A partition, or a group."""


class Transactional:
    """A transactional id."""

    __slots__ = ("count", "epoch", "name", "pending", "producer_id", "state", "targets", "timeout_s")

    def __init__(self, name: str, producer_id: int) -> None:
        self.name = name
        self.producer_id = producer_id
        self.epoch = -1
        self.timeout_s = 60.0
        self.state: State = "Empty"
        self.targets: dict[Target, None] = {}
        self.pending = 0
        """Markers still to be written."""
        self.count = 0
        """Of its transactions."""


class Coordinator:
    """Of all transactional ids of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.ids: dict[str, Transactional] = {}
        self.producers = 1000
        self.check_s = CHECK_S

    def new_producer_id(self) -> int:
        """For a producer without a transactional id too."""
        self.producers += 1
        return self.producers

    def initialise(self, name: str, timeout_s: float) -> tuple[int, int]:
        """InitProducerId: the producer id and its new epoch; what a predecessor left open is aborted first."""
        found = self.ids.get(name)
        if found is None:
            found = self.ids[name] = Transactional(name, self.new_producer_id())
        if found.state in ("PrepareCommit", "PrepareAbort"):
            raise Refused(KafkaError.CONCURRENT_TRANSACTIONS)
        if found.state == "Ongoing":
            found.epoch += 1
            self._decide(found, ABORT)
            raise Refused(KafkaError.CONCURRENT_TRANSACTIONS)
        found.epoch += 1
        found.timeout_s = timeout_s
        found.state = "Empty"
        return found.producer_id, found.epoch

    def add(self, name: str, producer_id: int, epoch: int, targets: Sequence[Target]) -> None:
        """AddPartitionsToTxn and AddOffsetsToTxn: begins the transaction with the first one."""
        found = self._known(name, producer_id, epoch)
        if found.state in ("PrepareCommit", "PrepareAbort"):
            raise Refused(KafkaError.CONCURRENT_TRANSACTIONS)
        if any(not isinstance(target, str) and self.cluster.log_of(*target) is None for target in targets):
            raise Refused(KafkaError.UNKNOWN_TOPIC_OR_PART)
        if found.state != "Ongoing":
            found.state, found.targets = "Ongoing", {}
            found.count += 1
            schedule = self.cluster.schedule
            overdue = schedule.now + found.timeout_s
            at = math.ceil(overdue / self.check_s) * self.check_s
            schedule.after(at - schedule.now, partial(self._time_out, found, found.count))
        for target in targets:
            found.targets[target] = None

    def end(self, name: str, producer_id: int, epoch: int, commit: bool) -> None:
        """EndTxn."""
        found = self._known(name, producer_id, epoch)
        if found.state == "Ongoing":
            self._decide(found, COMMIT if commit else ABORT)
        elif found.state in ("PrepareCommit", "PrepareAbort") and (found.state == "PrepareCommit") == commit:
            raise Refused(KafkaError.CONCURRENT_TRANSACTIONS)
        elif found.state not in ("CompleteCommit", "CompleteAbort") or (found.state == "CompleteCommit") != commit:
            raise Refused(KafkaError.INVALID_TXN_STATE)

    def check_open(self, name: str, producer_id: int, epoch: int, target: Target) -> None:
        """What a partition's leader and a group's coordinator ask before a transaction's first record there; Refused when it is not open there."""
        found = self._known(name, producer_id, epoch)
        if found.state in ("PrepareCommit", "PrepareAbort"):
            raise Refused(KafkaError.CONCURRENT_TRANSACTIONS)
        if found.state != "Ongoing" or target not in found.targets:
            raise Refused(KafkaError.INVALID_TXN_STATE)

    def _known(self, name: str, producer_id: int, epoch: int) -> Transactional:
        found = self.ids.get(name)
        if found is None or found.producer_id != producer_id:
            raise Refused(KafkaError.INVALID_PRODUCER_ID_MAPPING)
        if found.epoch != epoch:
            raise Refused(KafkaError.INVALID_PRODUCER_EPOCH)
        return found

    def _time_out(self, found: Transactional, count: int) -> None:
        if found.count == count and found.state == "Ongoing":
            found.epoch += 1
            self._decide(found, ABORT)

    def _decide(self, found: Transactional, kind: int) -> None:
        """The decision is kept; its markers follow one by one, in any order."""
        found.state = "PrepareCommit" if kind == COMMIT else "PrepareAbort"
        targets, schedule = list(found.targets), self.cluster.schedule
        schedule.random.shuffle(targets)
        found.pending = len(targets)
        delay_s = 0.0
        for target in targets:
            delay_s += schedule.random.uniform(*(MARKER_S if schedule.random.random() < 0.9 else SLOW_MARKER_S))
            schedule.after(delay_s, partial(self._mark, found, target, found.epoch, kind))
        if not targets:
            self._complete(found, kind)

    def _mark(self, found: Transactional, target: Target, epoch: int, kind: int) -> None:
        if self.cluster.is_away:
            self.cluster.schedule.after(MARKER_S[1], partial(self._mark, found, target, epoch, kind))
            return
        if isinstance(target, str):
            group = self.cluster.groups.get(target)
            if group:
                group.complete(found.producer_id, kind == COMMIT)
        else:
            log = self.cluster.log_of(*target)
            if log:
                log.mark(found.producer_id, epoch, kind, self.cluster.now_ms())
        found.pending -= 1
        if found.pending == 0:
            self._complete(found, kind)

    @staticmethod
    def _complete(found: Transactional, kind: int) -> None:
        found.state = "CompleteCommit" if kind == COMMIT else "CompleteAbort"
        found.targets = {}
