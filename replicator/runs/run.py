"""A run: one streaming query from the frontier on, with an epoch of its own; its lifecycle table,
and what a failed query means.

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
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from common.errors import FilterFailed, RecordRefused, SettingsInvalid
from common.kafka.topics import Topic
from common.routes import Route, TopicPartition
from common.settings import Settings
from replicator.refused_records import DamagedBatch, find_damaged_batch, find_refused_record
from replicator.runs.last_record_check import LastCopied

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


def get_next_state(state: State, event: Event) -> State:
    """The next state; RuntimeError when the table has no such event for this state."""
    if (state, event) not in NEXT:
        raise RuntimeError(f"a run that is {state!r} cannot take {event!r}")
    return NEXT[state, event]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run needs: the epoch that every frontier shows, and where each partition begins."""

    epoch: int
    settings: Settings
    """With the cluster to copy from as the only source, and without the routes that are halted."""
    sources: dict[Route, Topic]
    """Its topics; they must stay the same ones while the run lives."""
    identities: dict[Route, str]
    """Their identities in the frontiers."""
    start_offsets: dict[TopicPartition, int]
    """By intermediate partition, the first source offset to write."""
    message_bytes_max: dict[str, int]
    """max.message.bytes, by intermediate topic."""
    last_copied: dict[TopicPartition, LastCopied] = field(default_factory=dict)
    """By source partition, what was copied last."""

    def map_source_partitions(self) -> dict[TopicPartition, TopicPartition]:
        """By intermediate partition, its source partition."""
        routes = {route.intermediate_topic: route for route in self.sources}
        return {tp: routes[tp.topic].get_source(tp.partition) for tp in self.start_offsets}

    def map_source_offsets(self) -> dict[TopicPartition, int]:
        """By source partition, the first source offset to write."""
        return {
            source: self.start_offsets[tp] for tp, source in self.map_source_partitions().items()
        }


class Query(Protocol):
    """The part of `pyspark.sql.streaming.StreamingQuery` that stage one uses, with the same names
    and meanings.
    """

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether it runs."""

    def exception(self) -> Exception | None:
        """The error that ended it."""

    def awaitTermination(self, timeout: Any) -> Any:  # noqa: N802
        """Wait so many seconds for its end; raises StreamingQueryException when it fails
        meanwhile.
        """

    def stop(self) -> None:
        """End it."""


class Engine(Protocol):
    """What runs the queries of stage one: Spark (`replicator.spark.session.Spark`), or a
    simulator's replacement. The object exists while the engine still starts.
    """

    def count_slots(self) -> int | None:
        """How many tasks can run at once now; None while it starts. Raises the error of its start,
        and StageFailed when it is gone.
        """

    def start(self, plan: Plan) -> Query:
        """Start the query of a run; called only when there are slots."""

    def close(self) -> None:
        """End it; nothing of it stays."""


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
