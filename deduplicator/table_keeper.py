"""The tables of a copy, the frontiers that are in one of them, and whose they are: one session, shared with `deduplicator.postgresql`.

A partition's frontier is a row of `reo_frontier`: the next intermediate offset, the same string that is else the metadata of the group's commit, and a
`fence`. Whoever takes a partition over raises its fence, in an UPDATE that waits for the row and so for whatever a predecessor has not decided yet. A
transaction moves a frontier only from the fence and the string that its worker has read (`move`). So of two workers that believe to own a partition
one moves no row, and is fenced; it is what the producer epoch is for topics.

A predecessor that stands still in the middle of its transaction would hold the row for ever: its kernel keeps the connection up, and a server waits in a COPY
without a time-out. So before the fence is raised, whoever holds one of the rows is ended (pg_terminate_backend); as with init_transactions, what
it had open is undone.

The group's commits repeat the frontiers (the mirror), for stage one and all else that reads them there. They are made after the database's, so they can be
behind, then they are made again. They are never ahead, unless the database was set back: that is a stop.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

import psycopg
from psycopg import sql

from common import frontier as frontiers
from common import machine, postgresql, topics
from common.errors import ClusterUnreachable, DestinationTruncated, Fenced, ForeignWriter, FrontierUnreadable, TopicsUnfit
from common.frontier import Frontier
from common.positions import Committed
from common.postgresql import PAUSE_S, Session
from common.routes import Place, Route
from common.settings import Settings
from common.tables import name_error
from deduplicator.destination import Output
from deduplicator.keeper import Checked, Found, InGroup
from deduplicator.rows import COLUMNS, PRIMARY_KEY

log = logging.getLogger(__name__)
Answer = TypeVar("Answer")
WAITS_S = 5.0
"""After which a server that is still not done is said to be waited for."""
LATE = "the transaction is not over within deduplicator.transaction_timeout_ms"
IDENTITY = "postgresql"
"""In the place of the destination's topic id in a frontier: its rows go with their table (`_make`)."""
ONE_MAKER = 0x72656F
"""Of the advisory lock under which tables are made: two workers at once would fail."""
MAKE_FRONTIERS = """CREATE TABLE {} (application text, intermediate_topic text, partition integer, next_offset bigint NOT NULL, frontier text NOT NULL,
    fence bigint NOT NULL, PRIMARY KEY (application, intermediate_topic, partition))"""
END_HOLDERS = """SELECT pg_terminate_backend(l.pid) FROM {} f JOIN unnest(%s::text[], %s::int[]) AS w (topic, partition)
    ON f.intermediate_topic = w.topic AND f.partition = w.partition
    JOIN pg_locks l ON l.locktype = 'transactionid' AND l.granted AND l.transactionid = f.xmax
    WHERE f.application = %s AND l.pid <> pg_backend_pid()"""
RAISE_FENCES = """UPDATE {} f SET fence = f.fence + 1 FROM unnest(%s::text[], %s::int[]) AS w (topic, partition)
    WHERE f.application = %s AND f.intermediate_topic = w.topic AND f.partition = w.partition"""
READ = "SELECT intermediate_topic, partition, next_offset, frontier, fence FROM {} WHERE application = %s AND intermediate_topic = ANY(%s)"
MOVE = """UPDATE {} f SET next_offset = n.next_offset, frontier = n.frontier
    FROM unnest(%s::text[], %s::int[], %s::bigint[], %s::text[], %s::bigint[], %s::text[]) AS n (topic, partition, next_offset, frontier, fence, was)
    WHERE f.application = %s AND f.intermediate_topic = n.topic AND f.partition = n.partition AND f.fence = n.fence AND f.frontier = n.was"""
