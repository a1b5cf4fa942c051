"""The state of the abstract world: nested tuples, small and comparable; and the choices of an exploration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from common.frontier import RuleState
from proof.service import Origin

COMMITTED = -1
"""In place of a transaction's number: the record is visible."""


class Task(NamedTuple):
    """A Spark task of one partition: where its batch began, what it writes next (indices of visible records), has it lost any."""

    first: int
    next: int
    lost: bool


class Run(NamedTuple):
    """Stage one; the zombie is one too, `whole` when it can go on to further batches."""

    state: str
    epoch: int
    batch: int
    tasks: tuple[Task, ...]
    whole: bool = True


class Log(NamedTuple):
    """An intermediate partition: records below `base` were read by everybody and are forgotten, or were deleted."""

    base: int
    records: tuple[Origin | None, ...]
    """None: it was lost."""


class Held(NamedTuple):
    """What a worker has in memory of one partition."""

    position: int
    rule: RuleState
    known: int
    sent: int
    surplus: tuple[int, ...]


class Pending(NamedTuple):
    """Offsets in an undecided transaction; a later commit of the same partition leaves an older one without effect."""

    transaction: int
    position: int
    metadata: str
    effective: bool


class Worker(NamedTuple):
    """A process of stage two."""

    phase: str
    member: bool
    """Whether the coordinator still counts it in: a paused worker does not know when that ends."""
    held: tuple[Held | None, ...]
    turn: int
    producers: tuple[str, str]
    work: tuple[tuple[Held, tuple[int, ...]] | None, ...]
    """What it will hold after this transaction, and what it writes, per partition."""
    wanted: tuple[int, ...]
    """Partitions whose frontier has to be read."""
    first: bool
    """Whether the transaction is one of frontiers that the rule has not set."""
    again: bool = False
    """Whether they were looked at again after their first commit."""
    gaps: tuple[int, ...] = ()
    """Partitions of which it has found unread records missing."""


class Transaction(NamedTuple):
    """A transactional id at its coordinator: none, open, then (answered) committing with markers written one after the other."""

    status: str
    end_sent: bool
    """An EndTxn(commit) is under way."""
    own: bool
    """Whether that EndTxn was sent for the transaction that is open now."""


class World(NamedTuple):
    """Everything."""

    logs: tuple[Log, ...]
    committed: tuple[tuple[int, str] | None, ...]
    destination: tuple[tuple[tuple[int, int], ...], ...]
    """Per partition: source offset and transaction (or COMMITTED) of each record, in the order of the log."""
    pending: tuple[tuple[Pending, ...], ...]
    transactions: tuple[Transaction, ...]
    run: Run
    zombie: Run | None
    workers: tuple[Worker, ...]
    owners: tuple[int, ...]
    clock: int
    torn: bool
    budget: int


class Step(NamedTuple):
    """One successor: what happened, whether it was a fault, and the world after it."""

    name: str
    fault: bool
    world: World


class Violation(Exception):
    """An invariant does not hold; the message begins with its number."""


@dataclass(frozen=True)
class Shell:
    """The shell's steps, as the service does them; a mutant changes one (`proof.mutants`)."""

    start_beyond: int = 1
    """A run begins at frontier + this."""
    epoch_raised: bool = True
    """A run's epoch is above everything before."""
    losses_noticed: bool = True
    """A task that lost a record cannot succeed (acks=all, delivery errors are seen)."""
    drained_by_position: bool = True
    """The end of a copy is asked of the frontier, not of what was written."""
    offsets_last: bool = True
    """Offsets are in the same transaction as the records."""
    rewound: bool = True
    """After a failure the frontier is read again."""
    forgets_when_lost: bool = True
    """Partitions that were taken are not worked on."""
    own_frontier: bool = True
    """Each partition's commit has its own frontier."""
    fenced: bool = True
    """Commits carry the member's generation."""
    waits_for_pending: bool = True
    """Reading the frontier waits for undecided offsets (KIP-447)."""
    waits_for_output: bool = True
    """The check at the start waits until no record of the destination is undecided, before it calls any missing. Without it a check right
    after a commit, whose markers are written one after the other, raises a false alarm: `tests.test_model` has the story."""
    checks: bool = True
    """The destination is compared with the frontier at an assignment."""
    waits_for_commit: bool = True
    """The next transaction is begun after the answer to the commit."""
    gaps_noticed: bool = True
    """An offset that is left out on the intermediate topic is an error."""
    raises_again: bool = True
    """After the commit of frontiers that the rule has not set, others' epochs are read, and they are raised once more where one is as high."""
    commits_first_frontier: bool = True
    """A first frontier is committed before anything is copied."""


@dataclass(frozen=True)
class Shape:
    """What is explored: the source's visible offsets per partition, workers, faults and how many of them."""

    source: tuple[tuple[int, ...], ...] = ((0, 1, 3), (0, 2, 3))
    workers: int = 2
    faults: frozenset[str] = frozenset()
    budget: int = 2
    shell: Shell = Shell()
    random_bits: str = "rising"
    """Those of the runs' epochs, one run after the other; or `falling`; or `equal`, which is what chance does not do."""
    fine: bool = True
    """Coarse instead: steps 1 to 4 are one, 5 and EndTxn, its arrival and answer, its markers too, and the first frontiers are made."""
    ignored: frozenset[str] = frozenset()
    """Invariants that are not asked: to see what follows from breaking them."""
