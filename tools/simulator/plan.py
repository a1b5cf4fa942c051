"""What a schedule is before it runs: the sizes of the system, its settings and the faults, all
drawn from one seed.

A plan can be reduced without changing its seed (`shrink`): the random numbers that decide who runs
when stay those of the seed.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from typing import Any

from tools.simulator.fault_kinds import (
    CANDIDATE_FAULT_WEIGHTS,
    DESTINATION_RECREATED,
    EXCLUSIVE_FAULTS,
    FAULT_FAMILIES,
    FAULT_WEIGHTS,
    FILTER_CHANGED,
    FRONTIERS_DELETED,
    PARTITION_ADDED,
    REPEATABLE_FAULTS,
    SOURCE_FAULTS,
    TOPIC_ADDED,
)

FAULTS_MAX = 6
FAULT_CALLS_MAX = 1000
"""Every fault happens within this number of calls of the processes."""
BURST_SHARE, BURST_CALLS = 0.4, 80
"""In this share of the plans, all faults happen within this number of calls, so that they meet."""
SWARM_SHARE, SWARM_KINDS_SHARE = 0.35, 0.25
"""This share of the plans draws from a part of the kinds only, so that these meet more often (swarm
testing: Groce et al., ISSTA 2012).
"""
CLOCK_OFFSET_MAX_S = 6 * 3600.0
FAMILY_SHARE = 0.25
"""This share of the plans draws from one of `FAULT_FAMILIES` only."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault happens at a call of some process (a SIGKILL kills that process). `seed` decides its
    details.
    """

    at_call: int
    kind: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanExtras:
    """What only some plans have."""

    candidates: int = 1
    """How many source clusters have the same records; more than 1 with `source.mode=failover`."""
    start: str = "earliest"
    """`source.start`."""
    filter_setting: str = ""
    """The setting that filters records: `filter.sql`, `filter.function`, or none."""
    destination_record_delay_s: float = 0.0
    """How long the destination takes for each record of a transaction. A full transaction takes
    longer than its timeout.
    """
    producer_queue_records: int = 0
    """The limit of the queue of stage two's producers, if it is a short one."""
    batch_s: int = 30
    """`replicator.batch_s`."""
    topics: int = 1
    """How many source topics there are at the beginning."""
    has_pattern: bool = False
    """Whether a pattern selects the topics, so that a new one is copied too."""
    first_partition: int = 0
    """Of the range of partitions that is copied; there are so many more."""
    late_records: int = 0
    """How many records the source gets slowly, one by one, after the others."""
    is_compiled: bool = True
    """`deduplicator.compiled`."""
    is_compacted: bool = False
    """Whether cleanup.policy is compact, so that the destination may lack records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(PlanExtras):
    """A schedule before it runs."""

    seed: int
    partitions: int
    workers: int
    records: int
    transaction_share: float
    """The share of the source's batches that are transactions; every third transaction is
    aborted.
    """
    stop_at_end: bool
    clock_offsets_s: tuple[float, ...]
    """How far the clock of each host is from the true time."""
    faults: tuple[Fault, ...]


def _draw_extras(
    generator: random.Random, topics: int | None
) -> tuple[PlanExtras, tuple[str, ...]]:
    """The extras, and the kinds of faults that are not drawn by their weights."""
    candidates = generator.choice((2, 3)) if generator.random() < 1 / 8 else 1
    kinds: tuple[str, ...] = (FRONTIERS_DELETED,) if generator.random() < 1 / 16 else ()
    is_plain = candidates == 1 and not kinds
    start = "latest" if generator.random() < 1 / 8 and is_plain else "earliest"
    filters = ("", "", "", "", "", "filter.sql", "filter.sql", "filter.function")
    filter_setting = generator.choice(filters) if is_plain else ""
    record_delay_s = generator.uniform(2.5, 8.0) if generator.random() < 1 / 32 else 0.0
    batch_s = generator.choice((5, 30))
    topic_count = topics or generator.choice((1, 1, 1, 1, 1, 1, 2, 3))
    # candidates are refused with a pattern
    has_pattern = topics is None and candidates == 1 and generator.random() < 1 / 8
    if has_pattern:
        kinds += generator.choice(((TOPIC_ADDED,), (TOPIC_ADDED,), (TOPIC_ADDED, TOPIC_ADDED), ()))
    is_compacted = is_plain and generator.random() < 1 / 4
    if filter_setting == "filter.function" and generator.random() < 1 / 2:
        kinds += (PARTITION_ADDED,)  # while that function is slow
    elif is_plain and generator.random() < 1 / 8:
        kinds += (FILTER_CHANGED,)
    return PlanExtras(
        candidates=candidates,
        start=start,
        filter_setting=filter_setting,
        destination_record_delay_s=record_delay_s,
        batch_s=batch_s,
        topics=topic_count,
        has_pattern=has_pattern,
        is_compacted=is_compacted,
        is_compiled=generator.random() < 3 / 4,
        producer_queue_records=generator.choice((0, 0, 0, 0, 0, 0, 2, 4)),
        late_records=10 if generator.random() < 1 / 10 else 0,
    ), kinds


def _draw_fault_kinds(
    generator: random.Random, extras: PlanExtras, extra_kinds: tuple[str, ...]
) -> list[str]:
    possible_weights = FAULT_WEIGHTS
    if extras.candidates > 1:
        possible_weights = {
            kind: weight for kind, weight in FAULT_WEIGHTS.items() if kind not in SOURCE_FAULTS
        } | CANDIDATE_FAULT_WEIGHTS
    share = generator.random()
    if share < FAMILY_SHARE:
        family = generator.choice(FAULT_FAMILIES)
        possible_weights = {kind: 1 for kind in family if kind in possible_weights}
    elif share < FAMILY_SHARE + SWARM_SHARE:
        possible_weights = {
            kind: weight
            for kind, weight in possible_weights.items()
            if generator.random() < SWARM_KINDS_SHARE
        } or possible_weights
    possible_kinds, weights = list(possible_weights), list(possible_weights.values())
    kinds: list[str] = []
    for kind in generator.choices(possible_kinds, weights, k=generator.randint(0, FAULTS_MAX)):
        if _can_meet(kind, kinds):
            kinds.append(kind)
    if extras.start == "latest":
        # nobody could say at which offset the new copy has to begin
        kinds = [kind for kind in kinds if kind != DESTINATION_RECREATED]
    for kind in extra_kinds:
        if _can_meet(kind, kinds):
            kinds.append(kind)
    return kinds


def _can_meet(kind: str, kinds: list[str]) -> bool:
    """Whether a schedule with faults of these kinds can have this one too."""
    others = EXCLUSIVE_FAULTS.intersection(kinds)
    return kind not in EXCLUSIVE_FAULTS or not (
        others - {kind} or (others and kind not in REPEATABLE_FAULTS)
    )


def _draw_faults(generator: random.Random, kinds: list[str]) -> tuple[Fault, ...]:
    burst_at = (
        generator.randrange(FAULT_CALLS_MAX // 2) if generator.random() < BURST_SHARE else None
    )

    def draw_call() -> int:
        if burst_at is not None:
            return burst_at + generator.randrange(BURST_CALLS)
        return generator.randrange(
            FAULT_CALLS_MAX if generator.random() < 0.7 else FAULT_CALLS_MAX // 10
        )

    return tuple(
        sorted(
            (Fault(draw_call(), kind, generator.getrandbits(32)) for kind in kinds),
            key=lambda fault: fault.at_call,
        )
    )


def draw_plan(seed: int, candidates: int | None = None, topics: int | None = None) -> Plan:
    """The plan of a seed.

    One schedule in eight has two or three candidates; in one in sixteen, an operator deletes the
    frontiers; one in eight starts at the latest offsets; three in eight filter records; one in
    thirty-two has a slow destination; one in ten changes its filter; every second one has short
    batches; one in four has several topics, one in eight a pattern; one in five has compacted
    topics; one in eight without a pattern copies a range of partitions. With `candidates`, the plan
    has that number and none of the others; with `topics`, that number and no pattern. These are
    drawn with a generator of their own, so that the rest of the plan is the same with and without
    them.
    """
    generator = random.Random(seed)  # noqa: S311
    extras = PlanExtras(candidates=candidates or 1)
    extra_kinds: tuple[str, ...] = ()
    if candidates is None:
        extras_generator = random.Random(f"{seed} candidates")  # noqa: S311
        extras, extra_kinds = _draw_extras(extras_generator, topics)
        if not extras.has_pattern and random.Random(f"{seed} range").random() < 1 / 8:  # noqa: S311
            extras = replace(extras, first_partition=1)
    faults = _draw_faults(generator, _draw_fault_kinds(generator, extras, extra_kinds))
    plan = Plan(
        seed=seed,
        partitions=generator.choice((1, 1, 2, 3)),
        workers=generator.choice((1, 1, 2, 3)),
        records=generator.randint(3, 40),
        transaction_share=generator.choice((0.0, 0.3, 0.7)),
        stop_at_end=generator.random() < 0.15,
        clock_offsets_s=tuple(
            generator.choice((0.0, 2.0, CLOCK_OFFSET_MAX_S)) * generator.uniform(-1, 1)
            for _ in range(4)
        ),
        faults=faults,
        **asdict(extras),
    )
    return _recreate_destination(plan, random.Random(f"{seed} end"))  # noqa: S311


def _recreate_destination(plan: Plan, generator: random.Random) -> Plan:
    """Every third plan with `--stop-at-end` recreates its destination, unless another fault can end
    it: what a process knows of its last run must not outlive the frontiers.
    """
    kinds = {fault.kind for fault in plan.faults}
    is_possible = plan.start != "latest" and EXCLUSIVE_FAULTS.isdisjoint(kinds)
    if not plan.stop_at_end or generator.random() > 1 / 3 or not is_possible:
        return plan
    faults = (*plan.faults, *_draw_faults(generator, [DESTINATION_RECREATED]))
    return replace(plan, faults=tuple(sorted(faults, key=lambda fault: fault.at_call)))


SIMPLEST: dict[str, Any] = {
    "workers": 1,
    "topics": 1,
    "has_pattern": False,
    "first_partition": 0,
    "is_compacted": False,
    "is_compiled": False,
    "producer_queue_records": 0,
    "late_records": 0,
    "partitions": 1,
    "clock_offsets_s": (0.0,) * 4,
    "start": "earliest",
    "filter_setting": "",
    "destination_record_delay_s": 0.0,
    "transaction_share": 0.0,
}
"""The simplest value of the fields of a plan."""


def list_smaller_plans(plan: Plan) -> list[Plan]:
    """Plans that leave out one thing, the largest steps first."""
    smaller_plans = [
        replace(plan, faults=plan.faults[:number] + plan.faults[number + 1 :])
        for number in range(len(plan.faults))
    ]
    smaller_plans += [
        replace(plan, **{name: value})
        for name, value in SIMPLEST.items()
        if getattr(plan, name) != value
    ]
    if plan.candidates > 2:
        smaller_plans.append(replace(plan, candidates=2))
    if plan.records > 3:
        smaller_plans += [
            replace(plan, records=max(3, records))
            for records in (plan.records // 2, plan.records - 1)
        ]
    return smaller_plans