ADD = "INSERT INTO {} VALUES (%s, %s, %s, %s, %s, 1) ON CONFLICT DO NOTHING"
MAKE_TABLE = f"CREATE TABLE {{}} ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())}, PRIMARY KEY ({', '.join(PRIMARY_KEY)}))"
ANY = "SELECT EXISTS (SELECT FROM {} WHERE application = %s)"
FORGET = "DELETE FROM {} WHERE application = %s AND intermediate_topic = %s"
LAST = "SELECT source_offset FROM {} WHERE partition = %s ORDER BY source_offset DESC LIMIT 1"
SHAPE = """SELECT relpersistence::text, (SELECT array_agg(attname || ' ' || format_type(atttypid, atttypmod)) FROM pg_attribute
        WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
    EXISTS (SELECT FROM pg_index i WHERE indrelid = c.oid AND indisunique AND indpred IS NULL AND
        (SELECT array_agg(attname::text ORDER BY attname) FROM pg_attribute WHERE attrelid = c.oid AND attnum = ANY(i.indkey)) = %s::text[])
    FROM pg_class c WHERE oid = to_regclass(%s)"""


class Held(NamedTuple):
    """A row as this worker has read or written it."""

    fence: int
    frontier: str


class TableKeeper:
    """The session of one worker."""

    def __init__(self, settings: Settings, number: int, routes: Mapping[str, Route], in_group: InGroup) -> None:
        self.settings = settings
        self.role = f"deduplicator-{number}"
        self.routes = routes
        """By intermediate topic; it grows."""
        self.in_group = in_group
        self.frontiers = postgresql.frontiers(settings)
        self.held: dict[Place, Held] = {}
        self._session: Session | None = None
        self.over_at = math.inf

    @property
    def session(self) -> Session:
        """Waits as long as the server is silent."""
        if self._session is None or self._session.closed:
            self._session = postgresql.connect(self.settings, self.role, pulse=self.in_group.pulse)
            self._session.on_wait = self._on_wait
        return self._session

    def over_by(self, seconds: float) -> None:
        """A transaction has to be over in so many seconds, or it ends with psycopg.OperationalError."""
        self.over_at = machine.monotonic() + seconds

    def _on_wait(self, waited_s: float) -> None:
        """While the server is waited for."""
        if machine.monotonic() > self.over_at:
            self.over_at = math.inf
            self.close()
            raise psycopg.OperationalError(LATE)
        if waited_s > WAITS_S:
            self.in_group.pulse.wait("database")
        else:
            self.in_group.pulse.beat()

    def close(self) -> None:
        """What is open is undone by the server."""
        if self._session is not None:
            self._session.close()

    def has_begun(self) -> bool:
        """By the database, or by what the group has of tables that are gone."""
        def question(session: Session) -> bool:
            if not postgresql.is_there(session, self.frontiers):
                return False
            row = session.execute(sql.SQL(ANY).format(self.frontiers), [self.settings.application]).fetchone()
            return bool(row and row[0])
        return self._ask("looking for frontiers", question) or self.in_group.has_frontiers()

    def found(self, wanted: Collection[Place]) -> Found:
        """Take these partitions over: their rows, which nobody else can move from now on, held against the group's commits."""
        mirror = self.in_group.commits({place.topic for place in wanted})
        rows = self._ask("taking the frontiers over", lambda session: self.take_over(session, sorted(wanted)))
        commits, again = dict(mirror), set[Place]()
        for place, (next_offset, held) in rows.items():
            kept = Committed(next_offset, _decoded(place, held))
            said = mirror.get(place)
            if said is None:  # they go with their topic: the offset may be one of a topic that is gone
                kept = Committed(-1, kept.frontier)
            elif place in wanted:
                _check_not_set_back(place, kept.frontier, said.frontier)
            if said != kept:
                again.add(place)
            commits[place] = kept
        for place in wanted:
            self.held.pop(place, None)
        self.held |= {place: held for place, (_, held) in rows.items() if place in wanted}
        for place in commits.keys() - rows.keys():  # of tables that are gone, or of a destination before this one: only that there was a copy counts
            commits[place] = Committed(-1, _of_another(commits[place].frontier))
        return Found(commits, again & set(wanted))

    def leads_to(self, routes: Collection[Route]) -> dict[str, topics.Topic] | None:
        """The tables, which are there by now."""
        names = {route.intermediate_topic for route in routes}
        described = self.in_group.described(names)
        if len(described) < len(names):
            return None
        return {route.intermediate_topic: topics.Topic(route.destination_topic, IDENTITY, described[route.intermediate_topic].partitions, "")
                for route in routes}

    def ends(self, outputs: Iterable[Place]) -> dict[Place, int]:
        """Behind the greatest source offset of each partition."""
        return {place: last + 1 for place, last in self._last(outputs).items()}

    def checked(self, frontiers: Mapping[Place, Frontier]) -> Checked:
        """The last row of a partition is the one that the frontier names: rows and frontier cannot be torn, but somebody else can write or delete."""
        for place, last in self._last(frontiers).items():
            _check_last(place, frontiers[place].destination_known, last)
        return {place: Output(frontier.destination_known, 0) for place, frontier in frontiers.items()}, {}

    def move(self, session: Session, positions: Mapping[Place, tuple[int, str]]) -> None:
        """In the open transaction; Fenced when one of the rows is not as this worker knows it. The rows are locked from then on."""
        known = {place: self.held[place] for place in positions if place in self.held}
        columns = [(*place, *positions[place], *held) for place, held in sorted(known.items())]
        moved = session.execute(sql.SQL(MOVE).format(self.frontiers), [*(list(column) for column in zip(*columns, strict=True)), self.settings.application]
                                ).rowcount if columns else 0
        for place in sorted(positions.keys() - known.keys()):
            moved += session.execute(sql.SQL(ADD).format(self.frontiers), [self.settings.application, *place, *positions[place]]).rowcount
        if moved < len(positions):
            raise Fenced(f"another worker has taken {', '.join(map(str, sorted(positions)))} over: its frontiers are not as this one has read them")

    def check_last(self, session: Session, known: Mapping[Place, int]) -> None:
        """In the open transaction: what `checked` asks, of the partitions that are written now."""
        for place, last in self._last_rows(session, known).items():
            _check_last(place, known[place], last)

    def moved(self, positions: Mapping[Place, tuple[int, str]]) -> None:
        """The transaction of `move` is committed."""
        for place, (_, frontier) in positions.items():
            self.held[place] = Held(self.held[place].fence if place in self.held else 1, frontier)

    def _ask(self, doing: str, question: Callable[[Session], Answer]) -> Answer:
        """Again with a new session until the server answers, or has an answer that stands."""
        while True:
            try:
                return question(self.session)
            except psycopg.Error as failed:
                error = postgresql.translate(failed, doing)
                if not isinstance(error, ClusterUnreachable):
                    raise error from None
                log.warning("%s", error)
                self.in_group.pulse.wait("database")
                self.close()
                machine.sleep(PAUSE_S)

    def take_over(self, session: Session, wanted: list[Place]) -> dict[Place, tuple[int, Held]]:
        """Make the tables, end whoever holds these rows, raise their fences; every row of their topics, with its next offset."""
        names = sorted({place.topic for place in wanted})
        self._make(session, [self.routes[name] for name in names])
        whose = [[place.topic for place in wanted], [place.partition for place in wanted], self.settings.application]
        ended = session.execute(sql.SQL(END_HOLDERS).format(self.frontiers), whose).rowcount
        if ended:
            log.warning("%d sessions were in the middle of a transaction on the frontiers of %s: ended", ended, wanted)
        with session.transaction():
            session.execute(sql.SQL(RAISE_FENCES).format(self.frontiers), whose)
            return self.read(session, names)

    def read(self, session: Session, names: list[str]) -> dict[Place, tuple[int, Held]]:
        """Every row of these intermediate topics, with its next offset."""
        rows = session.execute(sql.SQL(READ).format(self.frontiers), [self.settings.application, names])
        return {Place(topic, partition): (next_offset, Held(fence, frontier)) for topic, partition, next_offset, frontier, fence in rows}

    def _make(self, session: Session, routes: Collection[Route]) -> None:
        """What is missing is made; frontiers of a table that was not there are of one that is gone."""
        names = [(route, postgresql.table(self.settings, route.destination_topic)) for route in routes]
        for route, _ in names:
            if name_error(route.destination_topic):
                raise TopicsUnfit(name_error(route.destination_topic))
        if not all(postgresql.is_there(session, name) for name in (self.frontiers, *(name for _, name in names))):
            with session.transaction():
                session.execute("SELECT pg_advisory_xact_lock(%s)", [ONE_MAKER])
                if not postgresql.is_there(session, self.frontiers):
                    session.execute(sql.SQL(MAKE_FRONTIERS).format(self.frontiers))
                for route, name in names:
                    if not postgresql.is_there(session, name):
                        log.info("creating the table %s", route.destination_topic)
                        session.execute(sql.SQL(MAKE_TABLE).format(name))
                        session.execute(sql.SQL(FORGET).format(self.frontiers), [self.settings.application, route.intermediate_topic])
        for _, name in names:
            check_shape(session, name)

    def _last(self, places: Iterable[Place]) -> dict[Place, int]:
        """The greatest source offset of each partition's rows; -1 for none."""
        return self._ask("reading the last rows", lambda session: self._last_rows(session, places))

    def _last_rows(self, session: Session, places: Iterable[Place]) -> dict[Place, int]:
        rows = {place: session.execute(sql.SQL(LAST).format(postgresql.table(self.settings, place.topic)), [place.partition]).fetchone()
                for place in places}
        return {place: row[0] if row else -1 for place, row in rows.items()}


