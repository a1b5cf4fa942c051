"""One-line wrongs: each is put into the service's own text, or into one of the shell's steps, and has to be caught.

A proof that nothing can fail proves nothing. `catch` explores a small world with the wrong in it and says by which invariant it
was caught; what only costs work and no record survives the model, and has to be caught by a unit scenario instead.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType

from proof.explore import Explorer, Result
from proof.service import PRODUCTION, Service
from proof.world import Shape, Shell

ONE = ((0, 1, 3),)
TWO = ((0, 2), (1, 3))
STATES_MAX = 60_000


@dataclass(frozen=True)
class Mutant:
    """A wrong, and the smallest world that shows it."""

    name: str
    module: str = ""
    text: str = ""
    becomes: str = ""
    service: Mapping[str, object] = field(default_factory=dict)
    """Steps of `proof.world.Shell` that are not as the service does them."""
    faults: str = ""
    budget: int = 1
    workers: int = 1
    source: tuple[tuple[int, ...], ...] = ONE
    fine: bool = False
    ignored: frozenset[str] = frozenset()
    random_bits: str = "rising"
    unit: bool = False
    """Nothing is lost by it (the model says so); `tests.test_rule` or `tests.test_transaction_table` has to notice."""


def mutated(mutant: Mutant) -> dict[str, ModuleType]:
    """The module with the wrong in it, by name; empty for a wrong of the shell."""
    if not mutant.module:
        return {}
    text = inspect.getsource(PRODUCTION[mutant.module])
    if text.count(mutant.text) != 1:
        raise ValueError(f"{mutant.name}: {mutant.module} has {mutant.text!r} {text.count(mutant.text)} times, not once: the mutant is out of date")
    copy = ModuleType(f"mutant_{mutant.module.replace('.', '_')}")
    sys.modules[copy.__name__] = copy  # dataclasses look their module up
    exec(compile(text.replace(mutant.text, mutant.becomes), copy.__name__, "exec"), copy.__dict__)  # noqa: S102  (our own text)
    return {mutant.module: copy}


def sound(mutant: Mutant) -> Shape:
    """The mutant's world, with nothing wrong in it."""
    return Shape(mutant.source, mutant.workers, frozenset(filter(None, mutant.faults.split(","))), mutant.budget,
                 random_bits=mutant.random_bits, fine=mutant.fine)


def catch(mutant: Mutant) -> Result:
    """Explore the mutant's world until something is violated."""
    shell = Shell(**mutant.service)  # type: ignore[arg-type]
    explorer = Explorer(replace(sound(mutant), shell=shell, ignored=mutant.ignored), Service(mutated(mutant)))
    result = explorer.run(STATES_MAX)
    if not result.violation and not result.complete:
        explorer.walk()
    return result


RULE, FRONTIER, TRANSACTION, CHECK, RUN = "deduplicator.rule", "common.frontier", "deduplicator.transaction", "deduplicator.destination_check", "replicator.run"
EPOCHS = "common.epochs"
ACCEPT = """elif (sequence == 0 and source_offset < hole_first) or (
            sequence == link_sequence + 1 and origin.batch == link_batch and source_offset > link_offset
        ):"""
