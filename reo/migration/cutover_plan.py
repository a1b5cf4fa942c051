"""`reo cutover plan`: what prevents moving the topics now (who writes, who reads, how far the copy
is), and what `reo cutover run` would do.

Kafka tells which groups read a topic, but librdkafka cannot ask who writes it (DescribeProducers,
KIP-664). So the ends of the partitions are read twice: what grows is written to, and so is a
partition with an open transaction. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Any

from common import clock
from common.kafka import source_topics
from common.kafka.topics import Topic
from common.routes import Route, TopicPartition, name_some
from common.settings import Settings
from reo.compare.comparable_routes import select_comparable
from reo.compare.resume_file import ResumeFile
from reo.migration.group_translator import GroupTranslator
from reo.migration.moving_topics import MovingTopics, prepare_settings
from reo.progress.partition_progress import sum_lags
from reo.progress.progress_snapshot import measure_rates
from reo.report import format_table, join_names, print_json
from reo.verify import Verification

VERIFIED_OFFSETS_S = 100_000
"""How fast `reo verify` reads, for the estimate: measured are 600,000 records/s on two processors
(docs/performance.md), and a network is slower.
"""
PLAN_INTERVAL_S = 3.0


class CutoverPlan:
    """Two snapshots, PLAN_INTERVAL_S apart, and the state of groups and service between them; an
    error that the run would end with.
    """

    def __init__(
        self, moving: MovingTopics, quiet_s: float, resume: str | None, deny_writes: bool
    ) -> None:
        sources = source_topics.describe_sources(moving.settings, moving.source_admin)
        self.to_compare = prepare_steps(moving.settings, sources, ResumeFile(resume)).total_offsets
        """Source offsets that `reo verify` has still to read."""
        if deny_writes:
            moving.write_denial.check_is_possible()
        self.source_servers = moving.settings.source_cluster.bootstrap_servers
        self.quiet_s, self.deny_writes = quiet_s, deny_writes
        self.denied = moving.write_denial.look_up(sorted({route.source_topic for route in sources}))
        """Topics with the DENY of `reo cutover run --deny-writes`."""
        self.before = moving.take_snapshot()
        ends = {row.source: row.source_end for row in self.before.partitions}
        self.groups = moving.find_groups(ends)
        self.left_out = moving.find_left_out(ends, self.groups)
        """Groups that read the topics, and do not match `--groups`."""
        clock.sleep(max(0.0, self.before.taken_at_s + PLAN_INTERVAL_S - clock.monotonic()))
        self.now = moving.take_snapshot()
        self.members = moving.snapshot_reader.group.describe_members()
        self.is_copying = moving.is_copying(self.now)

    @cached_property
    def growth(self) -> dict[TopicPartition, float]:
        """By source partition: offsets per second that were added."""
        return measure_rates(self.before, self.now, lambda row: row.source_end)

    @cached_property
    def records_left(self) -> int:
        """What is not copied yet."""
        return sum_lags(self.now.partitions).both.records

    @cached_property
    def copied_per_s(self) -> float:
        """Source offsets per second, of all partitions together."""
        rates = measure_rates(self.before, self.now, lambda row: row.stage_two_offset)
        return sum(rates.values())

    @property
    def estimate_s(self) -> float | None:
        """How long the steps take that wait for nobody; None when the copy has work left and does
        not move.
        """
        if self.records_left and self.copied_per_s <= 0:
            return None
        copying_s = self.records_left / self.copied_per_s if self.records_left else 0
        return self.quiet_s + copying_s + self.to_compare / VERIFIED_OFFSETS_S

    def describe_steps(self) -> list[tuple[str, str]]:
        """Each step, and what it finds now."""
        written = sum(self.growth.values())
        producers = [
            f"{written:.1f} offsets/s are written"
            if written
            else "nothing was written between two measurements",
        ]
        if open_at := self.now.open_at_source.items():
            some = name_some([f"{tp} from offset {offset} on" for tp, offset in open_at])
            producers.append(f"a transaction is open on {some}")
        if self.denied:
            producers.append(f"writes denied: {join_names(self.denied)}")
        to_deny = {row.source.topic for row in self.now.partitions} - {*self.denied}
        if self.deny_writes and to_deny:
            producers.append(f"writes would be denied: {join_names(to_deny)}")
        left = f"{self.records_left} records are left"
        if self.records_left:
            left += f", {self.copied_per_s:.0f}/s are copied"
        readers = join_names(group.name for group in self.groups if not group.has_stopped)
        members = join_names(self.members.partitions) or "the group rebalances"
        groups = f"groups: {len(self.groups)}"
        if self.left_out:
            groups += f"; left out by --groups: {join_names(group.name for group in self.left_out)}"
        return [
            ("producers stop", "; ".join(producers)),
            ("the copy reaches the source's end", left),
            (
                "the copy is compared with the source",
                f"{self.to_compare} offsets are to be compared",
            ),
            (
                "consumers stop at the source",
                f"read there: {readers}" if readers else "no group reads there",
            ),
            ("the service stops", f"runs: {members}" if self.is_copying else "does not run"),
            ("offsets are translated", groups),
        ]

    def format_text(self) -> str:
        """Tables of partitions, groups and steps, and the estimate."""
        partitions = [
            (
                row.source,
                row.source_end,
                f"{self.growth[row.source]:.1f}",
                row.stage_two_offset,
                row.lags.both.records,
            )
            for row in self.now.partitions
        ]
        groups = [
            (
                group.name,
                group.describe_readers(),
                group.partitions,
                group.unread,
                "active" if group.is_active_at_destination else "-",
            )
            for group in self.groups
        ]
        steps = [(number, *step) for number, step in enumerate(self.describe_steps(), 1)]
        lines = [
            format_table("partition|source end|written/s|copied up to|left", partitions, 1),
            "",
            format_table("group|members at the source|partitions|unread|at the destination", groups)
            if groups
            else "no consumer group reads these topics",
            "",
            format_table("step||now", steps),
            "",
            "the duration cannot be estimated: records are left, and the copy does not progress"
            if self.estimate_s is None
            else f"about {self.estimate_s:.0f} s, and the time until producers, consumers and"
            " service have stopped",
        ]
        if any(self.growth.values()):
            topic, partition = max(self.growth, key=lambda tp: self.growth[tp])
            lines.append(
                "the ids of the producers: kafka-transactions.sh --bootstrap-server"
                f" {self.source_servers} describe-producers --topic {topic} --partition"
                f" {partition}"
            )
        return "\n".join([*lines, "nothing was changed; `reo cutover run` does these steps"])

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        open_at_source = self.now.open_at_source
        partitions = [
            {
                **row.source._asdict(),
                "source_end": row.source_end,
                "written_per_s": round(self.growth[row.source], 3),
                "copied_up_to": row.stage_two_offset,
                "left": row.lags.both.records,
                "open_transaction": open_at_source.get(row.source),
            }
            for row in self.now.partitions
        ]
        return {
            "partitions": partitions,
            "groups": [asdict(group) for group in self.groups],
            "groups_left_out": [asdict(group) for group in self.left_out],
            "service_copies": self.is_copying,
            "writes_denied": self.denied,
            "to_compare": self.to_compare,
            "steps": [{"step": step, "now": now} for step, now in self.describe_steps()],
            "estimate_s": None if self.estimate_s is None else round(self.estimate_s, 1),
        }


def prepare_steps(
    settings: Settings, sources: Mapping[Route, Topic], resume_file: ResumeFile
) -> Verification:
    """Raise now what a later step would refuse, before anything is changed. Returns what is to be
    compared.
    """
    for reason in select_comparable(settings, sources)[1]:
        raise reason
    resume_file.read()
    GroupTranslator(settings)
    verification = Verification(settings, resume_file)
    for missing in verification.not_comparable:
        raise missing
    return verification


def run_command(
    settings: Settings,
    groups: str,
    quiet_s: float,
    resume: str | None,
    as_json: bool,
    deny_writes: bool = False,
) -> int:
    """`reo cutover plan`, and `reo cutover run --dry-run`: changes nothing."""
    settings = prepare_settings(settings, ("lag", "verify", "offsets translate"), deny_writes)
    moving = MovingTopics(settings, groups)
    if moving.report_moved(as_json):
        return 0
    plan = CutoverPlan(moving, quiet_s, resume, deny_writes)
    if as_json:
        print_json(plan.to_dict())
    else:
        print(plan.format_text())
    return 0
