"""The service's own functions, as the model calls them: nothing here decides anything.

Each method hands a question of the model to the very code that runs in production and returns its answer as plain tuples, which
the model can keep in a state. Answers are remembered, because an exploration asks the same few questions millions of times;
that is allowed since all of them are pure. Modules can be replaced by mutated copies (`proof.mutants`).

Where production code talks to a client (`deduplicator.transaction`, `deduplicator.destination_check`), the client here does as it is told and
writes down how it was called, so that the model's broker can act on it: what the client was *really* asked to do is what
happens there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from common import epochs
from common import frontier as frontiers
from common.errors import Stop
from common.frontier import RuleState
from common.origin import Origin as Read
from common.pulse import Pulse
from common.routes import Place
from deduplicator import destination_check, rule, transaction
from deduplicator.unwrap import Record
from replicator import run

SOURCE_IDENTITY = "source"
TOPIC_ID = "destination"
COPY = Place("copy", 0)
PRODUCTION: Mapping[str, ModuleType] = {
    "common.epochs": epochs, "common.frontier": frontiers, "deduplicator.rule": rule,

    "deduplicator.transaction": transaction, "deduplicator.destination_check": destination_check, "replicator.run": run}
ERRORS = {
    "abortable": lambda: KafkaError(KafkaError.REQUEST_TIMED_OUT, "abort it", False, False, True),
    "in doubt": lambda: KafkaError(KafkaError._TIMED_OUT, "no answer", False, True, False),
}
Origin = tuple[int, int, int, int]
"""Source offset, epoch, batch, sequence."""


class Decided(NamedTuple):
    """The rule's answer: the state after, and the source offsets that are new."""

    rule: RuleState
    accepted: tuple[int, ...]


class Started(NamedTuple):
    """The check's answer: where the output stands, and what is there beyond it; `stop` names the error that was raised instead."""

    known: int
    sent: int
    surplus: tuple[int, ...]
    stop: str


class Client:
    """A transactional client that does what it is told, and remembers what that was."""

    def __init__(self, calls: list[str], fails: str) -> None:
        self.calls = calls
        self.fails = fails

    def __getattr__(self, name: str) -> Any:
        def call(*_: object) -> None:
            self.calls.append(name)
            if name == self.fails:
                raise KafkaException(ERRORS["in doubt"]())
        return call


class Reader:
    """A read_committed reader of one destination partition; in the model a record has its source's offset there too."""

    def __init__(self, offsets: tuple[int, ...]) -> None:
        self.offsets = offsets
        self.begin = 0

    def assign(self, places: list[Any]) -> None:
        """From there on."""
        self.begin = places[0].offset

    def consume(self, *_: object) -> list[Any]:
        """Everything, then the end."""
        eof = SimpleNamespace(error=lambda: KafkaError(KafkaError._PARTITION_EOF), topic=lambda: COPY.topic, partition=lambda: COPY.partition)
        return [Message(offset) for offset in self.offsets if offset >= self.begin] + [eof]

    def unassign(self) -> None:
        """Nothing to do."""


class Message:
    """A consumed record, as far as the check asks for it."""

    def __init__(self, offset: int) -> None:
        self.at = offset
        self.record = record(offset)

    def error(self) -> None:
        """None."""

    def topic(self) -> str:
        """The copy's."""
        return COPY.topic

    def partition(self) -> int:
        """The copy's."""
        return COPY.partition

    def offset(self) -> int:
        """The copy's."""
        return self.at

    def key(self) -> bytes | None:
        """The record's."""
        return self.record[0]

    def value(self) -> bytes | None:
        """The record's."""
        return self.record[1]

    def headers(self) -> Any:
        """The record's."""
        return self.record[2]

    def timestamp(self) -> tuple[int, int]:
        """The record's."""
        return 1, self.record[3]


def record(source_offset: int) -> Record:
    """The source's record at an offset; every one is different."""
    return None, str(source_offset).encode(), [], 1000 + source_offset


