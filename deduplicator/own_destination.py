"""A user's own destination (`destination.class`): a class that stores records and positions
together, atomically.

`Store` is the interface of such a class. For exactly once it must do two things: it commits the
records of a round and the positions behind them in one step, and it refuses that step to a worker
when another worker has taken one of its partitions over. This module does the rest, as for
PostgreSQL: the position contains the frontier, is compared with the group's commit at every start,
and is committed for the group afterwards, where stage one and the commands read it.

    take_over(partitions)          this worker owns them now; a commit of an earlier owner fails
                                   from here on
    last_source_offset(partition)  of the records that are stored, to see whether somebody else has
    written or deleted some
    commit(records, positions)     all or nothing

reo waits for a slow call; a call that takes longer than the watchdog's limit
(`reo.service.health.SILENT_S`) ends the process.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import orjson
from confluent_kafka import TopicPartition

from common import failpoints, runtime
from common.errors import DestinationTruncated, Fenced, ForeignWriter, SettingsInvalid
from common.frontier import Frontier
from common.kafka import topics
from common.metrics import TRANSACTIONS
from common.records import Headers
from common.routes import Place, Route
from common.settings import Settings, destination_settings
from deduplicator.destination import Output
from deduplicator.frontier_store import CheckedOutputs, LoadedFrontiers, merge_group_commits
from deduplicator.group_commits import ConsumerGroup
from deduplicator.transaction import TransactionFailed
from deduplicator.unwrap import Record

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
RETRY_INTERVAL_S = 0.5


class Unavailable(Exception):
    """A store raises it when its server does not answer: reo waits and asks again. After `commit`,
    the outcome may be unknown.
    """


class NotOwner(Exception):
    """A store raises it in `commit` when another worker has taken one of the partitions over;
    nothing is stored then.
    """


class StoredRecord(NamedTuple):
    """A record of the source. `topic` is the destination topic; no two records have the same topic,
    partition and source offset.
    """

    topic: str
    partition: int
    source_offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class Position(NamedTuple):
    """How far an intermediate partition is copied: an offset and a text of reo's, to be stored and
    returned unchanged.
    """

    next_offset: int
    frontier: str


class Store(Protocol):
    """The interface of the class that `destination.class` names. Each worker has one instance, and
    calls it in one thread.
    """

    def __init__(self, application: str, options: Mapping[str, Any]) -> None:
        """`application` keeps several copies in one store apart; `options` are
        `destination.options`.
        """

    def take_over(self, partitions: Sequence[Place]) -> Mapping[Place, Position]:
        """Own these intermediate partitions from now on, and return the position of each one that
        has one.

        When it returns, no commit of an earlier owner may succeed any more; one that has succeeded
        has to be in what is returned.
        """

    def last_source_offset(self, destination: Place) -> int:
        """The greatest source offset of the records of a destination partition; -1 without
        records.
        """

    def commit(self, records: Sequence[StoredRecord], positions: Mapping[Place, Position]) -> None:
        """Store the records, in this order, and the positions (by intermediate partition): all of
        it or nothing, durably.

        NotOwner when this instance does not own one of these partitions any more.
        """

    def close(self) -> None:
        """The worker ends; nothing is half done."""


def load_store(settings: Settings) -> Store:
    """An instance of the class; SettingsInvalid when it cannot be created."""
    module, _, name = settings.destination.class_.partition(":")
    options = orjson.loads(settings.destination.options or "{}")
    try:
        store: Store = getattr(importlib.import_module(module), name)(settings.application, options)
    except Unavailable:
        raise
    except Exception as failed:  # an import, and a user's class, can raise anything
        raise SettingsInvalid(
            f"{destination_settings.DESTINATION_CLASS} {module}:{name} cannot be used with its "
            f"{destination_settings.DESTINATION_OPTIONS}: {type(failed).__name__}: {failed}"
        ) from None
    return store


class OwnFrontierStore:
    """The positions in the user's store, and who owns them."""

    def __init__(
        self, settings: Settings, routes: Mapping[str, Route], consumer_group: ConsumerGroup
    ) -> None:
        self.settings = settings
        self.routes = routes
        """By intermediate topic; routes are added while the worker runs."""
        self.consumer_group = consumer_group
        self.identity = settings.destination.class_
        """Stands for the destination's topic id in a frontier."""
        self.answers = True
        self.store = self.call_with_retries("opening it", lambda: load_store(settings))

    def call_with_retries(self, operation: str, call: Callable[[], Answer]) -> Answer:
        """Call the store again until it answers."""
        while True:
            self.consumer_group.pulse.beat()
            try:
                answer = call()
            except Unavailable as error:
                self.answers = False
                log.warning("%s of %s: it does not answer: %s", operation, self.identity, error)
                self.consumer_group.pulse.wait("database")
                runtime.sleep(RETRY_INTERVAL_S)
            else:
                self.answers = True
                return answer

    def list_started_topics(self) -> set[str]:
        """From the group's commits, which repeat the store's positions."""
        return self.consumer_group.list_started_topics()

    def load_frontiers(self, partitions: Collection[Place]) -> LoadedFrontiers:
        """Take these partitions over, and return their positions, compared with the group's
        commits.
        """
        group_commits = self.consumer_group.load_commits(
            {place.topic for place in partitions}, partitions
        )
        positions = self.call_with_retries(
            "taking partitions over", lambda: self.store.take_over(sorted(partitions))
        )
        return merge_group_commits(
            group_commits,
            {
                place: (position.next_offset, position.frontier)
                for place, position in positions.items()
            },
            partitions,
            self.identity,
        )

    def describe_destinations(self, routes: Collection[Route]) -> dict[str, topics.Topic] | None:
        """The destination topics; they have as many partitions as the intermediate topics."""
        described = self.consumer_group.describe_topics(
            {route.intermediate_topic for route in routes}
        )
        if len(described) < len(routes):
            return None
        return {
            route.intermediate_topic: topics.Topic(
                route.destination_topic,
                self.identity,
                described[route.intermediate_topic].partitions,
                "",
            )
            for route in routes
        }

    def get_end_offsets(self, outputs: Iterable[Place]) -> dict[Place, int]:
        """One more than the last source offset of each partition."""
        return {place: self._get_last_source_offset(place) + 1 for place in outputs}

    def check_outputs(self, frontiers: Mapping[Place, Frontier]) -> CheckedOutputs:
        """The last record of a partition has to be the one that the frontier names."""
        for place, frontier in frontiers.items():
            known, last = frontier.destination_known, self._get_last_source_offset(place)
            if last > known:
                raise ForeignWriter(
                    f"{self.identity} has a record of {place} with source offset {last}, which this"
                    f" copy did not write: its own last one has {known}. Stop the other writer;"
                    " then copy to a new destination.topic, or delete that record"
                )
            if last < known:
                raise DestinationTruncated(
                    f"{self.identity} lacks records of {place} that were committed: the last one"
                    f" had source offset {known}, now it is {last}. Copy to a new"
                    " destination.topic, or restore this one"
                )
        return {
            place: Output(frontier.destination_known, 0) for place, frontier in frontiers.items()
        }, {}

    def _get_last_source_offset(self, place: Place) -> int:
        return self.call_with_retries(
            "reading the last record", lambda: self.store.last_source_offset(place)
        )


