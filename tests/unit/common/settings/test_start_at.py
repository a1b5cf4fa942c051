"""Where a copy begins: how each form of `source.start` is read, and what is none. On real brokers:
`tests/e2e/test_start.py`.
"""

from __future__ import annotations

import pytest

from common.settings import start_position as start_at


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("100000000000", 100_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14T22:13:20.0001Z", 1_700_000_000_001),
        ("20231114T221320Z", 1_700_000_000_000),
        ("1970-01-01T00:00:00Z", 0),
    ],
)
def test_moments(text: str, timestamp_ms: int) -> None:
    """The same moment in several spellings; a fraction of a ms begins with the next one, since a
    timestamp in Kafka has none.
    """
    assert start_at.parse(text) == start_at.Start("timestamp", timestamp_ms)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("sometime", "earliest, latest, a timestamp"),
        ("2023-11-14T22:13:20", "time zone"),
        ("2023-11-14", "time zone"),
        ("1969-12-31T23:59:59Z", "before 1970"),
        ("20260131", "a date is written like 2026-01-31T08:00:00Z"),
        ("20260131080000", "12 or 13 digits"),
        ("1767225600", "milliseconds since 1970 UTC"),
        ("99999999999", "12 or 13 digits"),
        ("0", "12 or 13 digits"),
        ("-5", "earliest, latest"),
        ("0=", "partition=offset"),
        ("0=1,0=2", "named twice"),
        ("0=-1", "partition=offset"),
        ("a=1", "partition=offset"),
        ("0=1,", "partition=offset"),
        ("", "earliest, latest"),
    ],
)
def test_what_is_no_beginning(text: str, part: str) -> None:
    """Nothing is guessed: not a time zone, not which of two offsets was meant, not the unit of a
    number.
    """
    with pytest.raises(ValueError, match=part):
        start_at.parse(text)
