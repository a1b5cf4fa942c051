"""What `reo offsets translate` knows of one partition, and how it says that: a table for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from common.errors import CopyDiffers, FrontierLost, OffsetUntranslatable
from common.routes import Place
from reo.output import align_columns, error_to_dict


@dataclass(slots=True)
class Row:
    """One partition: the group's offset at the source, at the destination, and the translated one."""

    source: Place
    destination: Place
    source_offset: int | None
    """What the group reads next at the source; None when it has committed nothing."""
    now: int | None
    """The same at the destination, before anything is changed."""
    destination_offset: int | None = None
    refused: CopyDiffers | FrontierLost | OffsetUntranslatable | None = None

    @property
    def moves(self) -> bool:
        """Whether a commit is wanted: a group is never moved back."""
        return self.destination_offset is not None and (self.now is None or self.destination_offset > self.now)

    def follows(self) -> str:
        """In words."""
        if self.refused:
            return f"refused ({type(self.refused).__name__})"
        if self.destination_offset is None:
            return "nothing: no offset at the source"
        if not self.moves:
            return "nothing: it is there already" if self.now == self.destination_offset else "nothing: it is further already"
        return f"offset {self.destination_offset}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"source_topic": self.source.topic, "destination_topic": self.destination.topic, "partition": self.source.partition,
                "source_offset": self.source_offset, "destination_offset": self.destination_offset,
                "destination_offset_before": self.now, "moves": self.moves, "refused": error_to_dict(self.refused)}


def as_json(group: str, rows: Sequence[Row], applied: bool) -> str:
    """One object."""
    return orjson.dumps({"group": group, "applied": applied, "partitions": [row.to_dict() for row in rows]}).decode()


def as_text(group: str, rows: Sequence[Row], applied: bool) -> str:
    """A table, and what to do next."""
    table = [("source", "stands at", "destination", "stands at", "the same place", "committed" if applied else "to be committed"),
             *((str(row.source), _shown(row.source_offset), str(row.destination), _shown(row.now), _shown(row.destination_offset), row.follows())
               for row in rows)]
    if any(row.refused for row in rows):
        end = "nothing was committed: a partition was refused"
    elif not any(row.moves for row in rows):
        end = "there is nothing to commit"
    else:
        end = "committed; start the consumers at the destination" if applied else "nothing was changed; run it again with --apply to commit this"
    return "\n".join([f"group {group}", *align_columns(table), end])


def _shown(offset: int | None) -> str:
    return "-" if offset is None else str(offset)
