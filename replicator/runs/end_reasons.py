"""Why a run of stage one ends: the events of a run with the table of its states, which event two
snapshots show, and what a failed query means.

There is one way to recover: a new run from the frontier. So every end of a run except two leads
back to planning:

    planned ──started──▶ running ──failed, superseded, gap, stalled, truncated, grown, switched,
    lost, lagging, finished──▶ planned
                            └──stopped──▶ done
    planned ──complete──▶ done

`finished` and `complete` belong to `--stop-at-end`: the query has read everything that was there.
For the next plan stage two has to read all that was written (`replicator.runs.epochs`), so the plan
shows whether anything is left to copy.
"""

from __future__ import annotations

import re
from typing import Literal

from common.errors import FilterFailed, RecordRefused, SettingsInvalid
from common.routes import TopicPartition
from replicator.refused_records import DamagedBatch, find_damaged_batch, find_refused_record
from replicator.runs.run import Plan, Query
from replicator.runs.snapshot import ClusterSnapshot, PartitionSnapshot
from replicator.runs.source_losses import is_truncated

State = Literal["planned", "running", "done"]
Event = Literal[
    "started",
    "failed",
    "superseded",
    "gap",
    "stalled",
    "truncated",
    "grown",
    "switched",
    "lost",
    "lagging",
    "finished",
    "complete",
    "stopped",
]
NEXT: dict[tuple[State, Event], State] = {
    ("planned", "started"): "running",
    ("planned", "complete"): "done",
    ("planned", "stopped"): "done",
    ("running", "failed"): "planned",
    ("running", "superseded"): "planned",
    ("running", "gap"): "planned",
    ("running", "stalled"): "planned",
    ("running", "truncated"): "planned",
    ("running", "grown"): "planned",
    ("running", "switched"): "planned",
    ("running", "lost"): "planned",
    ("running", "lagging"): "planned",
    ("running", "finished"): "planned",
    ("running", "stopped"): "done",
}
GAP_S = 5.0
"""How long a gap may stay unchanged, and offsets may be missing at the source: an envelope that is
on its way, or a retry inside Spark, would have arrived by then.
"""
STALL_S = 45.0
"""How long stage one may write nothing although a visible record waits for it. Real-Time Mode
retries an out-of-range read at offset 0 for ever.
"""
START_S_A_PARTITION = 0.05
"""How much longer the first record of a run may take, for each partition: on a busy machine none of
2,000 tasks had written anything after 80 s.
"""


def get_next_state(state: State, event: Event) -> State:
    """The next state; RuntimeError when the table has no such event for this state."""
    if (state, event) not in NEXT:
        raise RuntimeError(f"a run that is {state!r} cannot take {event!r}")
    return NEXT[state, event]


def find_event(plan: Plan, before: ClusterSnapshot | None, now: ClusterSnapshot) -> Event | None:
    """The reason to end the run, or None. Pure.

    truncated    the source ends before what was copied from it
    superseded   a frontier is not of this run's epoch: another run has begun, or stage two has
                 begun again; or it is below the first offset of this run
    gap          envelopes are missing: stage two says so, and nothing fills the gap; or the end of
                 an intermediate partition has gone back, or its topic is gone
    stalled      stage two has read everything, something waits at the source, and stage one writes
                 nothing; or what waited there was deleted, which the next plan names
    grown        the source has more topics or partitions; the run need not end before each of them
                 has a frontier
    """
    partitions = now.asked
    if any(map(is_truncated, partitions.values())):
        return "truncated"
    if any(_is_superseded(plan, tp, partition) for tp, partition in partitions.items()):
        return "superseded"
    if any(
        has_unfilled_gap(before.partitions[tp] if before else None, partition, now.taken_at_s)
        for tp, partition in partitions.items()
    ):
        return "gap"
    if any(_is_stalled(plan, tp, partition, now) for tp, partition in partitions.items()):
        return "stalled"
    has_grown = any(
        route not in plan.sources or source.partitions > plan.sources[route].partitions
        for route, source in now.sources.items()
    )
    return "grown" if has_grown else None


