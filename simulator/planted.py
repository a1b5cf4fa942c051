"""Known defects, put into the service's own source text when it is imported. The simulator has to
find each of them.

A defect is a piece of a module's text and its replacement. The text is replaced while Python
imports the module, so every importer has the defect; a process with a planted defect cannot be used
for anything else.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parent.parent
VIOLATION_CHARS_MAX = 140


@dataclass(frozen=True, slots=True)
class Wrong:
    """A known defect: `text` in `module` becomes `becomes`."""

    name: str
    module: str
    text: str
    becomes: str


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module, and loads it with the changed text."""

    def __init__(self, wrong: Wrong) -> None:
        self.wrong = wrong
        self.path = ROOT / (wrong.module.replace(".", "/") + ".py")

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """Find the module with the defect, and no other."""
        return (
            importlib.util.spec_from_loader(name, self, origin=str(self.path))
            if name == self.wrong.module
            else None
        )

    def exec_module(self, module: ModuleType) -> None:
        """Execute the changed text of the module."""
        exec(compile(self.text(), str(self.path), "exec"), module.__dict__)  # noqa: S102  (our own text)

    def text(self) -> str:
        """The changed text. ValueError when the module does not have the text exactly once: the
        defect is out of date.
        """
        text = self.path.read_text()
        if text.count(self.wrong.text) != 1:
            raise ValueError(
                f"{self.wrong.name}: {self.wrong.module} has {self.wrong.text!r}"
                f" {text.count(self.wrong.text)} times, not once"
            )
        return text.replace(self.wrong.text, self.wrong.becomes)


def plant(name: str) -> None:
    """Install a defect. Call this before any module of the service is imported."""
    wrong = next(wrong for wrong in WRONGS if wrong.name == name)
    if wrong.module in sys.modules:
        raise RuntimeError(f"{wrong.module} is already imported: plant the defect first")
    sys.meta_path.insert(0, _Finder(wrong))


def search_planted(
    name: str, runs: int, processes: int, run_campaign: Callable[..., Any], output_file: Path | None
) -> int:
    """Run the seeds from 1 on for one defect, or for each of them, and print which seed finds it.
    Returns the exit code.
    """
    survived = 0
    for wrong in WRONGS:
        if name in (wrong.name, "all"):
            campaign_result = run_campaign(1, runs, processes, wrong.name, True)
            survived += not campaign_result.violations
            seed, violation, _ = min(
                campaign_result.violations,
                default=(0, f"NOT FOUND in {campaign_result.runs:,}", []),
            )
            if output_file:
                with output_file.open("a") as out:
                    out.write(
                        json.dumps(
                            {
                                "name": wrong.name,
                                "seed": seed,
                                "runs": campaign_result.runs,
                                "violation": violation,
                            }
                        )
                        + "\n"
                    )
            print(
                f"{seed or '-':>7}  {wrong.name}:"
                f" {violation.splitlines()[0][:VIOLATION_CHARS_MAX]}",
                flush=True,
            )
    return 1 if survived else 0


RULE, TRANSACTION, CHECK, LOOP = (
    "deduplicator.rule",
    "deduplicator.transaction",
    "deduplicator.destination_check",
    "deduplicator.loop",
)
INTERMEDIATE, DESTINATION, FRONTIER_STORE, START = (
    "deduplicator.intermediate",
    "deduplicator.destination",
    "deduplicator.frontier_store",
    "deduplicator.start",
)
RUN, WATCH, PLAN, FRONTIER, EPOCHS = (
    "replicator.run",
    "replicator.watch",
    "replicator.plan",
    "common.frontier",
    "common.run_epochs",
)
ACCEPT = """elif (sequence == 0 and source_offset < hole_first) or (
            sequence == link_sequence + 1 and origin.batch == link_batch and source_offset > link_offset
        ):"""
