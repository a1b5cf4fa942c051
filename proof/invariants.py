"""The invariants, numbered as in the package's docstring, asked of every state and of every step between two."""

from __future__ import annotations

from functools import lru_cache

from proof.broker import ANSWERED
from proof.service import TOPIC_ID, Service
from proof.world import COMMITTED, Held, Pending, Shape, Transaction, Violation, Worker, World

Entries = tuple[tuple[int, int], ...]
Commit = tuple[int, str] | None


class Invariants:
    """Asked of states; I3, I4, I6, I9, I10 and I12 are asked where the step is made."""

    def __init__(self, shape: Shape, service: Service) -> None:
        self.shape = shape
        self.service = service
        self.partition_holds = lru_cache(maxsize=None)(self._partition_holds)

    def holds(self, before: World, after: World) -> None:
        """Violation, with its number, when the step leads to a state that must not be."""
        answered = tuple(number for number, transaction in enumerate(after.transactions) if transaction.status in ANSWERED)
        for partition, source in enumerate(self.shape.source):
            self.partition_holds(source, after.destination[partition], after.pending[partition], after.committed[partition], answered, after.torn)
            if after.committed[partition] is not before.committed[partition]:
                self._not_back(before.committed[partition], after.committed[partition], partition)
            if after.pending[partition] is not before.pending[partition]:
                self._one_undecided(after.pending[partition], after.transactions)
        for number, worker in enumerate(after.workers):
            if worker.member and worker.phase == "idle" and worker is not before.workers[number]:
                self._memory_is_committed(after, number, worker)
        if after.run.state == "done" and before.run.state != "done":
            self._complete(after, answered)

    def _partition_holds(self, source: tuple[int, ...], entries: Entries, pending: tuple[Pending, ...], committed: Commit,
                         answered: tuple[int, ...], torn: bool) -> None:
        output = tuple(offset for offset, transaction in entries if transaction == COMMITTED or transaction in answered)
        if output != source[:len(output)]:
            raise Violation(f"I1: the destination has {output}, the source {source}")
        decided = [(entry.position, entry.metadata) for entry in pending if entry.effective and entry.transaction in answered]
        latest = decided[-1] if decided else committed
        told = self.service.decode(latest[1]) if latest else None
        frontier = told.rule.frontier if told and told.destination_topic_id == TOPIC_ID else -1
        last = output[-1] if output else -1
        if frontier > last or (frontier != last and not torn):
            raise Violation(f"I2: the frontier says {frontier}, the destination ends with {last}")

    def _not_back(self, before: Commit, after: Commit, partition: int) -> None:
        if before is None or after is None:
            if after is None:
                raise Violation(f"I5: partition {partition} has no frontier any more")
            return
        (old, topic_id), new = ((found := self.service.decode(before[1])).rule, found.destination_topic_id), self.service.decode(after[1]).rule
        if after[0] < before[0] or (new.frontier < old.frontier and topic_id == TOPIC_ID) or new.epoch < old.epoch:
            raise Violation(f"I5: partition {partition} went back from {before} to {after}")

    @staticmethod
    def _one_undecided(pending: tuple[Pending, ...], transactions: tuple[Transaction, ...]) -> None:
        undecided = {(entry.position, entry.metadata) for entry in pending if entry.effective and transactions[entry.transaction].status == "open"}
        if len(undecided) > 1:
            raise Violation("I8: two undecided transactions have different offsets of one partition")

    def _memory_is_committed(self, world: World, number: int, worker: Worker) -> None:
        for partition, owner in enumerate(world.owners):
            if owner != number:
                continue
            held: Held | None = worker.held[partition]
            pending = [entry for entry in world.pending[partition] if entry.effective]
            latest = (pending[-1].position, pending[-1].metadata) if pending else world.committed[partition]
            same = held is not None and latest is not None and (held.position, held.rule) == (latest[0], self.service.decode(latest[1]).rule)
            if not same and not world.torn:
                raise Violation(f"I7: worker {number} holds {held} of partition {partition}, committed is {latest}")

    def _complete(self, world: World, answered: tuple[int, ...]) -> None:
        for source, entries in zip(self.shape.source, world.destination, strict=True):
            if tuple(offset for offset, transaction in entries if transaction == COMMITTED or transaction in answered) != source:
                raise Violation("I11: done was said of an incomplete copy")