DROP = "            hole_first, hole_last = min(hole_first, source_offset), max(hole_last, source_offset)\n"
NO_I10 = frozenset({"I10"})
MUTANTS = (
    Mutant("highest-seen rule", RULE, ACCEPT, "elif True:", faults="lose"),
    Mutant("a hole moves the frontier", RULE, DROP, f"{DROP}            frontier = source_offset\n", faults="lose"),
    Mutant("a hole becomes the link", RULE, DROP, f"{DROP}            link_offset, link_batch, link_sequence = source_offset, origin.batch, sequence\n",
           faults="lose", source=((0, 1, 2, 3),)),
    Mutant("s = 0 is accepted over an open hole", RULE, "(sequence == 0 and source_offset < hole_first)", "sequence == 0", faults="zombie", source=((0, 1, 2),),
           random_bits="equal"),
    Mutant("of an open hole only the lowest offset is kept", RULE, "(source_offset + 1, hole_last) if source_offset < hole_last else NO_HOLE", "NO_HOLE",
           faults="zombie", source=((0, 2),), random_bits="equal", unit=True),
    Mutant("the hole survives a takeover", RULE, "            hole_first, hole_last = NO_HOLE\n", "", faults="lose", source=((0, 2),), unit=True),
    Mutant("the hole is not committed", FRONTIER, '"h": hole, ', '"h": None, ', faults="zombie", source=((0, 1, 2),), random_bits="equal"),
    Mutant("what is set does not outbid a live run", EPOCHS, "max(clock_ms + AHEAD_MS, time_ms(max(known, default=0)) + 2)",
           "max(clock_ms, time_ms(max(known, default=0)) + 1)", faults="deleted"),
    Mutant("a recreated destination's frontier does not outbid a live run", EPOCHS, "max(clock_ms + AHEAD_MS, time_ms(max(known, default=0)) + 2)",
           "max(clock_ms, time_ms(max(known, default=0)) + 1)", faults="recreated"),
    Mutant("a gap of the intermediate topic is read over", service={"gaps_noticed": False}, faults="gap"),
    Mutant("frontier one too high", RULE, "frontier = link_offset = source_offset", "frontier = link_offset = source_offset + 1"),
    Mutant("the frontier's own record is accepted again", RULE, "source_offset <= frontier", "source_offset < frontier", faults="zombie,lose", budget=2),
    Mutant("epoch ignored: an older run is believed", RULE, "if record_epoch < epoch:", "if False:", faults="zombie", source=((0, 2),)),
    Mutant("sequence ignored", RULE, "sequence == link_sequence + 1 and ", "", faults="lose"),
    Mutant("batch ignored", RULE, " and origin.batch == link_batch", "", faults="lose", budget=1),
    Mutant("the link survives a takeover", RULE, "            link_offset = link_batch = link_sequence = -1\n", "", faults="lose,kill one", budget=2),
    Mutant("the beginning of a batch is not believed", RULE, "(sequence == 0 and source_offset < hole_first)", "False"),
    Mutant("a duplicate does not become the link", RULE, "if source_offset >= link_offset:", "if False:", faults="lose", source=((0, 2),),
           unit=True),
    Mutant("any duplicate becomes the link", RULE, "if source_offset >= link_offset:", "if True:", faults="lose,kill one", budget=2, unit=True),
    Mutant("frontier read one too high", FRONTIER, 'RuleState(fields["f"], ', 'RuleState(fields["f"] + 1, '),
    Mutant("frontier read one too low", FRONTIER, 'RuleState(fields["f"], ', 'RuleState(max(-1, fields["f"] - 1), '),
    Mutant("the epoch is not committed", FRONTIER, '"e": self.rule.epoch', '"e": 1'),
    Mutant("the link is not committed", FRONTIER, '"l": link, ', '"l": None, '),
    Mutant("the count of what was sent is not committed", FRONTIER, '"n": self.sent', '"n": 0', faults="kill two"),
    Mutant("what was sent is counted one short by the check", CHECK, "counted[place] < frontiers[place].sent",
           "counted[place] < frontiers[place].sent - 1", faults="kill two"),
    Mutant("a torn transaction's records are written again", CHECK, "        return covered\n", "        return 0\n", faults="torn"),
    Mutant("the destination is not compared with the frontier", service={"checks": False}, faults="torn"),
    Mutant("a producer in doubt is not replaced", TRANSACTION, '("open", "in doubt"): "new"', '("open", "in doubt"): "ready"', faults="in doubt", unit=True),
    Mutant("an aborted transaction counts as open", TRANSACTION, '("open", "aborted"): "ready"', '("open", "aborted"): "open"', faults="abortable"),
    Mutant("no abort after an abortable error", TRANSACTION, "error.txn_requires_abort() and self.abort()", "error.txn_requires_abort()", faults="abortable"),
    Mutant("a late EndTxn may end the next transaction", TRANSACTION, '("prepared", "in doubt"): "new"', '("prepared", "in doubt"): "ready"',
           service={"waits_for_pending": False}, faults="in doubt", budget=1, fine=True),
    Mutant("a second transaction while one is open is allowed", TRANSACTION, 'if self.current.state in ("open", "prepared"):', "if False:",
           service={"waits_for_pending": False, "waits_for_output": False}, faults="in doubt", fine=True),
    Mutant("a failed run is the end", RUN, '("running", "failed"): "planned"', '("running", "failed"): "done"', faults="failed"),
    Mutant("a drained run is done without asking", RUN, '("drained", "behind"): "planned"', '("drained", "behind"): "done"', faults="lose",
           service={"losses_noticed": False}),
    Mutant("offsets are committed before the records", service={"offsets_last": False}),
    Mutant("no rewind after an abort", service={"rewound": False}, faults="abortable"),
    Mutant("lost partitions are worked on", service={"forgets_when_lost": False}, faults="pause", workers=2),
    Mutant("unfenced metadata is accepted", service={"fenced": False}, faults="pause", workers=2),
    Mutant("frontier of another partition", service={"own_frontier": False}, source=TWO),
    Mutant("a run begins one beyond", service={"start_beyond": 2}, ignored=NO_I10),
    Mutant("a run begins at the frontier", service={"start_beyond": 0}, faults="kill one"),
    Mutant("a run's epoch is not raised", service={"epoch_raised": False}),
    Mutant("a lost record is not noticed by stage one", service={"losses_noticed": False}, faults="lose", ignored=NO_I10),
    Mutant("the frontier is read while offsets are undecided", service={"waits_for_pending": False}, faults="pause,lose", budget=2, workers=2),
    Mutant("the check does not wait for undecided output", service={"waits_for_output": False}, faults="rebalance", workers=2, fine=True),
    Mutant("second producer begun before the first is known committed", service={"waits_for_commit": False}, fine=True),
    Mutant("a first frontier is not committed before it is used", service={"commits_first_frontier": False}, fine=True),
)
