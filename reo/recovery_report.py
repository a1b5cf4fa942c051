"""What `reo recover` knows of one partition, and how it says that: a table for people, JSON for programs.

Both say the same three things per partition: what the group has now, how far the copy is by the data, and what is, or would be, committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from common.errors import CopyDiffers, FrontierLost
from common.frontier import Frontier
from common.group import Commit
from common.routes import Route
from reo.alignment import LastCopied
from reo.output import align_columns, error_to_dict


@dataclass(slots=True)
class Partition:
    """One partition: what was found, and what follows."""

    partition: int
    commit: Commit | None
    frontier: Frontier | None = None
    """In the commit, if it is one of ours."""
    unreadable: str = ""
    """Why it is not."""
    found: LastCopied | None = None
    """None when nothing was copied, or `refused` says why not."""
    source_offset: int | None = None
    """The frontier by the data."""
    write: Frontier | None = None
    refused: CopyDiffers | FrontierLost | None = None

    def group_says(self) -> str:
        """In words."""
        if self.commit is None:
            return "no offset"
        if self.frontier is None:
            return f"offset {self.commit.intermediate_offset} without a frontier ({self.unreadable})"
        return f"source offset {self.frontier.rule.frontier}, epoch {self.frontier.rule.epoch}"

    def data_says(self) -> str:
        """In words."""
        if self.refused:
            return f"refused ({type(self.refused).__name__})"
        if self.found is None:
            return f"nothing copied, frontier {self.source_offset}"
        return f"source offset {self.found.source_offset} ({self.found.compared} of {self.found.records} records compared)"

    def follows(self) -> str:
        """In words."""
        if self.write is None:
            return "nothing"
        epoch = f", epoch {self.write.rule.epoch}" if self.write.rule.epoch else ", a raised epoch"
        return f"source offset {self.write.rule.frontier}{epoch}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        group = self.commit and {
            "intermediate_offset": self.commit.intermediate_offset, "unreadable": self.unreadable or None,
            "source_offset": self.frontier and self.frontier.rule.frontier, "epoch": self.frontier and self.frontier.rule.epoch}
        data = None if self.refused else {
            "source_offset": self.source_offset, "destination_offset": self.found and self.found.destination_offset,
            "records": self.found.records if self.found else 0, "compared": self.found.compared if self.found else 0}
        return {"partition": self.partition, "group": group, "data": data, "write": self.write and orjson.loads(self.write.encode()),
                "refused": error_to_dict(self.refused)}


def as_json(group: str, route: Route, partitions: Sequence[Partition], applied: bool) -> str:
    """One object."""
    return orjson.dumps({
        "group": group, "intermediate_topic": route.intermediate_topic, "source_topic": route.source_topic,
        "destination_topic": route.destination_topic, "applied": applied, "partitions": [row.to_dict() for row in partitions]}).decode()


def as_text(group: str, route: Route, partitions: Sequence[Partition], applied: bool) -> str:
    """A table, and what to do next."""
    rows = [("partition", "the group says", "the data says", "committed" if applied else "to be committed"),
            *((str(row.partition), row.group_says(), row.data_says(), row.follows()) for row in partitions)]
    if any(row.refused for row in partitions):
        end = "nothing was committed: a partition was refused"
    elif not any(row.write for row in partitions):
        end = "the data confirms the group's frontiers: there is nothing to recover"
    else:
        end = "committed; start the service" if applied else "nothing was changed; stop the service and run it again with --apply to commit this"
    return "\n".join([f"group {group} on {route.intermediate_topic}: {route.source_topic} → {route.destination_topic}", *align_columns(rows), end])
