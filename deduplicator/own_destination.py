"""A destination that a user has written (`destination.class`): a class that stores records and
positions together, atomically.

`Store` is the interface of such a class. For exactly once it must do two things: it commits the
records of a round and the positions after them in one step, and it refuses that step to a worker
when another worker has taken one of its partitions over.
`deduplicator.frontiers.own_frontier_store` and `deduplicator.own_destination_writer` do the rest,
as for PostgreSQL: the position contains the frontier, is compared with the group's commit at every
start, and is committed for the group afterwards, where stage one and the commands read it.

    take_over(partitions)          this worker owns them now; a commit of an earlier owner fails
                                   from here on
    last_source_offset(partition)  of the records that are stored, to see whether somebody else has
                                   written or deleted some
    commit(records, positions)     all or nothing

reo waits for a slow call; a call that takes longer than the watchdog's limit
(`common.liveness.SILENT_S`) ends the process.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import orjson

from common.errors import SettingsInvalid
from common.records import Headers
from common.routes import TopicPartition
from common.settings import Settings, destination_kind


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

    def take_over(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Position]:
        """Own these intermediate partitions from now on, and return the position of each one that
        has one.

        When it returns, no commit of an earlier owner may succeed any more; one that has succeeded
        has to be in what is returned.
        """

    def last_source_offset(self, destination: TopicPartition) -> int:
        """The greatest source offset of the records of a destination partition; -1 without
        records.
        """

    def commit(
        self, records: Sequence[StoredRecord], positions: Mapping[TopicPartition, Position]
    ) -> None:
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
            f"{destination_kind.DESTINATION_CLASS} {module}:{name} cannot be used with its "
            f"{destination_kind.DESTINATION_OPTIONS}: {type(failed).__name__}: {failed}"
        ) from None
    return store
