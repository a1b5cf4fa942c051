"""The interface of a destination outside of Kafka (`destination.class`), and an instance of it.

A `Store` is given the records of a round, and the positions after them. For exactly once it commits
both in one step, and refuses that step to a worker when another worker has taken one of its
partitions over. reo does the rest (`deduplicator.frontiers.stored_frontiers`,
`deduplicator.stored_destination`): the position contains the frontier, is compared with the group's
commit at every start, and is committed for the group afterwards, where stage one and the commands
read it. In the order of a worker's calls:

    Store(setup)             open it
    prepare(routes)          create what is missing for these topics; may be left out
    take_over(partitions)    this worker owns them now; a commit of an earlier owner fails from here
                             on
    read_positions(topics)   what is committed
    last_source_offset(tp)   of the records that are stored, to see whether somebody else has
                             written or deleted some
    commit(records, positions)
                             all or nothing
    close()                  may be left out

With `destination.guarantee=at-least-once` it needs `commit` alone. `is_answering`, `check`, `read`
and `count_partitions` may be left out: they are for readiness, `reo check` and `reo verify`.

reo waits for a slow call; a call that takes longer than the watchdog's limit
(`common.liveness.SILENT_S`) without calling `setup.on_wait` ends the process.
"""

from __future__ import annotations

import importlib
import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import orjson

from common import clock
from common.errors import ClusterUnreachable, ReoError, SettingsInvalid
from common.records import Headers
from common.routes import Route, TopicPartition
from common.settings import Settings

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
RETRY_INTERVAL_S = 0.5

Unavailable = ClusterUnreachable
"""A store raises it when its server does not answer: reo waits and asks again. After `commit`, the
outcome may be unknown.
"""


class NotOwner(Exception):
    """A store raises it in `commit` when another worker has taken one of the partitions over;
    nothing is stored then.
    """


class StoredRecord(NamedTuple):
    """A record of the source. `topic` and `partition` are where it goes; no two records have the
    same topic and the same source topic, partition and offset.
    """

    topic: str
    partition: int
    source_topic: str
    source_partition: int
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


class Checked(NamedTuple):
    """What `check` has seen: all is right, a warning with something `to_do`, or an error."""

    about: str
    seen: str = ""
    to_do: str = ""
    error: ReoError | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """What an instance is created with."""

    application: str
    """Keeps several copies in one store apart."""
    options: Mapping[str, Any]
    """`destination.options`."""
    connection: str = field(repr=False)
    """`destination.connection`, a secret."""
    client: str
    """A name for the server's logs."""
    timeout_s: float
    """A commit that takes longer should be given up (`deduplicator.transaction_timeout_ms`)."""
    read_only: bool
    """For `reo check` and `reo verify`: nothing may be changed, not even created."""
    on_wait: Callable[[float], None] = field(repr=False)
    """Call it, several times a minute, while a call waits, with the seconds that it has waited."""


class Store(Protocol):
    """The interface of the class that `destination.class` names. Each worker has one instance, and
    calls it in one thread. It may raise Unavailable, and any error of `common.errors`, whose exit
    code the service ends with.
    """

    identity: str
    """Stands for the store in every position; may be left out. Default: `destination.class`. With
    another one, nothing is known to be copied.
    """

    def __init__(self, setup: Setup) -> None:
        """Open it."""

    def prepare(self, routes: Sequence[Route]) -> None:
        """Before anything else is asked of these topics, at each start of partitions: create what
        is missing. What belongs to records that somebody has deleted as a whole is to be forgotten.
        """

    def take_over(self, partitions: Sequence[TopicPartition]) -> None:
        """Own these intermediate partitions from now on. When it returns, no commit of an earlier
        owner may succeed any more.
        """

    def read_positions(self, topics: Collection[str]) -> Mapping[TopicPartition, Position]:
        """The committed positions of these intermediate topics, whoever owns them; none where
        nothing was created yet.
        """

    def last_source_offset(self, destination: TopicPartition) -> int:
        """The greatest source offset of the records of a destination partition; -1 without
        records, or where nothing was created yet. Asked where a destination partition has one
        source partition, and at first starts.
        """

    def commit(
        self, records: Sequence[StoredRecord], positions: Mapping[TopicPartition, Position]
    ) -> None:
        """Store the records, in this order, and the positions (by intermediate partition): all of
        it or nothing, durably. NotOwner when this instance does not own one of these partitions
        any more.
        """

    def close(self) -> None:
        """The process ends; nothing is half done."""

    def is_answering(self) -> bool:
        """Whether the server has answered lately, without waiting for it. Default: whether it has
        answered the last call.
        """

    def check(self, routes: Sequence[Route]) -> Iterable[Checked]:
        """For `reo check` and every start: what it finds, with `setup.read_only`."""

    def read(self, destination: TopicPartition, source_offset: int) -> Iterator[StoredRecord]:
        """For `reo verify`: the records of a destination partition from this source offset on,
        ordered by it. Their source topic may be left empty.
        """

    def count_partitions(self, topic: str) -> int:
        """For `reo verify`: one more than the highest partition with records; TopicMissing where
        nothing was ever stored.
        """


class StoreClient:
    """An instance of the class, asked until it answers. Unavailable after `patience_s`."""

    def __init__(
        self,
        settings: Settings,
        role: str,
        on_wait: Callable[[float], None] = lambda _: None,
        patience_s: float = math.inf,
        read_only: bool = False,
    ) -> None:
        self.name = settings.destination.class_
        self.on_wait = on_wait
        self.patience_s = patience_s
        self.read_only = read_only
        self.has_answered = True
        setup = Setup(
            settings.application,
            orjson.loads(settings.destination.options or "{}"),
            settings.destination.connection,
            f"{settings.client_id}-{role}",
            settings.deduplicator.transaction_timeout_ms / 1000,
            read_only,
            on_wait,
        )
        self.store = self.ask("opening it", lambda: _create(self.name, setup))
        self.identity: str = getattr(self.store, "identity", self.name)

    def has(self, method: str) -> bool:
        """Whether the class has this method, which may be left out."""
        return hasattr(self.store, method)

    def ask(self, operation: str, call: Callable[[], Answer]) -> Answer:
        """Call the store again until it answers."""
        began_at, logged = clock.monotonic(), ""
        while True:
            waited_s = clock.monotonic() - began_at
            try:
                answer = call()
            except Unavailable as error:
                self.has_answered = False
                if waited_s > self.patience_s:
                    raise
                if str(error) != logged:
                    logged = str(error)
                    log.warning("waiting for %s, %s: %s", self.name, operation, error)
                self.on_wait(math.inf)
                clock.sleep(RETRY_INTERVAL_S)
            else:
                self.has_answered = True
                self.on_wait(0.0)  # the next call may take as long as this one
                return answer

    def is_answering(self) -> bool:
        """By its own word, or else whether the last call was answered."""
        return self.has_answered and (not self.has("is_answering") or self.store.is_answering())

    def close(self) -> None:
        """The end."""
        if self.has("close"):
            self.store.close()


def _create(name: str, setup: Setup) -> Store:
    """An instance of the class; SettingsInvalid when it cannot be created."""
    module, _, class_name = name.partition(":")
    try:
        store: Store = getattr(importlib.import_module(module), class_name)(setup)
    except ReoError:
        raise
    except Exception as failed:  # an import, and a user's class, can raise anything
        reason = f"{type(failed).__name__}: {failed}"
        if setup.connection:
            reason = reason.replace(setup.connection, "(secret)")
        raise SettingsInvalid(
            f"destination.class {name} cannot be used with its destination.options and"
            f" destination.connection: {reason}"
        ) from None
    return store
