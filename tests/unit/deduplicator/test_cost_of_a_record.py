"""A guard on cost: how many bytecode instructions stage two executes for an envelope, and for a
record in it, counted, not timed, so that it says the same on every machine.

The count is of everything between consume and commit (`Loop.run_round`), on real `Message` objects;
librdkafka's own work is C and is not in it, nor is the compiled path's. It is a slope, so what is
done once a transaction does not count. When it grows, somebody has put work into the one place
where it is done hundreds of thousands of times a second: put it elsewhere, or raise the bound and
say why.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from common import clock
from common.envelope import OFFSET_MAX, Header
from common.frontier import Frontier, decode
from deduplicator import compiled_path
from deduplicator.compiled_path import Forwarded
from deduplicator.kafka_destination import KafkaDestination
from tests.harness.intermediate_records import build_envelope, build_source_record
from tests.harness.stage_two import FIRST_FRONTIER, Copy

ENVELOPE_INSTRUCTIONS_MAX = 715
"""Of an envelope that is forwarded: 666 with Python 3.11."""
DROPPED_INSTRUCTIONS_MAX = 475
"""Of one that is dropped: 442 with Python 3.11."""
RECORD_INSTRUCTIONS_MAX = 740
"""Of a record that Python copies by itself: 690 with Python 3.11."""
HEADER_INSTRUCTIONS_MAX = 197
"""Of each header of such a record: 184 with Python 3.11."""
FEW, MANY = 20, 60
COUNT = slice(46, 50)
"""The number of records in an envelope."""
HEADERS: tuple[Header, ...] = ((b"trace", b"1"), (b"tenant", b"2"))
AHEAD = replace(FIRST_FRONTIER, source_offset=10**9)
"""Everything is a duplicate."""


def count_instructions(work: Callable[[], object]) -> int:
    """Bytecode instructions executed by Python code in `work`. No garbage is collected meanwhile:
    finalizers of what earlier tests have left would be counted.
    """
    count = 0

    def trace_opcode(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "opcode"
        return trace_opcode

    def trace_call(frame: FrameType, event: str, argument: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return trace_opcode

    before = sys.gettrace()
    gc.collect()
    gc.disable()
    sys.settrace(trace_call)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def count_round(
    envelopes: int,
    records: int,
    headers: tuple[Header, ...] = (),
    frontier: Frontier = FIRST_FRONTIER,
    more: Callable[[], object] = lambda: None,
) -> int:
    """Of a round over so many envelopes with so many records each."""
    copy = Copy(
        [
            build_envelope(
                number,
                number * records - 1,
                (number + 1) * records - 1,
                records=[
                    build_source_record(offset, headers=headers)
                    for offset in range(number * records, (number + 1) * records)
                ],
            )
            for number in range(envelopes)
        ],
        frontier,
    )
    decode.cache_clear()  # other tests have perhaps decoded the frontier that this copy commits
    count = count_instructions(lambda: (copy.run_rounds(), more()))
    assert copy.position == envelopes
    return count


@pytest.fixture(autouse=True)
def _metrics_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first round creates them. No time passes: a histogram looks for the bucket, and a slow
    machine would beat more often (`common.liveness`).
    """
    monkeypatch.setattr(clock, "monotonic", lambda: 100.0)
    monkeypatch.setattr(clock, "time", lambda: 100.0)
    count_round(1, 1)


@pytest.fixture
def forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Envelopes are handed over as they are, to nobody."""

    def forward(_: object, __: object, value: bytes, above: int, below: int, ___: object) -> Any:
        count = int.from_bytes(value[COUNT]) - (below < OFFSET_MAX)
        return Forwarded(count, above + count, False)

    monkeypatch.setattr(KafkaDestination, "can_forward", True)
    monkeypatch.setattr(compiled_path, "forward", forward)


@pytest.mark.usefixtures("forwarded")
def test_an_envelope_is_cheap() -> None:
    """Consumed, parsed, decided and forwarded within the bound."""
    slope = (count_round(MANY, 1) - count_round(FEW, 1)) / (MANY - FEW)
    assert slope <= ENVELOPE_INSTRUCTIONS_MAX


@pytest.mark.usefixtures("forwarded")
def test_a_record_in_an_envelope_costs_nothing() -> None:
    """Python executes no instruction for it: what is done is done for the envelope."""
    assert count_round(FEW, MANY) - count_round(FEW, FEW) <= FEW


def test_a_dropped_envelope_is_cheaper() -> None:
    """A duplicate is parsed and decided; its records are not looked at."""
    few, many = (count_round(envelopes, 1, frontier=AHEAD) for envelopes in (FEW, MANY))
    assert (many - few) / (MANY - FEW) <= DROPPED_INSTRUCTIONS_MAX
    assert count_round(FEW, MANY, frontier=AHEAD) - few <= FEW


def test_a_record_is_cheap_where_python_copies_it() -> None:
    """Read, unwrapped and handed to the client within the bound, and so is each header."""
    few, many = (count_round(1, records) for records in (FEW, MANY))
    assert (many - few) / (MANY - FEW) <= RECORD_INSTRUCTIONS_MAX
    with_headers = count_round(1, MANY, HEADERS) - many
    assert with_headers / MANY / len(HEADERS) <= HEADER_INSTRUCTIONS_MAX


def test_the_count_grows_with_the_work() -> None:
    """The guard can fail: one more pass over the envelopes is seen."""
    numbers = list(range(MANY))
    more = count_round(MANY, 1, more=lambda: [number + 0 for number in numbers])
    assert more > count_round(MANY, 1) + 3 * MANY
