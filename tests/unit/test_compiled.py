"""The compiled path beside Python's: the same decisions from the same bytes.
(tests/broker/test_forwarding.py has it on a real broker.)
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import origin as origins
from common.frontier import RuleState
from common.origin import OFFSET_MAX, Origin, encode
from common.routes import SAME, Route
from common.settings import load
from deduplicator import compiled_library, compiled_queue
from deduplicator.compiled_batch import CompiledBatch
from deduplicator.rule import decide
from fuzz.compiled_scan import MadeMessages, assert_as_python
from tests.harness.properties import property_test
from tests.harness.task_attempts import IDENTITY, StageOne
from tests.unit.test_rule import ANY_STATE, generate_origins
from tests.unit.test_settings import GOOD

ROUTE = Route("orders", "orders", "orders-proxy")


@given(ANY_STATE, st.integers(0, 2**32), st.integers(0, 30))
@property_test(examples=1500)
def test_runs_with_retries_holes_and_zombies_are_decided_alike(
    state: RuleState, seed: int, cut: int
) -> None:
    """The streams that the rule itself is tested with, from any state."""
    values = [encode(record) for record in generate_origins(seed, 30)]
    for part in (values[:cut], values[cut:]):
        if part:
            assert assert_as_python(state, part)


@given(st.integers(0, 2**32))
@property_test(examples=150)
def test_what_stage_one_may_do_at_its_worst_is_decided_alike(seed: int) -> None:
    """Batch after batch, each from the state that the one before has left."""
    chance = random.Random(seed)
    stage_one, state = (
        StageOne(sorted(chance.sample(range(30), 20)), chance),
        RuleState(-1, 0, None),
    )
    for _ in range(20):
        values = [
            encode(record)
            for record in (stage_one.step(state) for _ in range(chance.randint(1, 9)))
            if record
        ]
        if values:
            assert assert_as_python(state, values)
            state = decide(state, [origins.parse(value) for value in values]).state


EDGES = st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31), OFFSET_MAX, -OFFSET_MAX, -(2**63)])
NUMBERS = EDGES | st.integers(-(2**63), OFFSET_MAX)
HOSTILE = st.builds(
    origins.LAYOUT.pack,
    st.sampled_from([1, 1, 1, 0, 2]),
    st.sampled_from([bytes.fromhex(IDENTITY)] * 3 + [bytes(8)]),
    NUMBERS,
    st.sampled_from([0, 0, 0, 1, -1]),
    st.sampled_from([0, 0, 1, -1, 2, -128]),
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
)


LIKELY = st.builds(
    Origin,
    st.just(0),
    st.integers(0, 9),
    st.just(5),
    st.just(0),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 4),
    st.just(IDENTITY),
)


@given(
    ANY_STATE,
    st.lists(HOSTILE | st.binary(max_size=60) | st.builds(encode, LIKELY), min_size=1, max_size=6),
)
@property_test(examples=3000)
def test_hostile_bytes_are_pythons(state: RuleState, values: list[bytes]) -> None:
    """Whatever is in a header, C decides it as Python does, or does not decide it."""
    assert_as_python(state, values)


@pytest.mark.parametrize("end", [OFFSET_MAX, OFFSET_MAX - 1])
def test_the_last_offsets_are_decided_alike(end: int) -> None:
    """A hole up to the highest offset that there is, and its closing."""

    def at(offset: int, sequence: int) -> bytes:
        return encode(Origin(0, offset, 1, 0, 1, 1, sequence, IDENTITY))

    assert assert_as_python(
        RuleState(0, 1, None), [at(end, 3), at(end - 1, 0), at(end, 0), at(end - 1, 0), at(end, 1)]
    )


def test_a_gap_is_seen() -> None:
    """A run follows only what it begins behind, and only when it leaves none out."""
    taken = MadeMessages(
        [encode(Origin(0, number, 1, 0, 1, 1, number, IDENTITY)) for number in range(5)]
    )
    assert CompiledBatch(taken, 0, 5).is_continuation(0)
    assert not CompiledBatch(taken, 1, 5).is_continuation(0)
    taken.raw.offsets[4] = 7
    assert not CompiledBatch(taken, 0, 5).is_continuation(0)


@pytest.mark.parametrize(
    ("more", "route", "said"),
    [
        ({"REO_DEDUPLICATOR_COMPILED": "no"}, ROUTE, "deduplicator.compiled is no"),
        ({"REO_FILTER_FUNCTION": "tests.harness.filter_functions:every"}, ROUTE, "in Python"),
        ({"REO_PROVENANCE_HEADER": "from"}, ROUTE, "in Python"),
        ({}, Route("orders", "orders", "orders-proxy", "key"), "not one to one"),
        ({}, Route("orders", "all", "all-orders-proxy", SAME, shared=True), "not one to one"),
    ],
)
def test_where_python_is_needed_it_is_not_used(
    more: dict[str, str], route: Route, said: str
) -> None:
    """And the reason is said."""
    assert said in (compiled_queue.find_disabled_reason(load(GOOD | more), [route]) or "")


def test_elsewhere_it_is_used() -> None:
    """It was built: what the other tests here show is shown of the library that the service
    loads.
    """
    assert compiled_queue.find_disabled_reason(load(GOOD), [ROUTE]) is None


def test_an_unknown_version_of_librdkafka_is_not_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its objects may be laid out differently."""
    monkeypatch.setattr(compiled_library, "VERSION", ("2.16.1", "9.9.9"))
    compiled_library.load_library.cache_clear()
    try:
        assert "9.9.9" in (compiled_queue.find_disabled_reason(load(GOOD), [ROUTE]) or "")
    finally:
        compiled_library.load_library.cache_clear()
