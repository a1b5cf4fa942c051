"""The origin header: what is ours is read back exactly, and nothing else is taken for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.origin import (
    FIXED,
    LAYOUT,
    OFFSET_MAX,
    VERSION,
    Origin,
    compute_identity,
    encode,
    encode_fixed_part,
    parse,
)
from tests.harness.properties import property_test

IDENTITY = "0123456789abcdef"
GOOD = Origin(3, 17, 1_700_000_000_000, 0, 1_700_000_000_001, 5, 2, IDENTITY)
NUMBERS = st.integers(0, OFFSET_MAX)
ORIGINS = st.builds(
    Origin,
    st.integers(0, 2**31 - 1),
    NUMBERS,
    st.integers(-OFFSET_MAX, OFFSET_MAX),
    st.sampled_from([-1, 0, 1]),
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.binary(min_size=8, max_size=8).map(bytes.hex),
)


@given(ORIGINS)
@property_test(examples=100)
def test_what_stage_one_writes_is_read_back(origin: Origin) -> None:
    """Every value that a field can have comes back as it was, also timestamps before 1970."""
    assert parse(encode(origin)) == origin


def test_the_bytes_are_where_the_page_says() -> None:
    """`replicator.wrap` makes them by casts, without a serialiser: exactly these."""
    wire = bytes.fromhex(
        "010123456789abcdef000001a1ee567c000000000300000000000000000c0000013bf58dbd40000001a1ee567fe80000000000000005"
    )
    assert parse(wire) == Origin(
        3, 12, 1_357_034_405_184, 0, 1_795_000_007_680, 1_795_000_008_680, 5, IDENTITY
    )
    assert wire.startswith(encode_fixed_part(IDENTITY, 1_795_000_007_680))
    assert (LAYOUT.size, FIXED.size) == (54, 17)


@pytest.mark.parametrize("length", [0, 1, 8, 53, 55, 108])
def test_another_length_is_refused(length: int) -> None:
    """No field has a default: a record without it was not written by stage one."""
    with pytest.raises(ValueError, match=f"the origin has {length} bytes, not 54"):
        parse((encode(GOOD) * 2)[:length])


@pytest.mark.parametrize("version", [0, 2, 255, ord("{")])
def test_an_unknown_version_is_named(version: int) -> None:
    """Of an older or a newer reo, of any length: nothing of it is guessed."""
    for value in (encode(GOOD), encode(GOOD)[:5]):
        with pytest.raises(
            ValueError, match=rf"version is {version}, and this version of reo reads {VERSION}"
        ):
            parse(bytes([version]) + value[1:])


@pytest.mark.parametrize(
    "field", ["source_partition", "source_offset", "epoch", "attempt", "sequence"]
)
def test_a_negative_number_is_refused(field: str) -> None:
    """Each would otherwise move a frontier."""
    numbers = {name: getattr(GOOD, name) for name in GOOD.__struct_fields__}
    with pytest.raises(ValueError, match="out of range"):
        parse(encode(Origin(**(numbers | {field: -1}))))


@pytest.mark.parametrize("kind", [-128, -2, 2, 127])
def test_an_unknown_kind_of_timestamp_is_refused(kind: int) -> None:
    """Only the three kinds that Kafka has."""
    with pytest.raises(ValueError, match="out of range"):
        parse(encode(Origin(0, 0, 0, kind, 0, 0, 0, IDENTITY)))


@pytest.mark.parametrize(
    "wrong",
    [
        Origin(2**31, 0, 0, 0, 0, 0, 0, IDENTITY),
        Origin(0, 2**63, 0, 0, 0, 0, 0, IDENTITY),
        Origin(0, 0, 0, 0, 0, 0, 0, "0123"),
        Origin(0, 0, 0, 0, 0, 0, 0, "no identity"),
    ],
)
def test_what_does_not_fit_is_not_written(wrong: Origin) -> None:
    """One exception, whatever it is."""
    with pytest.raises(ValueError, match=r"."):
        encode(wrong)


def test_no_value_is_a_type_error() -> None:
    """A null header value."""
    with pytest.raises(TypeError):
        parse(None)


@given(
    st.binary(max_size=60) | st.binary(min_size=53, max_size=53).map(lambda rest: b"\x01" + rest)
)
@property_test(examples=800)
def test_random_bytes_are_an_origin_or_a_value_error(header: bytes) -> None:
    """What is read without an error has every number where it belongs, and is these bytes;
    everything else is a ValueError.
    """
    try:
        origin = parse(header)
    except ValueError:
        return
    numbers = (
        origin.source_partition,
        origin.source_offset,
        origin.epoch,
        origin.attempt,
        origin.sequence,
    )
    assert all(0 <= number <= OFFSET_MAX for number in numbers)
    assert encode(origin) == header


def test_identities_are_equal_only_for_the_same_topic() -> None:
    """Another cluster, another creation of the topic, or, where topics have no ids, another name:
    another identity.
    """
    identity = compute_identity("cluster", "orders", "id")
    assert identity == compute_identity("cluster", "renamed-view", "id")
    assert (
        len(
            {
                identity,
                compute_identity("other", "orders", "id"),
                compute_identity("cluster", "orders", "id2"),
                compute_identity("cluster", "orders", ""),
                compute_identity("cluster", "orders2", ""),
            }
        )
        == 5
    )
