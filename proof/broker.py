"""The destination cluster in the model: what its coordinators do with transactions, markers, pending offsets and time-outs."""

from __future__ import annotations

from collections.abc import Iterator

from proof.service import Service
from proof.stage_one import replaced
from proof.world import COMMITTED, Log, Pending, Shape, Step, Transaction, Violation, Worker, World

NONE = Transaction("none", end_sent=False, own=False)
OPEN = Transaction("open", end_sent=False, own=False)
FENCED = Transaction("fenced", end_sent=False, own=False)
ANSWERED = ("committing", "offsets", "output")
"""A commit was decided; markers are still to be written: both, of the offsets, of the output (named is what is written)."""


def steps(world: World, shape: Shape) -> Iterator[Step]:
    """EndTxns that arrive, markers that are written, transactions that time out."""
    for number, transaction in enumerate(world.transactions):
        status = transaction.status
        owner = world.workers[number // 2]
        awaited = owner.phase == "ending" and owner.turn == number % 2
        if transaction.end_sent and (shape.fine or not awaited):
            yield Step("EndTxn", False, arrived(world, number, transaction))
        if status == "committing" and not shape.fine:
            done = set_to(world, number, transaction._replace(status="none"))
            yield Step("marker", False, offsets_marked(output_marked(done, number), number))
            yield from torn(output_marked(done, number), number, shape)
        elif status == "committing":
            yield Step("marker offsets", False, offsets_marked(set_to(world, number, transaction._replace(status="offsets")), number))
            yield Step("marker output", False, output_marked(set_to(world, number, transaction._replace(status="output")), number))
        elif status == "offsets":
            yield Step("marker output", False, output_marked(set_to(world, number, transaction._replace(status="none")), number))
        elif status == "output":
            done = set_to(world, number, transaction._replace(status="none"))
            yield Step("marker offsets", False, offsets_marked(done, number))
            yield from torn(done, number, shape)
        elif status == "open":
            orphan = owner.phase == "down" or owner.producers[number % 2] in ("new", "ready")
            if orphan or (world.budget and "time-out" in shape.faults):
                ended = aborted(set_to(world, number, FENCED), number)
                yield Step("time-out", not orphan, ended if orphan else ended._replace(budget=world.budget - 1))


def lost_unread(world: World, shape: Shape) -> Iterator[Step]:
    """What is not committed yet goes from an intermediate partition: all of it is deleted, or one record is lost from the middle."""
    less = world._replace(budget=world.budget - 1)
    for partition, (log, committed) in enumerate(zip(world.logs, world.committed, strict=True)):
        end, read = log.base + len(log.records), committed[0] if committed else 0
        if "deleted" in shape.faults and max(read, log.base) < end:
            yield Step(f"deleted {partition}", True, less._replace(logs=replaced(world.logs, partition, Log(end, ()))))
        if "gap" in shape.faults:
            for at in range(max(read, log.base) - log.base, len(log.records) - 1):
                yield Step(f"gap {partition}", True, less._replace(logs=replaced(world.logs, partition, Log(log.base, replaced(log.records, at, None)))))


def recreated(world: World, service: Service) -> Iterator[Step]:
    """While nothing is undecided the destination is deleted and recreated; its workers die with it."""
    if any(world.pending) or None in world.committed or any(transaction.status not in ("none", "fenced") for transaction in world.transactions):
        return
    committed = []
    for position, metadata in filter(None, world.committed):
        was = service.decode(metadata)
        committed.append((position, service.encode(was.rule, was.destination_known, was.sent, "another")))
    empty: tuple[tuple[tuple[int, int], ...], ...] = ((),) * len(world.destination)
    yield Step("recreated", True, world._replace(
        destination=empty, committed=tuple(committed), workers=tuple(killed(worker) for worker in world.workers), budget=world.budget - 1))


def torn(world: World, number: int, shape: Shape) -> Iterator[Step]:
    """The broker's defect: the output is committed, the offsets are not. They hang, an operator aborts them and starts the worker again."""
    if world.budget and has_offsets(world, number):
        less = without_offsets(world, number)._replace(torn=True, budget=world.budget - 1)
        if "torn" in shape.faults:
            workers = replaced(world.workers, number // 2, killed(world.workers[number // 2]))
            yield Step("torn", True, less._replace(workers=workers))
        if "torn, alive" in shape.faults:
            yield Step("torn, alive", True, less)


def killed(worker: Worker) -> Worker:
    """The process is gone, and all that it had in memory."""
    nothing = (None,) * len(worker.held)
    return Worker("down", False, nothing, 0, ("new", "new"), nothing, (), False)


def set_to(world: World, number: int, transaction: Transaction) -> World:
    """The world with one transaction changed."""
    return world._replace(transactions=replaced(world.transactions, number, transaction))


def arrived(world: World, number: int, transaction: Transaction) -> World:
    """An EndTxn(commit) reaches the coordinator, with the current producer epoch (older ones were forgotten when it was raised)."""
    if transaction.status != "open":
        return set_to(world, number, transaction._replace(end_sent=False, own=False))
    if not transaction.own:
        raise Violation("I9: a late EndTxn ends a transaction that it was not sent for")
    return set_to(world, number, Transaction("committing", end_sent=False, own=False))


def initialised(world: World, number: int) -> World | None:
    """`init_transactions`: what is open is aborted and the epoch raised; None while markers are being written (the client tries again)."""
    if world.transactions[number].status in ANSWERED:
        return None
    return aborted(set_to(world, number, NONE), number)


def has_offsets(world: World, number: int) -> bool:
    """Whether the transaction has offsets that are not decided yet."""
    return any(entry.transaction == number for pending in world.pending for entry in pending)


def aborted(world: World, number: int) -> World:
    """Neither records nor offsets become visible."""
    destination = tuple(tuple(entry for entry in entries if entry[1] != number) for entries in world.destination)
    return without_offsets(world._replace(destination=destination), number)


def without_offsets(world: World, number: int) -> World:
    """The offsets are gone."""
    return world._replace(pending=tuple(tuple(entry for entry in pending if entry.transaction != number) for pending in world.pending))


def output_marked(world: World, number: int) -> World:
    """The records become visible."""
    return world._replace(destination=tuple(
        tuple((offset, COMMITTED if transaction == number else transaction) for offset, transaction in entries) for entries in world.destination))


def offsets_marked(world: World, number: int) -> World:
    """The offsets become the committed ones, where no younger ones have (the coordinator compares when they were sent)."""
    committed, pending = list(world.committed), list(world.pending)
    for partition, entries in enumerate(world.pending):
        mine = [entry for entry in entries if entry.transaction == number]
        if not mine:
            continue
        if mine[-1].effective:
            committed[partition] = (mine[-1].position, mine[-1].metadata)
        younger = entries.index(mine[-1])
        pending[partition] = tuple(entry._replace(effective=entry.effective and (position > younger)) for position, entry in enumerate(entries)
                                   if entry.transaction != number)
    return world._replace(committed=tuple(committed), pending=tuple(pending))


def with_offsets(world: World, number: int, offsets: dict[int, tuple[int, str]]) -> World:
    """TxnOffsetCommit was accepted."""
    pending = list(world.pending)
    for partition, (position, metadata) in offsets.items():
        pending[partition] = (*pending[partition], Pending(number, position, metadata, True))
    return world._replace(pending=tuple(pending))
