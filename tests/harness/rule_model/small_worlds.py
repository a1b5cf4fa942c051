"""Small worlds around the rule, whole: every sequence of a few events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from common.envelope import Head
from deduplicator.rule import RuleState
from tests.harness.rule_model.envelopes import IDENTITY, Decide

END = 3
"""The source has this many offsets."""
STRETCHES = [(after, through) for after in range(-1, END) for through in range(after + 1, END)]
Truth = Mapping[int, str]
"""What is to be copied of a world, by source offset."""
OLD: Truth = {0: "old", 1: "old", 2: "old"}
REVISED: Truth = {0: "old", 1: "new", 2: "new"}
"""The source has lost its records from offset 1 on, and has grown again."""
FILTERED: Truth = {1: "old"}
"""Another filter."""
Output = tuple[tuple[int, str], ...]


class Broken(Exception):
    """What some sequence leads to."""


def list_subsets(offsets: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """All of them."""
    for bits in range(1 << len(offsets)):
        yield tuple(offset for number, offset in enumerate(offsets) if bits >> number & 1)


def explore_compacted(rule: Decide, first: tuple[int, ...], then: tuple[int, ...]) -> int:
    """Every sequence of up to three true envelopes about a source in which `first` was visible, and
    later `then`: each stretch, said before or after, by an older or a newer run, in any order, also
    repeatedly. Returns how many there are.
    """
    envelopes = [
        (Head(IDENTITY, epoch, 0, *stretch), visible)
        for epoch in (1, 2)
        for stretch in STRETCHES
        for visible in (first, then)
    ]

    def follow(state: RuleState, output: tuple[int, ...], left: int) -> int:
        copied = {offset for offset in then if offset <= state.source_offset}
        if sorted(set(output)) != list(output) or not copied <= {*output} <= {*first}:
            raise Broken(f"{output} up to {state.source_offset}")
        rest = Head(IDENTITY, state.epoch, 0, state.source_offset, END - 1)
        if state.source_offset < END - 1 and rule(state, rest)[0] != "accepted":
            raise Broken("no new run can go on")
        count = 1
        for head, visible in envelopes if left else ():
            decision, next_state = rule(state, head)
            new = tuple(
                o for o in visible if max(head.after, state.source_offset) < o <= head.through
            )
            count += follow(next_state, output + new * (decision == "accepted"), left - 1)
        return count

    return follow(RuleState(-1, 1), (), 3)


def explore_two_worlds(rule: Decide, truth: Truth, is_revised: bool, installs_epoch: bool) -> int:
    """Every sequence of up to five events: an envelope of an old run, about the OLD world, arrives;
    a new run installs its epoch, begins at the frontier, or an envelope of its arrives, about the
    `truth` of its world. Returns in how many the new run has begun.
    """

    def follow(state: RuleState, output: Output, begin: int | None, left: int) -> int:
        end_of_old = state.source_offset if begin is None else begin
        expected = [entry for entry in OLD.items() if entry[0] <= end_of_old]
        expected += [
            entry for entry in truth.items() if end_of_old < entry[0] <= state.source_offset
        ]
        if list(output) != expected:
            raise Broken(f"{output}, not {expected}")
        count = int(begin is not None)
        if not left:
            return count
        # the last copied records have to be at the source
        is_same = not is_revised or all(truth.get(offset) == kind for offset, kind in output)
        if begin is None and is_same and (state.epoch == 2 or not installs_epoch):
            count += follow(state, output, state.source_offset, left - 1)
        for head, entries in _list_envelopes(truth, begin, installs_epoch):
            decision, next_state = rule(state, head)
            new = tuple(
                entry
                for entry in entries.items()
                if max(head.after, state.source_offset) < entry[0] <= head.through
            )
            accepted = output + new * (decision == "accepted")
            count += follow(next_state, accepted, begin, left - 1)
        return count

    return follow(RuleState(-1, 1), (), None, 5)


def _list_envelopes(
    truth: Truth, begin: int | None, installs_epoch: bool
) -> Iterator[tuple[Head, Truth]]:
    """What may arrive: of the old run, and of the new one, which begins after `begin`."""
    for stretch in STRETCHES:
        yield Head(IDENTITY, 1, 0, *stretch), OLD
        if begin is not None and stretch[0] >= begin:
            yield Head(IDENTITY, 2, 0, *stretch), truth
    if installs_epoch:
        yield Head(IDENTITY, 2, 0, -1, -1), truth