DROP = (
    "            hole_first, hole_last = min(hole_first, source_offset), max(hole_last,"
    " source_offset)\n"
)
FINISH = "            self.finish_commit()\n"
RAISED = "max(clock_ms + AHEAD_MS, time_ms(max(known, default=0)) + 2)"
WRONGS = (
    # defects that the service once had
    Wrong(
        "s = 0 is accepted over an open hole",
        RULE,
        "(sequence == 0 and source_offset < hole_first)",
        "sequence == 0",
    ),
    Wrong(
        "of an open hole only the lowest offset is kept",
        RULE,
        "(source_offset + 1, hole_last) if source_offset < hole_last else NO_HOLE",
        "NO_HOLE",
    ),
    Wrong(
        "a gap of the intermediate topic is read over",
        LOOP,
        "if not batch.follows(work.next_offset):",
        "if False:",
    ),
    Wrong("two runs can have one epoch", PLAN, "runtime.random_bits(run_epochs.RANDOM_BITS)", "0"),
    Wrong(
        "a truncated source that has grown again is not seen",
        "replicator.source_history",
        "    missing = {place for place, (last, _) in copied.items()",
        "    return\n    missing = {place for place, (last, _) in copied.items()",
    ),
    Wrong(
        "what is invisible is not written down",
        WATCH,
        "        if not self.settings.stop_at_end:  # there",
        "        if False:  # there",
    ),
    Wrong(
        "what is set does not outbid a live run",
        EPOCHS,
        RAISED,
        "max(clock_ms, time_ms(max(known, default=0)) + 1)",
    ),
    Wrong(
        "a loss at the destination is not seen while running",
        "deduplicator.destination_watch",
        "        if 0 <= end <= last_offset:",
        "        if False:",
    ),
    Wrong(
        "a delivery below the last one is believed",
        DESTINATION,
        "    if offset < output.last_offset:",
        "    if False:",
    ),
    # the rule
    Wrong("highest-seen rule", RULE, ACCEPT, "elif True:"),
    Wrong("a hole moves the frontier", RULE, DROP, f"{DROP}            frontier = source_offset\n"),
    Wrong(
        "a hole becomes the link",
        RULE,
        DROP,
        f"{DROP}            link_offset, link_batch, link_sequence = source_offset, origin.batch,"
        " sequence\n",
    ),
    Wrong(
        "the hole survives a takeover", RULE, "            hole_first, hole_last = NO_HOLE\n", ""
    ),
    Wrong(
        "frontier one too high",
        RULE,
        "frontier = link_offset = source_offset",
        "frontier = link_offset = source_offset + 1",
    ),
    Wrong(
        "the frontier's own record is accepted again",
        RULE,
        "source_offset <= frontier",
        "source_offset < frontier",
    ),
    Wrong("epoch ignored: an older run is believed", RULE, "if record_epoch < epoch:", "if False:"),
    Wrong("sequence ignored", RULE, "sequence == link_sequence + 1 and ", ""),
    Wrong("batch ignored", RULE, " and origin.batch == link_batch", ""),
    Wrong(
        "the link survives a takeover",
        RULE,
        "            link_offset = link_batch = link_sequence = -1\n",
        "",
    ),
    Wrong(
        "the beginning of a batch is not believed",
        RULE,
        "(sequence == 0 and source_offset < hole_first)",
        "False",
    ),
    Wrong(
        "a duplicate does not become the link",
        RULE,
        "if source_offset >= link_offset:",
        "if False:",
    ),
    Wrong("any duplicate becomes the link", RULE, "if source_offset >= link_offset:", "if True:"),
    # the frontier
    Wrong("the hole is not committed", FRONTIER, '"h": hole, ', '"h": None, '),
    Wrong(
        "frontier read one too high",
        FRONTIER,
        'RuleState(fields["f"], ',
        'RuleState(fields["f"] + 1, ',
    ),
    Wrong(
        "frontier read one too low",
        FRONTIER,
        'RuleState(fields["f"], ',
        'RuleState(max(-1, fields["f"] - 1), ',
    ),
    Wrong("the epoch is not committed", FRONTIER, '"e": self.rule.epoch', '"e": 1'),
    Wrong("the link is not committed", FRONTIER, '"l": link, ', '"l": None, '),
    Wrong("the count of what was sent is not committed", FRONTIER, '"n": self.sent', '"n": 0'),
    Wrong(
        "what was sent is counted one short by the check",
        CHECK,
        "counted[place] < frontiers[place].sent",
        "counted[place] < frontiers[place].sent - 1",
    ),
    Wrong(
        "the record at the known offset is not looked at",
        CHECK,
        "frontier.sent == 0\n",
        "frontier.sent == -7\n",
    ),
    Wrong(
        "a torn transaction's records are written again",
        CHECK,
        "        return covered\n",
        "        return 0\n",
    ),
    # transactions and the loop
    Wrong(
        "a producer in doubt is not replaced",
        TRANSACTION,
        '("open", "in doubt"): "new"',
        '("open", "in doubt"): "ready"',
    ),
    Wrong(
        "an aborted transaction counts as open",
        TRANSACTION,
        '("open", "aborted"): "ready"',
        '("open", "aborted"): "open"',
    ),
    Wrong(
        "no abort after an abortable error",
        TRANSACTION,
        "error.txn_requires_abort() and self.abort()",
        "error.txn_requires_abort()",
    ),
    Wrong(
        "a late EndTxn may end the next transaction",
        TRANSACTION,
        '("committing", "in doubt"): "new"',
        '("committing", "in doubt"): "ready"',
    ),
    Wrong(
        "a commit that is not answered is believed to be done",
        TRANSACTION,
        '        if self.state == "committing":\n',
        '        if self.state == "committing":\n            self.state = "ready"\n',
    ),
    Wrong(
        "what was decided on top of a failed transaction is committed",
        LOOP,
        f"{FINISH}            self.destination.start_commit()\n",
        f"            try:\n    {FINISH}            except TransactionFailed:\n               "
        " pass\n            self.destination.start_commit()\n",
    ),
    Wrong(
        "the lag is told of what is not committed yet",
        "deduplicator.worker",
        "run_round(finish=is_due)",
        "run_round()",
    ),
    Wrong(
        "a producer that lost something is used again",
        TRANSACTION,
        "        if self.count_lost(self.client) != self.lost_at_begin:",
        "        if False:",
    ),
    Wrong(
        "offsets are committed in another transaction than the records",
        DESTINATION,
        "        producer.send_offsets(offsets(), member)\n",
        "        producer.send_offsets([], member)\n        producer.commit()\n       "
        " producer.begin()\n        producer.send_offsets(offsets(), member)\n",
    ),
    Wrong("no rewind after an abort", LOOP, "        self.partitions.reload()\n", ""),
    Wrong(
        "revoked partitions are worked on",
        "deduplicator.partitions",
        "            self.assigned.pop(place, None)\n",
        "",
    ),
    Wrong(
        "a commit of no member is sent",
        INTERMEDIATE,
        "        if generation < 0 or not member_id:",
        "        if False:",
    ),
    Wrong(
        "the frontier of undecided output is believed",
        FRONTIER_STORE,
        "                if decided:\n                    raise\n",
        "                if True:\n                    raise\n",
    ),
    Wrong(
        "a first frontier is not committed before it is used",
        LOOP,
        "        while start.to_commit:\n",
        "        while False:\n",
    ),
    Wrong(
        "records that were lost with a leader are not missed",
        LOOP,
        "            if batch.leader_epoch != work.leader_epoch:\n",
        "            if False:\n",
    ),
    Wrong(
        "an anchor does not raise the epoch",
        START,
        "replace(raise_epoch(state.frontier, epoch), leader_epoch",
        "replace(state.frontier, leader_epoch",
    ),
    Wrong(
        "a transaction that was too slow is not made smaller",
        "deduplicator.transaction_size",
        "self.records = max(1, min(self.records, records) // 2)",
        "self.records = self.records_max",
    ),
    Wrong(
        "what was added while stage two was away begins at the latest",
        START,
        "added = place.partition >= source_partitions or place in commits or"
        " self._is_new_partition(place, bool(filled), has_others=bool(counts))",
        "added = False",
    ),
    Wrong(
        "a topic that appears later begins at the latest",
        START,
        "return place.topic in self.new_topics\n",
        "return False\n",
    ),
    Wrong(
        "frontier of another partition",
        "common.kafka.positions",
        "decode_commit(Place(answer.topic, answer.partition), answer",
        "decode_commit(Place(answer.topic, answer.partition), answers[-1 - answer.partition]",
    ),
    # recovery
    Wrong(
        "a recovered frontier is one too high",
        "reo.recover",
        "        return last_copied.source_offset\n",
        "        return last_copied.source_offset + 1\n",
    ),
    Wrong(
        "a recovered frontier does not outbid a live run",
        "reo.recover",
        "raise_epoch(row.new_frontier, epoch)",
        "raise_epoch(row.new_frontier, 1)",
    ),
    # what it says of itself
    Wrong(
        "a process that waits says that it is ready",
        "common.pulse",
        "        self.readiness.set(0)\n",
        "        self.readiness.set(1)\n",
    ),
    Wrong(
        "a lag is said to be none",
        "common.lag",
        "str(place.partition)).set(records)",
        "str(place.partition)).set(0)",
    ),
    # stage one
    Wrong(
        "a candidate's records are not compared",
        "replicator.candidates.source_selection",
        "    same_last = check_history(snapshot, frontiers)\n    compared ="
        " tail_comparison.compare_tails(snapshot, frontiers, same_last, on_progress)\n",
        "    compared = 0\n",
    ),
    Wrong(
        "a frontier is read only when no transaction is open",
        "common.kafka.consumer_group",
        '"isolation.level": "read_uncommitted"',
        '"isolation.level": "read_committed"',
    ),
    Wrong(
        "a drained run is done without asking",
        RUN,
        '("drained", "behind"): "planned"',
        '("drained", "behind"): "done"',
    ),
    Wrong(
        "a failed run is the end",
        RUN,
        '("running", "failed"): "planned"',
        '("running", "failed"): "done"',
    ),
    Wrong(
        "a run begins one beyond",
        PLAN,
        "frontier.rule.frontier + 1 for",
        "frontier.rule.frontier + 2 for",
    ),
    Wrong(
        "a run begins two before the frontier",
        PLAN,
        "frontier.rule.frontier + 1 for",
        "max(0, frontier.rule.frontier - 1) for",
    ),
    Wrong(
        "a run's epoch is not raised",
        PLAN,
        "run_epochs.of_run(int(self.clock() * 1000), read,",
        "run_epochs.of_run(0, [],",
    ),
    Wrong(
        "a hole is not noticed by stage one",
        WATCH,
        "        if any(now - since > HOLE_S for _, since in self.hole_since.values()):",
        "        if False:",
    ),
    Wrong(
        "a run that is superseded goes on",
        WATCH,
        "commit.frontier.rule.epoch > self.plan.epoch for",
        "False for",
    ),
    Wrong(
        "a recreated source is not seen",
        "common.kafka.topics",
        "def check_identity(",
        "def check_identity(*_: object) -> None:\n    return\n\n\ndef _check_identity(",
    ),
)
