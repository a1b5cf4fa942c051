"""What is explored: the short form of the tests and the long one of `python -m proof --long`, each a list of worlds.

Breadth (two partitions of three records, two workers) and depth (several faults after one another, every single step) multiply,
so no one world has all of it: each takes one thing to the end. What all of them together have to reach is `expected`.
"""

from __future__ import annotations

import logging
import time

from proof.explore import Explorer, Result
from proof.service import PRODUCTION
from proof.world import Shape

ONE, TWO, FEW, FOUR = ((0, 1, 3),), ((0, 1, 3), (0, 2, 3)), ((0, 2),), ((0, 1, 2, 3),)
STAGE_ONE = frozenset({"lose", "straggler", "failed", "stalled", "stopped", "kill one", "zombie"})
STAGE_TWO = frozenset({"kill two", "pause", "rebalance", "abortable", "in doubt", "abort in doubt", "time-out", "torn"})
ALL = STAGE_ONE | STAGE_TWO
OUTSIDE = frozenset({"deleted", "gap", "recreated"})

SHORT = {
    "two partitions, two workers, no fault": Shape(TWO, 2, frozenset(), 0, fine=False),
    "stage two step by step, one fault": Shape(((0, 2),), 1, STAGE_TWO, 1),
    "two workers, one fault of stage two": Shape(ONE, 2, STAGE_TWO, 1, fine=False),
    "three records, one fault of stage one": Shape(ONE, 1, STAGE_ONE - {"zombie"}, 1, fine=False),
    "two records, one fault of stage one, also a zombie": Shape(FEW, 1, STAGE_ONE, 1, fine=False),
    "two faults of any kind": Shape(((2,),), 2, ALL - {"straggler"}, 2, fine=False),
    "a lost record and a straggler": Shape(FEW, 1, frozenset({"lose", "straggler"}), 2, fine=False),
    "unread records deleted or lost, the destination recreated": Shape(FEW, 1, OUTSIDE, 1, fine=False),
    "two runs of one epoch": Shape(FEW, 1, frozenset({"zombie"}), 1, random_bits="equal", fine=False),
}
LONG = {
    "two partitions, two workers, one fault of stage two": Shape(TWO, 2, STAGE_TWO, 1, fine=False),
    "two partitions, one worker, one fault of stage one": Shape(TWO, 1, STAGE_ONE - {"zombie"}, 1, fine=False),
    "two partitions, a lost and a zombie run": Shape(((0, 2), (1, 3)), 1, frozenset({"zombie", "kill one"}), 1, fine=False),
    "two workers, one fault of any kind": Shape(ONE, 2, ALL, 1, fine=False),
    "two faults of any kind": Shape(FEW, 1, ALL, 2, fine=False),
    "three faults of any kind": Shape(((2,),), 2, ALL, 3, fine=False),
    "lost records and a straggler": Shape(ONE, 1, frozenset({"lose", "straggler"}), 2, fine=False),
    "three records, one fault of stage one, also a zombie": Shape(ONE, 1, STAGE_ONE, 1, fine=False),
    "every step by itself, one fault of any kind": Shape(FEW, 2, ALL, 1),
    "four records, lost ones and a straggler": Shape(FOUR, 1, frozenset({"lose", "straggler"}), 2, fine=False),
    "four records, two runs of one epoch": Shape(FOUR, 1, frozenset({"zombie"}), 1, random_bits="equal", fine=False),
    "three records, two runs of one epoch, one fault more": Shape(ONE, 1, STAGE_ONE, 2, random_bits="equal", fine=False),
    "four records, unread ones deleted or lost, the destination recreated": Shape(FOUR, 1, OUTSIDE, 1, fine=False),
    "the same beside a zombie, whose epoch is the later one": Shape(FEW, 1, OUTSIDE | {"zombie"}, 2, random_bits="falling", fine=False),
    "two workers, the destination recreated": Shape(((0,), (0, 1)), 2, frozenset({"recreated"}), 1, fine=False),
}
STATES_MAX = 5_000_000

NOT_MODELLED = {
    "transaction: new, in doubt": "a producer that is being initialised is tried again, never given up; the entry is a safety net",
    "run: running, grown": "the model's source has a fixed number of partitions",
    "run: running, truncated": "the model's source loses nothing; where one does, the next plan is refused",
    "run: running, lost": "which cluster a run reads is nothing to the frontier: to the model this is another word for failed",
    "run: running, lagging": "the same",
}
POINTS = ("joining", "given", "idle", "decided", "begun", "written", "sent", "EndTxn sent", "EndTxn decided")
CRASHES = {f"kill two {point}" for point in POINTS} | {
    "kill one running", "kill one drained", "zombie", "stopped planned", "stopped running", "stopped drained"}
RULES = {"rule 1: stale", "rule 2: takeover", "rule 3: duplicate", "rule 3: duplicate becomes the link", "rule 4: accept", "rule 4: by sequence",
         "rule 5: hole", "rule 5: hole filled"}
HAPPENED = {"lose 0", "retry 0", "haunt 0", "haunt batch", "haunt superseded", "straggler 0", "torn", "time-out", "EndTxn", "refused", "fenced", "lost",
            "rebalance", "hole", "behind", "in doubt begin", "in doubt ending", "abort in doubt written", "check: surplus",
            "gone", "gone gap", "deleted 0", "gap 0", "recreated"}


def explored(form: str, name: str, states_max: int = STATES_MAX) -> tuple[Result, float]:
    """One world of a form, to its end, and how many seconds that took."""
    logging.disable(logging.CRITICAL)  # the service warns of every fault that it meets
    begun = time.monotonic()
    return Explorer((LONG if form == "long" else SHORT)[name]).run(states_max), time.monotonic() - begun


def transitions() -> set[str]:
    """Every entry of both tables, as an exploration names it, but those that no model reaches."""
    tables = {"transaction": PRODUCTION["deduplicator.transaction"].NEXT, "run": PRODUCTION["replicator.run"].NEXT}
    return {f"{name}: {state}, {event}" for name, table in tables.items() for state, event in table} - set(NOT_MODELLED)


def expected() -> set[str]:
    """What a form has to reach, all its worlds together."""
    return CRASHES | RULES | HAPPENED | transitions()
