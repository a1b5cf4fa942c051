"""A guard on cost: how many bytecode instructions stage two executes for a record, counted, not
timed, so that it says the same on every machine.

The count is of everything between consume and commit (`Loop.round`), on real `Message` objects;
librdkafka's own work is C and is not in it. It is the slope between two batches, so what is done
once a transaction does not count. When it grows, somebody has put work into the one place where it
is done hundreds of thousands of times a second: put it elsewhere, or raise the bound and say why.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, cast

import pytest
from confluent_kafka import Message

from common.frontier import Frontier, RuleState
from common.liveness import Liveness
from common.origin import Origin, encode
from common.records import Consumed, Headers
from common.routes import Route, TopicPartition
from common.settings import load
from deduplicator.destination import DestinationState, KafkaDestination
from deduplicator.intermediate_consumer import BATCH_RECORDS
from deduplicator.loop import Loop
from deduplicator.partitions import AssignedPartition, Partitions
from deduplicator.rule import decide
from deduplicator.unwrap import split_by_partition

INSTRUCTIONS_MAX = 225
"""Of a new record, all in all: 208 with Python 3.11, 214 with headers of its own."""
DUPLICATE_INSTRUCTIONS_MAX = 113
"""Of one that is dropped: 107 with Python 3.11."""
PURE_INSTRUCTIONS_MAX = 132
"""Of unwrapping and deciding alone: 126 with Python 3.11."""


IDENTITY = "0123456789abcdef"
HERE, THERE = TopicPartition("t-proxy", 0), TopicPartition("t", 0)


def header(number: int) -> bytes:
    """As `replicator.wrap` writes it."""
    return encode(Origin(0, number, 1_700_000_000_000, 0, 1, 1, number, IDENTITY))


def batch(records: int, own: Headers | None = None) -> list[Consumed]:
    """Consecutive records of one partition."""
    return [
        cast(
            Consumed,
            Message(
                topic="t-proxy",
                partition=0,
                offset=number,
                key=b"key",
                value=b"x" * 100,
                timestamp=(1, 1_700_000_000_000),
                headers=[*(own or []), ("__origin", header(number))],
            ),
        )
        for number in range(records)
    ]


def count_instructions(work: Callable[[], object]) -> int:
    """Bytecode instructions executed by Python code in `work`."""
    count = 0

    def trace_opcode(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "opcode"
        return trace_opcode

    def trace_call(frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return trace_opcode

    before = sys.gettrace()
    sys.settrace(trace_call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def per_record(work: Callable[[int], Callable[[], object]]) -> float:
    """The slope between batches of 1,000 and 3,000 records."""
    small, large = (count_instructions(work(records)) for records in (1000, 3000))
    return (large - small) / 2000


class Recorded:
    """As the intermediate topic: hands one batch out, at the price of a C function."""

    def __init__(self, messages: list[Consumed]) -> None:
        self.messages = messages

    def consume_batches(self, records_max: int, *_: float) -> Iterator[list[Consumed]]:
        """As Intermediate.batches."""
        for begin in range(0, records_max, BATCH_RECORDS):
            yield self.messages[begin : begin + BATCH_RECORDS]

    @property
    def member_metadata(self) -> Recorded:
        """As Intermediate.member_metadata."""
        return self

    def get(self) -> None:
        """As MemberMetadata.get."""


class Taker:
    """As the transactional producer."""

    def __init__(self) -> None:
        self.produce = "{}{}{}{}{}{}{}{}".format  # takes eight arguments, in C
        self.current = self
        self.state = "ready"

    def begin(self) -> Taker:
        """As ProducerPair.begin."""
        return self

    def send_offsets(self, offsets: object, member: object) -> None:
        """As TransactionalProducer.send_offsets."""

    def flush(self) -> None:
        """As TransactionalProducer.flush."""

    def start_commit(self) -> None:
        """As ProducerPair.start_commit."""

    def finish_commit(self) -> None:
        """As ProducerPair.finish_commit."""

    def check_deadline(self, doing: str) -> None:
        """As TransactionalProducer.go_on."""

    def poll(self, seconds: float) -> None:
        """As Producer.poll."""


def round_of(frontier: int, own: Headers | None = None) -> Callable[[int], Callable[[], None]]:
    """A whole round over a batch, with the frontier there."""
    settings = load(
        {
            "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
            "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
            "REO_SOURCE_TOPIC": "t",
        }
    )

    def prepare_round(records: int) -> Callable[[], None]:
        destination = KafkaDestination(cast(Any, Taker()), cast(Any, None))
        partitions = Partitions()
        partitions.start(
            {
                HERE: AssignedPartition(
                    0, Frontier(RuleState(frontier, 1, None), IDENTITY, 1, "id", -1, 0)
                )
            }
        )
        loop = Loop(
            settings,
            {"t-proxy": Route("t", "t", "t-proxy")},
            partitions,
            cast(Any, Recorded(batch(records, own))),
            cast(Any, None),
            destination,
            Liveness("deduplicator"),
        )
        destination.outputs = {THERE: DestinationState(-1, 0)}

        def run() -> None:
            loop.run_round()
            assert partitions.assigned[HERE].next_offset == records
            assert destination.outputs[THERE].sent == (0 if frontier > 0 else records)

        return run

    return prepare_round


@pytest.mark.parametrize(
    "own", [None, [("trace", b"1"), ("tenant", b"2")]], ids=["no header", "two headers"]
)
def test_a_new_record_is_cheap(own: Headers | None) -> None:
    """Consumed, parsed, decided, unwrapped and handed to the client within the bound; the record's
    own headers cost nothing more.
    """
    assert per_record(round_of(-1, own)) <= INSTRUCTIONS_MAX


def test_a_dropped_record_is_cheaper() -> None:
    """A duplicate is parsed and decided, not unwrapped."""
    assert per_record(round_of(10**9)) <= DUPLICATE_INSTRUCTIONS_MAX


def test_the_pure_core_is_cheap() -> None:
    """Parsing and the rule alone."""

    def work(records: int) -> Callable[[], object]:
        messages = batch(records)
        return lambda: decide(RuleState(-1, 1, None), split_by_partition(messages)[HERE].origins)

    assert per_record(work) <= PURE_INSTRUCTIONS_MAX


def test_the_count_grows_with_the_work() -> None:
    """The guard can fail: one more pass over the batch is seen."""

    def work(records: int) -> Callable[[], object]:
        run, again = round_of(-1)(records), batch(records)
        return lambda: (run(), [message.offset() + 0 for message in again])

    assert per_record(work) > per_record(round_of(-1)) + 3