def check_shape(session: Session, name: sql.Identifier) -> None:
    """TopicsUnfit for a table that somebody has made otherwise."""
    shown = name.as_string(session)
    row = session.execute(SHAPE, [sorted(PRIMARY_KEY), shown]).fetchone()
    persistence, columns, unique = row or ("", [], False)
    missing = [f"{column} {kind}" for column, kind in COLUMNS.items() if f"{column} {kind}" not in columns]
    if missing:
        raise TopicsUnfit(f"the table {shown} lacks {', '.join(missing)}: change it, or name another destination.topic")
    if not unique or persistence != "p":
        raise TopicsUnfit(f"the table {shown} has to be logged, and to have the primary key ({', '.join(PRIMARY_KEY)}): change it, or name another "
                          "destination.topic")


def _check_last(place: Place, known: int, last: int) -> None:
    """ForeignWriter or DestinationTruncated when the last row is not the one that was written last; a table without any is its owner's doing."""
    if last > known:
        raise ForeignWriter(f"the table of {place} has a row with source_offset {last}, which was not written by this copy: its last one has {known}. "
                            "Stop the other writer; then copy to a new destination.topic, or delete that row")
    if 0 <= last < known:
        raise DestinationTruncated(f"the table of {place} lacks rows that were committed: the last one had source_offset {known}, now it is {last}. "
                                   "Copy to a new destination.topic, or restore this one")
    if last < known:
        log.warning("%s: all rows were deleted; what was copied is not copied again", place)


def _decoded(place: Place, held: Held) -> Frontier:
    try:
        return frontiers.decode(held.frontier)
    except ValueError as reason:
        raise FrontierUnreadable(f"the frontier of {place} in the database is none of this version of reo ({reason})") from None


def _of_another(frontier: Frontier) -> Frontier:
    return replace(frontier, destination_topic_id="")


def _check_not_set_back(place: Place, kept: Frontier, said: Frontier) -> None:
    """DestinationTruncated when the group says more than the database: stage one would go on from there, and what is between would be missing."""
    if said.destination_topic_id == IDENTITY and said.rule.frontier > kept.rule.frontier:
        raise DestinationTruncated(
            f"the database was set back: by the group's commit on {place} it had records up to source offset {said.rule.frontier}, now its frontier is at "
            f"{kept.rule.frontier}. If this database is the right one (restored from a backup, or a standby that lacked the newest transactions), stop the "
            "service, delete the group (kafka-consumer-groups.sh --delete --group) and start again: the copy goes on from the database's frontier")
