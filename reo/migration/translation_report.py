"""The report of `reo offsets translate`, per partition: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from common.errors import CopyDiffers, FrontierLost, OffsetUntranslatable
from common.routes import TopicPartition
from reo.output import align_columns, convert_error_to_dict


@dataclass(slots=True)
class TranslatedPartition:
    """One partition: the group's offset at the source, at the destination, and the translated
    one.
    """

    source: TopicPartition
    destination: TopicPartition
    source_offset: int | None
    """What the group reads next at the source; None when it has committed nothing."""
    committed_offset: int | None
    """The same at the destination, before anything is changed."""
    destination_offset: int | None = None
    metadata: str = ""
    """Of the group's commit at the source."""
    refusal: CopyDiffers | FrontierLost | OffsetUntranslatable | None = None

    @property
    def moves(self) -> bool:
        """Whether to commit the translated offset: a group is never moved back."""
        return self.destination_offset is not None and (
            self.committed_offset is None or self.destination_offset > self.committed_offset
        )

    @property
    def offsets_ahead(self) -> int:
        """How many offsets the group is further at the destination than at the source."""
        if self.destination_offset is None or self.committed_offset is None:
            return 0
        return max(0, self.committed_offset - self.destination_offset)

    @property
    def continues_at(self) -> int | None:
        """Where the group continues at the destination, when the translated offset is committed if
        it moves the group; None when nothing tells.
        """
        if self.destination_offset is None:
            return None
        return self.destination_offset + self.offsets_ahead

    def describe_commit(self) -> str:
        """As text for a person."""
        if self.refusal:
            return f"refused ({type(self.refusal).__name__})"
        if self.destination_offset is None:
            return "nothing: no offset at the source"
        if not self.moves:
            return (
                "nothing: already at this offset"
                if self.committed_offset == self.destination_offset
                else "nothing: already further"
            )
        return f"offset {self.destination_offset}"

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "source_topic": self.source.topic,
            "destination_topic": self.destination.topic,
            "partition": self.source.partition,
            "source_offset": self.source_offset,
            "destination_offset": self.destination_offset,
            "destination_offset_before": self.committed_offset,
            "moves": self.moves,
            "refused": convert_error_to_dict(self.refusal),
        }


def format_json(group: str, rows: Sequence[TranslatedPartition], applied: bool) -> str:
    """As JSON text, one object."""
    return orjson.dumps(
        {"group": group, "applied": applied, "partitions": [row.to_dict() for row in rows]}
    ).decode()


def format_text(group: str, rows: Sequence[TranslatedPartition], applied: bool) -> str:
    """A table, and what to do next."""
    table = [
        (
            "source",
            "offset",
            "destination",
            "offset",
            "translated",
            "committed" if applied else "to be committed",
        ),
        *map(format_cells, rows),
    ]
    if any(row.refusal for row in rows):
        conclusion = "nothing was committed: a partition was refused"
    elif not any(row.moves for row in rows):
        conclusion = "there is nothing to commit"
    else:
        conclusion = (
            "committed; start the consumers at the destination"
            if applied
            else "nothing was changed; run it again with --apply to commit this"
        )
    return "\n".join([f"group {group}", *align_columns(table), conclusion])


def format_cells(row: TranslatedPartition) -> tuple[str, ...]:
    """The cells of one partition."""
    return (
        str(row.source),
        format_offset(row.source_offset),
        str(row.destination),
        format_offset(row.committed_offset),
        format_offset(row.destination_offset),
        row.describe_commit(),
    )


def format_offset(offset: int | None) -> str:
    """As text for a person."""
    return "-" if offset is None else str(offset)
