"""`reo cutover plan`: what prevents moving the topics now (who writes, who reads, how far the copy
is), and what `reo cutover run` would do.

It asks the clusters only. Kafka tells which groups read a topic, but librdkafka cannot ask who
writes it (DescribeProducers, KIP-664). So the ends of the partitions are read twice: what grows is
written to, and so is a partition with an open transaction. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from common import clock
from common.kafka import topics
from common.kafka.consumer_group import Members
from common.kafka.topics import Topic
from common.routes import Route, TopicPartition
from common.settings import Settings
from reo.compare.comparable_routes import select_comparable
from reo.compare.resume_file import ResumeFile
from reo.migration.group_translator import GroupTranslator
from reo.migration.moving_topics import MovingGroup, MovingTopics, prepare_settings
from reo.progress.lag import sum_lags
from reo.progress.snapshot import Snapshot, measure_rates
from reo.report import format_table, print_json
from reo.verify import Verification

VERIFIED_OFFSETS_S = 100_000
"""How fast `reo verify` reads, for the estimate: measured are 600,000 records/s on two processors
(docs/performance.md), and a network is slower.
"""
PLAN_INTERVAL_S = 3.0
STEPS = (
    "producers stop",
    "the copy reaches the source's end",
    "the copy is compared with the source",
    "consumers stop at the source",
    "the service stops",
    "offsets are translated",
)


@dataclass(frozen=True)
class CutoverPlan:
    """Two snapshots, and the state of groups and service between them."""

    before: Snapshot
    now: Snapshot
    groups: list[MovingGroup]
    left_out: list[MovingGroup]
    """Groups that read the topics, and do not match `--groups`."""
    members: Members
    is_copying: bool
    denied: list[str]
    """Topics with the DENY of `reo cutover run --deny-writes`."""
    deny_writes: bool
    """Whether the run is to deny writes to the topics."""
    source_servers: str
    quiet_s: float
    to_compare: int
    """Source offsets that `reo verify` has still to read."""

    @cached_property
    def growth(self) -> dict[TopicPartition, float]:
        """By source partition: offsets per second that were added."""
        return measure_rates(self.before, self.now, lambda row: row.source_end)

    @cached_property
    def records_left(self) -> int:
        """What is not copied yet."""
        return sum_lags(self.now.partitions)[2].records

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
        return (
            self.quiet_s
            + (self.records_left / self.copied_per_s if self.records_left else 0)
            + self.to_compare / VERIFIED_OFFSETS_S
        )

    def describe_steps(self) -> list[str]:
        """What each of STEPS finds now."""
        written = sum(self.growth.values())
        left_out = [group.name for group in self.left_out]
        readers = [group.name for group in self.groups if not group.has_stopped]
        denial = f"; writes denied: {', '.join(self.denied)}" if self.denied else ""
        to_deny = {row.source.topic for row in self.now.partitions} - {*self.denied}
        if self.deny_writes and to_deny:
            denial += f"; writes would be denied: {', '.join(sorted(to_deny))}"
        open_at = "".join(
            f"; a transaction is open on {tp} from offset {offset} on"
            for tp, offset in self.now.open_at_source.items()
        )
        copying = (
            f"runs: {', '.join(sorted(self.members.partitions)) or 'the group rebalances'}"
            if self.is_copying
            else "does not run"
        )
        return [
            (
                f"{written:.1f} offsets/s are written"
                if written
                else "nothing was written between two measurements"
            )
            + open_at
            + denial,
            f"{self.records_left} records are left"
            + (f", {self.copied_per_s:.0f}/s are copied" if self.records_left else ""),
            f"{self.to_compare} offsets are to be compared",
            f"read there: {', '.join(readers)}" if readers else "no group reads there",
            copying,
            f"groups: {len(self.groups)}"
            + (f"; left out by --groups: {', '.join(left_out)}" if left_out else ""),
        ]

    def format_text(self) -> str:
        """Tables of partitions, groups and steps, and the estimate."""
        partitions = [
            (
                row.source,
                row.source_end,
                f"{self.growth[row.source]:.1f}",
                row.stage_two_offset,
                row.copy_lag.records,
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
        steps = enumerate(zip(STEPS, self.describe_steps(), strict=True), 1)
        lines = [
            format_table("partition|source end|written/s|copied up to|left", partitions, 1),
            "",
            format_table("group|members at the source|partitions|unread|at the destination", groups)
            if groups
            else "no consumer group reads these topics",
            "",
            format_table("step||now", [(number, *step) for number, step in steps]),
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
                "left": row.copy_lag.records,
                "open_transaction": open_at_source.get(row.source),
            }
            for row in self.now.partitions
        ]
        steps = zip(STEPS, self.describe_steps(), strict=True)
        return {
            "partitions": partitions,
            "groups": [asdict(group) for group in self.groups],
            "groups_left_out": [asdict(group) for group in self.left_out],
            "service_copies": self.is_copying,
            "writes_denied": self.denied,
            "to_compare": self.to_compare,
            "steps": [{"step": step, "now": now} for step, now in steps],
            "estimate_s": None if self.estimate_s is None else round(self.estimate_s, 1),
        }


def make_plan(
    moving: MovingTopics, quiet_s: float, resume: str | None, deny_writes: bool
) -> CutoverPlan:
    """Take two snapshots, PLAN_INTERVAL_S apart; an error that the run would end with."""
    sources = topics.describe_sources(moving.settings, moving.source_admin)
    to_compare = prepare_steps(moving.settings, sources, ResumeFile(resume)).total_offsets
    if deny_writes:
        moving.write_denial.check_is_possible()
    denied = moving.write_denial.look_up(sorted({route.source_topic for route in sources}))
    before = moving.take_snapshot()
    ends = {row.source: row.source_end for row in before.partitions}
    groups = moving.find_groups(ends)
    left_out = moving.find_left_out(ends, groups)
    clock.sleep(max(0.0, before.taken_at_s + PLAN_INTERVAL_S - clock.monotonic()))
    now = moving.take_snapshot()
    return CutoverPlan(
        before,
        now,
        groups,
        left_out,
        moving.snapshot_reader.group.describe_members(),
        moving.is_copying(now),
        denied,
        deny_writes,
        moving.settings.source_cluster.bootstrap_servers,
        quiet_s,
        to_compare,
    )


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
    return Verification(settings, resume_file)


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
    plan = make_plan(moving, quiet_s, resume, deny_writes)
    if as_json:
        print_json(plan.to_dict())
    else:
        print(plan.format_text())
    return 0
