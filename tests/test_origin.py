"""The origin header: what is ours is read back exactly, and nothing else is taken for it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.origin import OFFSET_MAX, Origin, identity_of, parse

GOOD: dict[str, Any] = {"p": 3, "o": 17, "t": 1_700_000_000_000, "k": 0, "e": 1_700_000_000_001, "b": 5, "s": 2, "i": "0123456789abcdef"}
NUMBERS = st.integers(0, OFFSET_MAX)


def wire(**changed: Any) -> bytes:
    """A header's value with some fields changed; a field set to `...` is left out."""
    return orjson.dumps({name: value for name, value in (GOOD | changed).items() if value is not ...})


@given(NUMBERS, NUMBERS, st.integers(-OFFSET_MAX, OFFSET_MAX), st.sampled_from([-1, 0, 1]), NUMBERS, NUMBERS, NUMBERS, st.text(max_size=20))
@settings(deadline=None)
def test_what_stage_one_writes_is_read_back(p: int, o: int, t: int, k: int, e: int, b: int, s: int, i: str) -> None:
    """Every value that a field can have comes back as it was, also timestamps before 1970."""
    fields = {"p": p, "o": o, "t": t, "k": k, "e": e, "b": b, "s": s, "i": i}
    assert parse(orjson.dumps(fields)) == Origin(p, o, t, k, e, b, s, i)


def test_the_form_that_spark_builds_is_read() -> None:
    """`replicator.wrap` makes the JSON by concat, without a serialiser: exactly this text."""
    text = b'{"p":0,"o":12,"t":1357034400000,"k":0,"e":1795000000000,"b":1795000001000,"s":3,"i":"0123456789abcdef"}'
    assert parse(text) == Origin(0, 12, 1357034400000, 0, 1795000000000, 1795000001000, 3, "0123456789abcdef")


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_missing_field_is_refused(name: str) -> None:
    """No field has a default: a record without it was not written by stage one."""
    with pytest.raises(ValueError, match="missing required"):
        parse(wire(**{name: ...}))


@pytest.mark.parametrize("name", ["p", "o", "e", "b", "s"])
@pytest.mark.parametrize("value", [-1, -(2**63), 2**63, 1.5, "1", None, [], {}])
def test_a_number_that_can_not_be_is_refused(name: str, value: object) -> None:
    """Negative, too large, a fraction, a text, null: each would otherwise move a frontier."""
    with pytest.raises(ValueError, match=r"."):
        parse(wire(**{name: value}))


@pytest.mark.parametrize("value", ["1", None, 1.5, [], 2**63])
def test_a_timestamp_that_is_no_timestamp_is_refused(value: object) -> None:
    """Stage two hands it to the producer as it is."""
    with pytest.raises(ValueError, match=r"."):
        parse(wire(t=value))


@pytest.mark.parametrize("value", [-2, 2, "0", None])
def test_an_unknown_kind_of_timestamp_is_refused(value: object) -> None:
    """Only the three kinds that Kafka has."""
    with pytest.raises(ValueError, match="Expected"):
        parse(wire(k=value))


@pytest.mark.parametrize("value", [7, None, [], {}])
def test_an_identity_that_is_no_text_is_refused(value: object) -> None:
    """The identity is compared with the frontier's, which is a text."""
    with pytest.raises(ValueError, match="Expected"):
        parse(wire(i=value))


@pytest.mark.parametrize("header", [b"", b"null", b"7", b'"text"', b"[]", b"[1,2]", b"{", b"\xff\xfe", b"{}", b"true"])
def test_something_else_entirely_is_refused(header: bytes) -> None:
    """A user's header of the same name may hold anything; it is a ValueError and never another exception."""
    with pytest.raises(ValueError, match=r"."):
        parse(header)


@given(st.binary(max_size=60) | st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("poktebsi"), inner, max_size=8), max_leaves=12).map(orjson.dumps))
@settings(max_examples=800, deadline=None)
def test_random_bytes_are_an_origin_or_a_value_error(header: bytes) -> None:
    """What is read without an error has every number where it belongs; everything else is a ValueError."""
    try:
        origin = parse(header)
    except ValueError:
        return
    numbers = (origin.source_partition, origin.source_offset, origin.epoch, origin.batch, origin.sequence)
    assert all(type(number) is int and 0 <= number <= OFFSET_MAX for number in numbers)
    assert isinstance(origin.source_identity, str)


@given(st.binary(min_size=1, max_size=3), st.integers(0, 110))
@settings(max_examples=500, deadline=None)
def test_a_damaged_header_is_an_origin_or_a_value_error(noise: bytes, position: int) -> None:
    """Bytes overwritten in a good header: never an exception of another kind."""
    good = wire()
    try:
        parse(good[:position] + noise + good[position + len(noise):])
    except ValueError:
        return


def test_identities_are_equal_only_for_the_same_topic() -> None:
    """Another cluster, another creation of the topic, or, where topics have no ids, another name: another identity."""
    identity = identity_of("cluster", "orders", "id")
    assert identity == identity_of("cluster", "renamed-view", "id")
    assert len({identity, identity_of("other", "orders", "id"), identity_of("cluster", "orders", "id2"),
                identity_of("cluster", "orders", ""), identity_of("cluster", "orders2", "")}) == 5
