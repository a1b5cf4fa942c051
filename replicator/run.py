"""A run: one streaming query from the frontier on, with an epoch of its own; and the table of a run's life.

Healing is one thing, a new run from the frontier, so every end of a run but two leads back to planning:

    planned ──started──▶ running ──failed, superseded, hole, stalled, truncated, grown, lost, lagging──▶ planned
                            ├──finished──▶ drained ──complete, behind──▶ planned
                            └──stopped──▶ done
    planned ──complete──▶ done

`finished`, `drained` and `complete` belong to `--stop-at-end`: the query has read all that was there, stage two catches up, and the
next plan says whether anything is left to copy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import orjson
from pyspark.sql import SparkSession

from common.errors import FilterFailed, RecordRefused, SettingsInvalid, StageFailed
from common.routes import Place, Route
from common.settings import Settings
from common.topics import Topic
from replicator import intermediate, source, wrap
from replicator.history import LastCopied
from replicator.sql_filter import apply_filter

State = Literal["planned", "running", "drained", "done"]
Event = Literal["started", "failed", "superseded", "hole", "stalled", "truncated", "grown", "lost", "lagging", "finished", "behind", "complete", "stopped"]
NEXT: dict[tuple[State, Event], State] = {
    ("planned", "started"): "running",
    ("planned", "complete"): "done",
    ("planned", "stopped"): "done",
    ("running", "failed"): "planned",
    ("running", "superseded"): "planned",
    ("running", "hole"): "planned",
    ("running", "stalled"): "planned",
    ("running", "truncated"): "planned",
    ("running", "grown"): "planned",
    ("running", "lost"): "planned",
    ("running", "lagging"): "planned",
    ("running", "finished"): "drained",
    ("running", "stopped"): "done",
    ("drained", "behind"): "planned",
    ("drained", "complete"): "planned",
    ("drained", "stopped"): "done",
}


def after(state: State, event: Event) -> State:
    """The state that follows; StageFailed when the table does not know the event there."""
    if (state, event) not in NEXT:
        raise StageFailed(f"a run that is {state!r} cannot take {event!r}: a defect in stage one")
    return NEXT[state, event]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is given: an epoch higher than every committed one, and where each partition begins."""

    epoch: int
    settings: Settings
    """With the cluster that is copied from as the only source."""
    sources: dict[Route, Topic]
    """The topics there: while the run lives they have to stay the same ones."""
    identities: dict[Route, str]
    """What the frontiers call them."""
    starts: dict[Place, int]
    """By intermediate partition, the source offset that is written first."""
    batch_bytes_max: int
    """The largest max.message.bytes of the intermediate topics."""
    copied: dict[Place, LastCopied] = field(default_factory=dict)
    """By source partition, what was copied last."""

    def source_partitions(self) -> dict[Place, Place]:
        """By intermediate partition, the source partition that it holds."""
        routes = {route.intermediate_topic: route for route in self.sources}
        return {place: routes[place.topic].source(place.partition) for place in self.starts}


class Query(Protocol):
    """A streaming query, as far as stage one asks it; the names and what they mean are those of `pyspark.sql.streaming.StreamingQuery`."""

    @property
    def isActive(self) -> bool:  # noqa: N802
        """Whether it runs."""

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        """What Spark said at the end of the last batch, or None: a mapping with `sources`, of which each has `endOffset`."""

    def exception(self) -> Exception | None:
        """What it failed with."""

    def awaitTermination(self, timeout: Any) -> Any:  # noqa: N802
        """Wait so many seconds for its end; raises StreamingQueryException when it fails meanwhile."""

    def stop(self) -> None:
        """End it."""


class Engine(Protocol):
    """What runs the queries of stage one: Spark (`replicator.session.Spark`), or what stands for it in a simulator. It is made while it still starts."""

    def slots(self) -> int | None:
        """How many tasks can run at once now, None while it starts; raises what its start failed with. StageFailed when it is gone."""

    def start(self, plan: Plan) -> Query:
        """Begin a run's query; only called when there are slots."""

    def close(self) -> None:
        """Leave nothing of it behind."""


def start_query(spark: SparkSession, plan: Plan) -> Query:
    """Begin the run's query: Real-Time Mode to follow the source, `availableNow` to read what is there and end."""
    settings, at_source = plan.settings, plan.source_partitions()
    records = source.records(spark, settings, {at_source[place]: offset for place, offset in plan.starts.items()})
    wrapped = wrap.wrap_records(apply_filter(records, settings.text("filter.sql")), plan.identities, plan.epoch)
    writer = intermediate.writer(wrapped, settings, plan.batch_bytes_max)
    if settings.stop_at_end:
        writer = writer.outputMode("append").trigger(availableNow=True)
    else:
        writer = writer.outputMode("update").trigger(realTime=f"{settings.number('replicator.batch_s')} seconds")  # type: ignore[call-overload]  # newer than its stub
    return writer.start()


def find_end_event(query: Query) -> Event | None:
    """How the query ended, or None while it lives. RecordRefused when a new run would meet the same record again."""
    if query.isActive:
        return None
    failure = query.exception()
    if failure is None:
        return "finished"
    if "max.request.size" in str(failure):
        raise RecordRefused("a record is larger than the buffer of stage one's producer: give intermediate.producer_options a buffer.memory and a "
                            "max.request.size that hold it; the record was not lost, stage one reads it again")
    if "RecordTooLargeException" in str(failure):
        raise RecordRefused("the intermediate topic refused a record as too large: raise its max.message.bytes above the source's by 4096; "
                            "the record was not lost, stage one reads it again")
    if unfit := wrap.find_refused_record(_full_text(failure)):
        raise unfit
    refused = re.search(r"ConfigException: Invalid value .* for configuration (.*)", _full_text(failure))
    if refused:  # the value is not repeated: it may be a secret
        raise SettingsInvalid(f"Kafka's client refuses the value of {refused[1]}: look at source.consumer_options and intermediate.producer_options")
    undecided = re.search(r"\[[A-Z_.]+\] .*SQLSTATE: 22...", _full_text(failure))  # a data exception: the records have nothing else that could raise one
    if undecided:
        raise FilterFailed(f"filter.sql cannot decide a record: {undecided[0]}. What may fail has to say NULL instead, like try_cast() and try_divide()")
    return "failed"


def read_offsets(query: Query) -> dict[Place, int]:
    """By source partition, the offset up to which the batches that are done have read; Spark says it at the end of a batch (StreamingQueryProgress)."""
    progress = query.lastProgress
    ends = [orjson.loads(read["endOffset"]) for read in progress["sources"]] if progress else []
    return {Place(topic, int(partition)): offset for end in ends if end for topic, offsets in end.items() for partition, offset in offsets.items()}


def _full_text(failure: Exception | None) -> str:
    return f"{failure}\n{getattr(failure, '_cause', None) or ''}"


def describe_failure(failure: Exception | None) -> str:
    """Why a query failed, in one line: what Spark says, and the innermost cause, which is what has to be mended."""
    text = _full_text(failure)
    causes = re.findall(r"^Caused by: (.*)$", text, re.MULTILINE)
    return " <- ".join([text.split("\n", 1)[0], *causes[-1:]])[:500]
