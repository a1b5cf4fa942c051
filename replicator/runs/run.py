"""A run: one streaming query from the frontier on, with an epoch of its own. What it needs (its
plan), and what runs it (an engine). Why it ends: `replicator.runs.end_reasons`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from common.kafka.topics import Topic
from common.routes import Route, TopicPartition
from common.settings import Settings
from replicator.runs.last_record_check import LastCopied


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