class OwnDestination:
    """Keeps the records of a round until the user's store commits them."""

    def __init__(
        self,
        frontier_store: OwnFrontierStore,
        commit_for_group: Callable[[Sequence[TopicPartition]], None],
    ) -> None:
        self.frontier_store = frontier_store
        self.commit_for_group = commit_for_group
        self.outputs: dict[Place, Output] = {}
        """`known_offset` is the source offset of the last record; `sent` is always 0."""
        self._records: list[StoredRecord] = []
        self._offsets: Sequence[TopicPartition] = ()

    def begin(self) -> None:
        """Nothing is open while records are decided."""
        self._records = []

    def write(self, place: Place, records: Sequence[Record], source_offsets: Sequence[int]) -> None:
        """Keep the records for the commit."""
        self._records += [
            StoredRecord(*place, offset, key, value, list(headers or []), timestamp_ms)
            for (key, value, headers, timestamp_ms), offset in zip(
                records, source_offsets, strict=True
            )
        ]
        self.outputs[place].known_offset = source_offsets[-1]

    def prepare_commit(self, offsets: Callable[[], Sequence[TopicPartition]], member: Any) -> None:  # noqa: ARG002  (the store knows who owns a partition)
        """Keep the offsets for the commit."""
        self._offsets = offsets()

    def finish_commit(self) -> None:
        """Nothing to do: `start_commit` has waited."""

    def start_commit(self) -> None:
        """One step of the store; then the group's commits. Fenced, or TransactionFailed when the
        outcome is unknown.
        """
        positions = {
            Place(place.topic, place.partition): Position(place.offset, str(place.metadata))
            for place in self._offsets
        }
        failpoints.hit("two: offsets sent")
        try:
            self.frontier_store.store.commit(self._records, positions)
        except NotOwner as error:
            TRANSACTIONS.labels("aborted").inc()
            raise Fenced(
                f"another worker has taken {', '.join(map(str, sorted(positions)))} over: {error}"
            ) from None
        except Unavailable as error:
            TRANSACTIONS.labels("unknown").inc()
            self.frontier_store.answers = False
            raise TransactionFailed(
                f"committing to {self.frontier_store.identity}: {error}"
            ) from None
        failpoints.hit("two: committed")  # the group does not know it yet
        TRANSACTIONS.labels("committed").inc()
        self.commit_for_group(self._offsets)

    def abort(self) -> None:
        """Nothing is open outside `commit`."""
        self._records = []

    def resolve_in_doubt(self) -> None:
        """Nothing to do: the next `take_over` returns the outcome of a commit in doubt."""

    def check_for_loss(self, topic_ids: Mapping[str, str]) -> None:
        """Nothing to do: each start checks it."""

    def is_answering(self) -> bool:
        """Whether the last call was answered."""
        return self.frontier_store.answers

    def add_routes(self, routes: Collection[Route]) -> None:
        """The store learns of them with their first partition."""

    def close(self) -> None:
        """Close the store."""
        self.frontier_store.store.close()
