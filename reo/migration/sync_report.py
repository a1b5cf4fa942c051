"""The report of a round of `reo offsets sync`, per group: a table for people, JSON for programs,
and a line for the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from common.errors import CopyDiffers, FrontierLost, GroupBusy, OffsetUntranslatable, ReoError
from reo.migration.translation_report import TranslatedPartition, format_cells
from reo.output import align_columns, convert_error_to_dict

HEAD = ("group", "source", "offset", "destination", "offset", "translated", "committed")


@dataclass(slots=True)
class SyncedGroup:
    """One group in one round; `skipped` is why nothing was committed for it."""

    name: str
    rows: list[TranslatedPartition] = field(default_factory=list)
    """The partitions with an offset of the group."""
    skipped: ReoError | None = None

    @property
    def is_active(self) -> bool:
        """Whether it was skipped because it has members at the destination."""
        return isinstance(self.skipped, GroupBusy)

    @property
    def errors(self) -> list[ReoError]:
        """Why the group, or one of its partitions, is not translated. A group that has moved to the
        destination is no error.
        """
        return [
            *([self.skipped] if self.skipped and not self.is_active else []),
            *(row.refusal for row in self.rows if row.refusal),
        ]

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "group": self.name,
            "active_at_destination": self.is_active,
            "skipped": convert_error_to_dict(self.skipped),
            "partitions": [row.to_dict() for row in self.rows],
        }

    def format_rows(self) -> list[tuple[str, ...]]:
        """As text for a person."""
        if self.skipped:
            text = (
                "nothing: active at the destination"
                if self.is_active
                else f"refused ({type(self.skipped).__name__})"
            )
            return [(self.name, *[""] * 5, text)]
        return [(self.name, *format_cells(row)) for row in self.rows]


def format_json(groups: Sequence[SyncedGroup]) -> str:
    """As JSON text, one object."""
    return orjson.dumps({"groups": [group.to_dict() for group in groups]}).decode()


def format_text(groups: Sequence[SyncedGroup]) -> str:
    """A table, and a summary."""
    return "\n".join(
        [
            *(
                align_columns([HEAD, *(row for group in groups for row in group.format_rows())])
                if groups
                else []
            ),
            summarize(groups),
        ]
    )


def summarize(groups: Sequence[SyncedGroup]) -> str:
    """As text, one line."""
    moved = sum(row.moves for group in groups for row in group.rows if not group.skipped)
    waiting = sum(
        isinstance(row.refusal, OffsetUntranslatable) for group in groups for row in group.rows
    )
    failed = sum(
        isinstance(row.refusal, CopyDiffers | FrontierLost)
        for group in groups
        for row in group.rows
    )
    active = sum(group.is_active for group in groups)
    refused = sum(bool(group.skipped) for group in groups) - active
    counts = {"groups": len(groups), "partitions committed": moved}
    rest = {
        "partitions that cannot be translated yet": waiting,
        "partitions refused": failed,
        "groups active at the destination": active,
        "groups refused": refused,
    }
    return ", ".join(
        f"{what}: {count}"
        for what, count in (counts | {what: count for what, count in rest.items() if count}).items()
    )
