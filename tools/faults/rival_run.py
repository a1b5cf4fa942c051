"""One run of MirrorMaker 2 with faults: the same brokers, load and judge as for reo.

MirrorMaker 2 has no exit codes, counters or frontier to compare with. So a run records three things
and calls none of them good or bad: the judge's verdict on the copy, the log lines about the fault
(without the lines that a start without faults logs too), and the time it took.

A run ends when the copy is exact, or when it cannot become exact any more: the last record of every
partition has arrived, or nothing arrives for PATIENCE_S. That is longer than Connect's longest
delay, scheduled.rebalance.max.delay.ms.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import asdict, dataclass, field

from tests.harness.judge import Partitions, compare_partitions
from tests.harness.kafka import Clusters, until
from tools.bench.mirrormaker import MirrorMaker
from tools.faults.load import Load

PATIENCE_S = 400
STEADY_S = 10
"""Late differences (a duplicate, an aborted transaction) appear within this time."""
LINES_MAX = 20
JUDGE_EVERY_S = 0.5
LINE = re.compile(r"^\S+ \[.*?\] (ERROR|WARN|INFO) \S+ - (.*)$")
BRACES = re.compile(r"\{.*\}")
DATA_LOSS = re.compile(r"out of range|truncat|Resetting offset|topicId changed from (?!null)")
"""INFO lines about lost records. A new client resets its epoch from null, which is not a loss."""


@dataclass
class Outcome:
    """A row of the table."""

    story: str
    run: int
    hits: dict[str, int]
    verdict: str
    said: str
    records: int
    """All records of the source, also those that were deleted later."""
    seconds: float | None
    """From the end of the load, or from the start after the fault, until the judge started to read
    an exact copy; None when it never was exact. An upper bound: the source is read before.
    """
    since_harm_s: float | None
    lines: dict[str, list[str]] = field(default_factory=dict)
    """The log lines of each level about the fault, without repetitions."""
    aborted: int = 0

    def to_dict(self) -> dict[str, object]:
        """As a JSON object."""
        return asdict(self)


@dataclass
class MirrorMakerRun:
    """The clusters, the load and the MirrorMaker of a run, for its story."""

    clusters: Clusters
    topic: str
    mirrormaker: MirrorMaker
    load: Load
    hits: Counter[str] = field(default_factory=Counter)
    fault_s: float = 0.0
    last_action_s: float = 0.0
    """When it was last started, stopped or disturbed."""
    healthy_messages: set[str] = field(default_factory=set)
    log_length_before_fault: int = 0
    """Characters of the log before the first fault."""

    def wait_for_progress(self, least: int = 4000) -> None:
        """Wait until `least` more offsets have arrived: the copy is running."""
        destination = self.clusters.destination
        until(
            lambda: destination.partitions(self.topic), "the destination has the topic", PATIENCE_S
        )
        wanted = destination.count_offsets(self.topic) + least
        until(
            lambda: destination.count_offsets(self.topic) >= wanted,
            f"{wanted} offsets at the destination",
            PATIENCE_S,
        )

    def record_fault(self, what: str) -> None:
        """Count a fault that happened now; log lines before the first fault are not about it."""
        if not self.hits:
            log = self.mirrormaker.log
            self.log_length_before_fault = len(log)
            self.healthy_messages = {_normalise(message) for _, message in _parse_log(log)}
        self.hits[what] += 1
        self.fault_s = self.last_action_s = time.monotonic()

    def kill(self) -> None:
        """SIGKILL a running MirrorMaker."""
        assert self.mirrormaker.list_processes(), self.mirrormaker.read_log_tail()
        self.mirrormaker.kill()
        self.record_fault("SIGKILL of MirrorMaker")

    def start(self) -> None:
        """Start it, or start it again."""
        self.mirrormaker.start()
        self.last_action_s = time.monotonic()


def judge_run(scene: MirrorMakerRun, reference: Partitions) -> tuple[str, float | None]:
    """The verdict at the end of the run, and when (monotonic) the copy was complete."""
    deadline = time.monotonic() + PATIENCE_S
    ends: dict[int, int] = {}
    while True:
        now = time.monotonic()
        copy, ends = _read_if_changed(scene, ends)
        if copy is not None:
            deadline = now + PATIENCE_S
            if compare_partitions(reference, copy) == [] or _has_last_records(reference, copy):
                time.sleep(STEADY_S)
                differences = compare_partitions(
                    reference, scene.clusters.destination.read(scene.topic)
                )
                return ("; ".join(differences) or "exact"), None if differences else now
        if now > deadline or scene.mirrormaker.exit_code is not None:
            reason = (
                f"nothing for {PATIENCE_S} s"
                if now > deadline
                else f"it ended with {scene.mirrormaker.exit_code}"
            )
            return (
                "; ".join(
                    [
                        reason,
                        *compare_partitions(
                            reference, scene.clusters.destination.read(scene.topic)
                        ),
                    ]
                ),
                None,
            )
        time.sleep(JUDGE_EVERY_S)


def _read_if_changed(
    scene: MirrorMakerRun, ends: dict[int, int]
) -> tuple[Partitions | None, dict[int, int]]:
    """The copy, if its last stable offsets have changed since `ends`."""
    if not scene.clusters.destination.partitions(scene.topic):
        return None, ends
    current_ends = scene.clusters.destination.end_offsets(scene.topic, stable=True)
    return (
        None if current_ends == ends else scene.clusters.destination.read(scene.topic)
    ), current_ends


def _has_last_records(reference: Partitions, copy: Partitions) -> bool:
    return all(
        records[-1] in reversed(copy.get(partition, []))
        for partition, records in reference.items()
        if records
    )


def summarise_log(scene: MirrorMakerRun) -> tuple[str, dict[str, list[str]]]:
    """Its most severe log line about the fault, and the lines of each level."""
    log_since_fault = scene.mirrormaker.log[scene.log_length_before_fault :]
    new_messages = [
        (level, message)
        for level, message in _parse_log(log_since_fault)
        if _normalise(message) not in scene.healthy_messages
    ]
    messages_by_level = {
        "ERROR": [message for level, message in new_messages if level == "ERROR"],
        "WARN": [message for level, message in new_messages if level == "WARN"],
        "INFO": [
            message
            for level, message in new_messages
            if level == "INFO" and DATA_LOSS.search(message)
        ],
    }
    lines = {
        level: list({_normalise(message): message for message in messages}.values())[:LINES_MAX]
        for level, messages in messages_by_level.items()
    }
    first = next(
        (
            f"{level}: {BRACES.sub('{…}', messages[0])[:250]}"
            for level, messages in messages_by_level.items()
            if messages
        ),
        "nothing",
    )
    if scene.mirrormaker.exit_code is not None:
        return f"stopped (exit code {scene.mirrormaker.exit_code}); {first}", lines
    if scene.mirrormaker.task_failures:
        return f"a task stopped for good; {first}", lines
    return first, lines


def _parse_log(log: str) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for line in log.splitlines() if (match := LINE.match(line))]


def _normalise(message: str) -> str:
    """A message without its numbers, which differ between repetitions."""
    return re.sub(r"\d+", "#", message)
