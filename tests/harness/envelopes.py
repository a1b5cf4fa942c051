"""Envelopes for tests: Hypothesis chooses them, or damages one at every byte."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import strategies as st

from common.envelope import OFFSET_MAX, EnvelopeRecord, Head
from tools.envelope_encoder import encode

IDENTITY = "0123456789abcdef"
Envelope = tuple[Head, list[EnvelopeRecord]]

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=4).map(
    str.encode
)
CONTENTS = st.none() | st.binary(max_size=6) | st.binary(min_size=60, max_size=200)
HEADERS = st.lists(st.tuples(NAMES, CONTENTS), max_size=3).map(tuple)
TIMESTAMPS = st.integers(-2, 2) | st.integers(-(2**62), 2**62 - 1) | st.just(1_700_000_000_000)
"""Two of them are less than 2^63 apart: their difference is written."""
OFFSETS = st.integers(-1, 20) | st.integers(-1, OFFSET_MAX - 1)


@st.composite
def generate_envelopes(draw: st.DrawFn, records_max: int = 6) -> Envelope:
    """A head and records that fit it, of every kind."""
    after, *offsets = sorted(draw(st.sets(OFFSETS, min_size=1, max_size=records_max + 1)))
    through = offsets[-1] if offsets else after
    if offsets and draw(st.booleans()):
        offsets.pop()
    head = Head(
        draw(st.binary(min_size=8, max_size=8)).hex(),
        draw(st.integers(0, 2**63 - 1)),
        draw(st.integers(0, 2**31 - 1)),
        after,
        through,
        has_left_out=draw(st.booleans()),
    )
    return head, [
        EnvelopeRecord(
            offset,
            draw(TIMESTAMPS),
            draw(st.integers(-1, 1)),
            draw(CONTENTS),
            draw(CONTENTS),
            draw(HEADERS),
        )
        for offset in offsets
    ]


EXAMPLES: tuple[Envelope, ...] = (
    (Head(IDENTITY, 7 << 20 | 5, 3, 41, 41), []),
    (Head(IDENTITY, 7 << 20 | 5, 3, -1, 41, has_left_out=True), []),
    (
        Head(IDENTITY, 7 << 20 | 5, 3, 41, 46),
        [
            EnvelopeRecord(42, 1_700_000_000_000, 0, b"key", b"value", ((b"a", b"1"),)),
            EnvelopeRecord(43, 1_700_000_000_005, 0, None, b""),
            EnvelopeRecord(46, 1_699_999_999_000, 1, b"", None, ((b"a", None), (b"a", b""))),
        ],
    ),
    (
        Head("f" * 16, 2**63 - 1, 2**31 - 1, -1, OFFSET_MAX - 1),
        [
            EnvelopeRecord(0, -1, -1, b"k" * 64, b"v" * 130),
            EnvelopeRecord(OFFSET_MAX - 1, 2**63 - 2, 0, None, None, (("é".encode(), b"x"),)),
        ],
    ),
)
"""A few of every shape, small enough to be damaged at every byte."""


def damage_everywhere(value: bytes) -> Iterator[bytes]:
    """The value cut at each length, with one more byte, and with each byte changed in several ways,
    each single bit among them.
    """
    for length in range(len(value)):
        yield value[:length]
    yield value + b"\0"
    for position, byte in enumerate(value):
        for other in {*(byte ^ (1 << bit) for bit in range(8)), 0, 1, 0x7F, 0x80, 0xFF} - {byte}:
            yield value[:position] + bytes((other,)) + value[position + 1 :]


def encode_examples() -> list[bytes]:
    """The examples as stage one writes them."""
    return [encode(*example) for example in EXAMPLES]
