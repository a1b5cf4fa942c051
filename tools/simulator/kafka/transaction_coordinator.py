"""The transaction coordinator, with transactions v1: the requests of producers, timeouts, and the
markers that end a transaction.

The states are Kafka's. `end` returns when the decision is stored; the markers are written
afterwards, each to its partition after a delay of its own. Until the last one is written, the
transactional id cannot be used. An EndTxn names its producer and epoch, but not its transaction: a
late EndTxn ends the transaction that is open then (KIP-890).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from confluent_kafka import KafkaError

from tools.simulator.kafka.errors import BrokerError
from tools.simulator.kafka.log_records import ABORT, COMMIT

if TYPE_CHECKING:
    from tools.simulator.kafka.cluster import Cluster

State = Literal[
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"
]
MARKER_S = (0.0005, 0.02)
MARKER_DELAYS_S = (MARKER_S, (0.02, 0.3), (0.3, 2.0))
MARKER_WEIGHTS = (0.89, 0.1, 0.01)
"""How long a marker takes after the one before it: mostly a request's time, now and then as long as
a broker that is busy or looks for a new leader.
"""
CHECK_S = 10.0
"""How often the coordinator checks for timeouts
(transaction.abort.timed.out.transaction.cleanup.interval.ms).
"""
Target = tuple[str, int] | str
"""A partition, or a group."""


class TransactionalId:
    """The state of a transactional id."""

    __slots__ = (
        "epoch",
        "name",
        "pending",
        "producer_id",
        "state",
        "targets",
        "timeout_s",
        "transaction_count",
    )

    def __init__(self, name: str, producer_id: int) -> None:
        self.name = name
        self.producer_id = producer_id
        self.epoch = -1
        self.timeout_s = 60.0
        self.state: State = "Empty"
        self.targets: dict[Target, None] = {}
        self.pending = 0
        """Markers still to be written."""
        self.transaction_count = 0
        """The number of its transactions."""


class Coordinator:
    """The coordinator of all transactional ids of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.ids: dict[str, TransactionalId] = {}
        self.producer_ids = 1000
        self.check_s = CHECK_S

    def new_producer_id(self) -> int:
        """A new producer id; also for a producer without a transactional id."""
        self.producer_ids += 1
        return self.producer_ids

    def init_producer_id(self, name: str, timeout_s: float) -> tuple[int, int]:
        """InitProducerId: the producer id and its new epoch. The open transaction of the previous
        producer is aborted first.
        """
        transaction = self.ids.get(name)
        if transaction is None:
            transaction = self.ids[name] = TransactionalId(name, self.new_producer_id())
        if transaction.state in ("PrepareCommit", "PrepareAbort"):
            raise BrokerError(KafkaError.CONCURRENT_TRANSACTIONS)
        if transaction.state == "Ongoing":
            transaction.epoch += 1
            self._prepare_end(transaction, ABORT)
            raise BrokerError(KafkaError.CONCURRENT_TRANSACTIONS)
        transaction.epoch += 1
        transaction.timeout_s = timeout_s
        transaction.state = "Empty"
        return transaction.producer_id, transaction.epoch

    def add_partitions(
        self, name: str, producer_id: int, epoch: int, targets: Sequence[Target]
    ) -> None:
        """AddPartitionsToTxn and AddOffsetsToTxn. The first one begins the transaction."""
        transaction = self._find_transaction(name, producer_id, epoch)
        if transaction.state in ("PrepareCommit", "PrepareAbort"):
            raise BrokerError(KafkaError.CONCURRENT_TRANSACTIONS)
        if any(
            not isinstance(target, str) and self.cluster.find_log(*target) is None
            for target in targets
        ):
            raise BrokerError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        if transaction.state != "Ongoing":
            transaction.state, transaction.targets = "Ongoing", {}
            transaction.transaction_count += 1
            schedule = self.cluster.schedule
            deadline = schedule.now + transaction.timeout_s
            check_at = math.ceil(deadline / self.check_s) * self.check_s
            schedule.call_later(
                check_at - schedule.now,
                partial(self._abort_if_timed_out, transaction, transaction.transaction_count),
            )
        for target in targets:
            transaction.targets[target] = None

    def end(self, name: str, producer_id: int, epoch: int, commit: bool) -> None:
        """EndTxn."""
        transaction = self._find_transaction(name, producer_id, epoch)
        if transaction.state == "Ongoing":
            self._prepare_end(transaction, COMMIT if commit else ABORT)
        elif (
            transaction.state in ("PrepareCommit", "PrepareAbort")
            and (transaction.state == "PrepareCommit") == commit
        ):
            raise BrokerError(KafkaError.CONCURRENT_TRANSACTIONS)
        elif (
            transaction.state not in ("CompleteCommit", "CompleteAbort")
            or (transaction.state == "CompleteCommit") != commit
        ):
            raise BrokerError(KafkaError.INVALID_TXN_STATE)

    def check_open(self, name: str, producer_id: int, epoch: int, target: Target) -> None:
        """Partition leaders and group coordinators call this before a transaction's first record.
        BrokerError when it is not open there.
        """
        transaction = self._find_transaction(name, producer_id, epoch)
        if transaction.state in ("PrepareCommit", "PrepareAbort"):
            raise BrokerError(KafkaError.CONCURRENT_TRANSACTIONS)
        if transaction.state != "Ongoing" or target not in transaction.targets:
            raise BrokerError(KafkaError.INVALID_TXN_STATE)

    def _find_transaction(self, name: str, producer_id: int, epoch: int) -> TransactionalId:
        transaction = self.ids.get(name)
        if transaction is None or transaction.producer_id != producer_id:
            raise BrokerError(KafkaError.INVALID_PRODUCER_ID_MAPPING)
        if transaction.epoch != epoch:
            raise BrokerError(KafkaError.INVALID_PRODUCER_EPOCH)
        return transaction

    def _abort_if_timed_out(self, transaction: TransactionalId, count: int) -> None:
        if transaction.transaction_count == count and transaction.state == "Ongoing":
            transaction.epoch += 1
            self._prepare_end(transaction, ABORT)

    def _prepare_end(self, transaction: TransactionalId, kind: int) -> None:
        """Store the decision. The markers follow one by one, in random order."""
        transaction.state = "PrepareCommit" if kind == COMMIT else "PrepareAbort"
        targets, schedule = list(transaction.targets), self.cluster.schedule
        schedule.random.shuffle(targets)
        transaction.pending = len(targets)
        delay_s = 0.0
        for target in targets:
            (bounds,) = schedule.random.choices(MARKER_DELAYS_S, MARKER_WEIGHTS)
            delay_s += schedule.random.uniform(*bounds)
            schedule.call_later(
                delay_s, partial(self._write_marker, transaction, target, transaction.epoch, kind)
            )
        if not targets:
            self._complete(transaction, kind)

    def _write_marker(
        self, transaction: TransactionalId, target: Target, epoch: int, kind: int
    ) -> None:
        if self.cluster.is_down:
            self.cluster.schedule.call_later(
                MARKER_S[1], partial(self._write_marker, transaction, target, epoch, kind)
            )
            return
        if isinstance(target, str):
            group = self.cluster.groups.get(target)
            if group:
                group.offsets.complete_transaction(transaction.producer_id, kind == COMMIT)
        else:
            log = self.cluster.find_log(*target)
            if log:
                log.append_marker(transaction.producer_id, epoch, kind, self.cluster.now_ms())
        transaction.pending -= 1
        if transaction.pending == 0:
            self._complete(transaction, kind)

    @staticmethod
    def _complete(transaction: TransactionalId, kind: int) -> None:
        transaction.state = "CompleteCommit" if kind == COMMIT else "CompleteAbort"
        transaction.targets = {}