def has_unfilled_gap(
    before: PartitionSnapshot | None, now: PartitionSnapshot, now_s: float
) -> bool:
    """Whether envelopes of this run are missing, and nothing writes them."""
    if now.intermediate_end is None:
        return True
    if before is not None and now.intermediate_end < (before.intermediate_end or 0):
        return True
    if now.commit is None or now.gap is None:
        return False
    return now_s - now.gap.since_s > GAP_S


def _is_superseded(plan: Plan, tp: TopicPartition, partition: PartitionSnapshot) -> bool:
    return partition.commit is not None and (
        partition.commit.frontier.epoch != plan.epoch
        or partition.next_offset < plan.start_offsets[tp]
    )


def _is_stalled(
    plan: Plan, tp: TopicPartition, partition: PartitionSnapshot, now: ClusterSnapshot
) -> bool:
    still_s = now.taken_at_s - partition.progressed_at_s
    if partition.is_deleted_uncopied:
        return still_s > GAP_S
    # until it has written, its task may not have started while others still do
    start_s = STALL_S + START_S_A_PARTITION * len(now.partitions)
    has_written = partition.next_offset > plan.start_offsets[tp]
    is_started = has_written or now.taken_at_s - now.started_at_s > start_s
    return is_started and still_s > STALL_S


def find_end_event(query: Query) -> Event | None:
    """The event with which the query ended, or None while it lives. RecordRefused when a new run
    would meet the same record again.
    """
    if query.isActive:
        return None
    failure = query.exception()
    if failure is None:
        return "finished"
    text = _read_full_text(failure)
    if "max.request.size" in text:
        raise RecordRefused(
            "a record is larger than the buffer of stage one's producer: in"
            " intermediate.producer_options, set buffer.memory and max.request.size above its size;"
            " the record was not lost, stage one reads it again"
        )
    if "RecordTooLargeException" in text:
        unwritten = re.search(r"an envelope for (\S+)-\d+ was not written", text)
        raise RecordRefused(
            "the intermediate topic refused a record as too large"
            f"{f': {unwritten[0]}' if unwritten else ''}. The record was not lost, stage one reads"
            " it again",
            "Set producer.compression_type if the source's producers compress: what is written"
            " without counts uncompressed. Otherwise raise its max.message.bytes above the size of"
            " the record, and that of the destination topic",
            topic=unwritten[1] if unwritten else "",
        )
    if refused_record := find_refused_record(text):
        raise refused_record
    if other_version := re.search(r"reo's sink was compiled for Spark .*", text):
        raise SettingsInvalid(
            f"{other_version[0]}: executors have to run the version of Spark that is installed here"
            " (pyspark), see `reo setup`"
        )
    invalid_option = re.search(r"ConfigException: Invalid value .* for configuration (.*)", text)
    if invalid_option:  # the value is not repeated: it may be a secret
        raise SettingsInvalid(
            f"Kafka's client refuses the value of {invalid_option[1]}: check"
            " source.consumer_options and intermediate.producer_options"
        )
    # only the filter can raise one
    data_exception = re.search(r"\[[A-Z_.]+\] .*SQLSTATE: 22...", text)
    if data_exception:
        raise FilterFailed(
            f"filter.sql fails at a record: {data_exception[0]}. Use functions that return NULL"
            " instead, like try_cast() and try_divide()"
        )
    return "failed"


def _read_full_text(failure: Exception | None) -> str:
    return f"{failure}\n{getattr(failure, '_cause', None) or ''}"


def find_damage(failure: Exception | None) -> DamagedBatch | None:
    """The damaged batch of the source that is why a query failed."""
    return find_damaged_batch(_read_full_text(failure))


def describe_failure(failure: Exception | None) -> str:
    """Why a query failed, in one line: why an envelope was not written, or else Spark's message and
    the innermost cause, which is what to repair.
    """
    text = _read_full_text(failure)
    if unwritten := re.search(r"an envelope for \S+ was not written: .*", text):
        return unwritten[0][:500]
    causes = re.findall(r"^Caused by: (.*)$", text, re.MULTILINE)
    return " <- ".join([text.split("\n", 1)[0], *causes[-1:]])[:500]