class Service:
    """The functions, of production or of mutated copies of its modules."""

    def __init__(self, modules: Mapping[str, ModuleType] = PRODUCTION) -> None:
        self.modules = {**PRODUCTION, **modules}
        self.reached: set[str] = set()
        """What the exploration made the service do: rules, table transitions."""
        for name in ("of_run", "can_exceed", "raised", "decide", "encode", "decode", "start", "cover", "begin", "producer", "after_run"):
            setattr(self, name, lru_cache(maxsize=None)(getattr(self, name)))

    def of_run(self, clock: int, read: tuple[int, ...], random_bits: int) -> int:
        """The epoch of a new run."""
        return int(self.modules["common.epochs"].of_run(clock, read, random_bits))

    def can_exceed(self, read: tuple[int, ...], epoch: int) -> bool:
        """Whether a run that has read these can be above that one."""
        return bool(self.modules["common.epochs"].can_exceed(read, epoch))

    def raised(self, clock: int, known: tuple[int, ...]) -> int:
        """The epoch of a frontier that the rule has not set."""
        return int(self.modules["common.epochs"].raised(clock, known))

    def decide(self, state: RuleState, origins: tuple[Origin, ...]) -> Decided:
        """Step 2."""
        parsed = [Read(0, o, 1, 0, e, b, s, SOURCE_IDENTITY) for o, e, b, s in origins]
        answer = self.modules["deduplicator.rule"].decide(state, parsed)
        counts = {"rule 1: stale": answer.stale, "rule 2: takeover": answer.state.epoch > state.epoch, "rule 3: duplicate": answer.duplicates,
                  "rule 3: duplicate becomes the link": not answer.accepted and answer.duplicates and answer.state.link != state.link,
                  "rule 4: accept": answer.accepted, "rule 5: hole": answer.holes, "rule 5: hole filled": state.hole and not answer.state.hole,
                  "rule 4: by sequence": any(origins[position][3] > 0 for position in answer.accepted)}
        self.reached.update(name for name, count in counts.items() if count)
        return Decided(answer.state, tuple(origins[position][0] for position in answer.accepted))

    def encode(self, state: RuleState, known: int, sent: int, topic_id: str = TOPIC_ID) -> str:
        """The metadata string."""
        made = self.modules["common.frontier"].Frontier(state, SOURCE_IDENTITY, 1, topic_id, known, sent)
        return str(made.encode())

    def decode(self, metadata: str) -> Any:
        """The frontier of a metadata string."""
        return self.modules["common.frontier"].decode(metadata)

    def start(self, metadata: str, visible: tuple[int, ...], end: int) -> Started:
        """The check of one partition at its assignment."""
        frontier = self.decode(metadata)
        try:
            check_destination = self.modules["deduplicator.destination_check"].check_destination
            outputs, surplus = check_destination(Reader(visible), {COPY: frontier}, {COPY: 0}, {COPY: end}, set())
        except Stop as stop:
            return Started(-1, 0, (), f"{type(stop).__name__}: {stop}")
        beyond = tuple(offset for offset, _ in surplus[COPY].records) if surplus else ()
        if beyond:
            self.reached.add("check: surplus")
        return Started(outputs[COPY].known_offset, outputs[COPY].sent, beyond, "")

    def cover(self, known: int, surplus: tuple[int, ...], accepted: tuple[int, ...]) -> tuple[int, int, tuple[int, ...], str]:
        """How many of the accepted records are there already, the last known one, what stays, and the error raised instead."""
        there = self.modules["deduplicator.destination_check"].Surplus(COPY, known)
        there.records.extend((offset, record(offset)) for offset in surplus)
        try:
            covered = there.skip_matching([record(offset) for offset in accepted])
        except Stop as stop:
            return 0, known, surplus, type(stop).__name__
        return covered, there.known_offset, tuple(offset for offset, _ in there.records), ""

    def begin(self, turn: int, states: tuple[str, str]) -> tuple[int, tuple[str, str], bool, str]:
        """`ProducerPair.begin`: whose turn it is, the producers' states, whether one was initialised, and the error raised instead."""
        calls: list[str] = []
        producers = [self._made(state, calls) for state in states]
        turns = self.modules["deduplicator.transaction"].ProducerPair(*producers)
        turns.turn = turn
        try:
            turns.begin()
        except Exception as defect:
            return turn, states, False, f"{type(defect).__name__}: {defect}"
        initialised = "init_transactions" in calls
        if initialised:
            self.reached.add("transaction: new, initialised")
        self.reached.add("transaction: ready, begun")
        return turns.turn, (producers[0].state, producers[1].state), initialised, ""

    def producer(self, state: str, doing: str, failure: str = "") -> tuple[str, bool]:
        """One step of one producer, or its failure: the state after, and whether an abort was sent and answered."""
        calls: list[str] = []
        one = self._made(state, calls, "abort_transaction" if failure == "abort in doubt" else "")
        if failure:
            error = ERRORS["in doubt" if failure == "in doubt" else "abortable"]()
            one.handle_failure(KafkaException(error), doing)
        elif doing == "offsets":
            one.send_offsets([], None)
        elif doing == "commit":
            one.commit()
        aborted = "abort_transaction" in calls and failure != "abort in doubt"
        event = ("aborted" if aborted else "in doubt") if failure else {"offsets": "offsets sent", "commit": "committed"}[doing]
        self.reached.add(f"transaction: {state}, {event}")
        return str(one.state), aborted

    def _made(self, state: str, calls: list[str], fails: str = "") -> Any:
        one = self.modules["deduplicator.transaction"].TransactionalProducer(lambda: Client(calls, fails), 1.0, Pulse("proof"))
        one.state = state
        one.client = None if state == "new" else Client(calls, fails)
        return one

    def after_run(self, state: str, event: str) -> str:
        """The run's table."""
        self.reached.add(f"run: {state}, {event}")
        return str(self.modules["replicator.run"].after(state, event))



