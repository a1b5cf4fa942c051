"""`source.start`: where a copy without a frontier begins, in one of four forms;
`deduplicator.frontiers.start` makes an offset of it.

    earliest                    the first record that the source still has
    latest                      the next record that the source gets
    1700000000000               the first record from that moment on: ms since 1970 UTC (12 or 13
                                digits), or ISO 8601 with its offset from UTC
    2026-01-31T08:00:00Z
    0=120,1=77                  an offset for each named partition; all others begin at `earliest`,
                                so that nothing is silently left out

It is used when the first frontier of a partition is created, and never again: a restart continues
from the frontier, even before the first record. `latest` applies to a service that has no frontier
yet. Later it never skips records: a topic or a partition that is added, whether stage two runs or
not, and a partition whose copy was deleted, are copied from their beginning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal

FORMS = (
    "earliest, latest, a timestamp (ms since 1970 UTC, or ISO 8601 like 2026-01-31T08:00:00Z), or"
    " an offset for each partition (0=120,1=77)"
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECONDS = re.compile(r"[1-9][0-9]{11,12}")
"""From 1973 to 2286: seconds, and a date without dashes, would be a moment in January 1970."""
OFFSET = re.compile(r"([0-9]{1,9})=([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Start:
    """The parsed setting; `timestamp_ms` and `offsets` are set only for their kinds."""

    kind: Literal["earliest", "latest", "timestamp", "offsets"]
    timestamp_ms: int = 0
    offsets: dict[int, int] = field(default_factory=dict)

    def is_from_beginning(self, partition: int, added: bool) -> bool:
        """Whether this partition begins at the source's first record; `added`: it was added after
        the copy had begun, or its copy was deleted.
        """
        return (
            self.kind == "earliest"
            or (self.kind == "latest" and added)
            or (self.kind == "offsets" and partition not in self.offsets)
        )


def parse(text: str) -> Start:
    """The setting's text; ValueError with what is expected."""
    if text in ("earliest", "latest"):
        return Start("earliest" if text == "earliest" else "latest")
    if re.fullmatch(r"[0-9]+", text):
        if not MILLISECONDS.fullmatch(text):
            raise ValueError(
                f"{text!r} is not taken as milliseconds since 1970 UTC, which have 12 or 13 digits:"
                " seconds have fewer, microseconds more, and a date is written like"
                " 2026-01-31T08:00:00Z"
            )
        return Start("timestamp", int(text))
    if "=" in text:
        return Start("offsets", offsets=_parse_offsets(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{FORMS} is expected, not {text!r}") from None
    if moment.tzinfo is None:
        raise ValueError(
            f"{text!r} does not say in which time zone: put Z (UTC) or an offset like +01:00"
            " after it"
        )
    if moment < EPOCH:
        raise ValueError(
            f"{text!r} is before 1970; earliest begins with the first record, whatever its"
            " timestamp"
        )
    # rounded up to whole milliseconds
    return Start("timestamp", -((EPOCH - moment) // timedelta(milliseconds=1)))


def _parse_offsets(text: str) -> dict[int, int]:
    offsets: dict[int, int] = {}
    for part in text.split(","):
        pair = OFFSET.fullmatch(part.strip())
        if pair is None:
            raise ValueError(f"partition=offset is expected, not {part.strip()!r} in {text!r}")
        if int(pair[1]) in offsets:
            raise ValueError(f"partition {pair[1]} is named twice in {text!r}")
        offsets[int(pair[1])] = int(pair[2])
    return offsets
