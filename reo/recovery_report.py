"""The report of `reo recover`: a table for people, JSON for programs.

Both have three parts per partition: what the group has now, how far the copy is by the data, and
what is, or would be, committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from common import frontier as frontiers
from common.errors import CopyDiffers, FrontierLost
from common.frontier import Frontier
from common.kafka.consumer_group import Commit
from common.routes import Route
from reo.compare.alignment import LastCopiedPair
from reo.output import align_columns, convert_error_to_dict


@dataclass(slots=True)
class RecoveredPartition:
    """One partition: what the group and the data have, and what follows from it."""

    partition: int
    commit: Commit | None
    frontier: Frontier | None = None
    """In the commit, when reo wrote it."""
    unreadable: str = ""
    """Why the commit has no frontier."""
    last_copied: LastCopiedPair | None = None
    """None when nothing was copied, or when `refusal` says why the data does not tell."""
    source_offset: int | None = None
    """The frontier that follows from the data."""
    new_frontier: Frontier | None = None
    refusal: CopyDiffers | FrontierLost | None = None

    def describe_group(self) -> str:
        """As text for a person."""
        if self.commit is None:
            return "no offset"
        if self.frontier is None:
            return (
                f"offset {self.commit.intermediate_offset} without a frontier ({self.unreadable})"
            )
        return f"source offset {self.frontier.source_offset}, epoch {self.frontier.epoch}"

    def describe_data(self) -> str:
        """As text for a person."""
        if self.refusal:
            return f"refused ({type(self.refusal).__name__})"
        if self.last_copied is None:
            return f"nothing copied, frontier {self.source_offset}"
        return (
            f"source offset {self.last_copied.source_offset} ({self.last_copied.compared} of"
            f" {self.last_copied.records} records compared)"
        )

    def describe_commit(self) -> str:
        """As text for a person."""
        if self.new_frontier is None:
            return "nothing"
        return f"source offset {self.new_frontier.source_offset}, epoch {self.new_frontier.epoch}"

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        group = self.commit and {
            "intermediate_offset": self.commit.intermediate_offset,
            "unreadable": self.unreadable or None,
            "source_offset": self.frontier and self.frontier.source_offset,
            "epoch": self.frontier and self.frontier.epoch,
        }
        data = (
            None
            if self.refusal
            else {
                "source_offset": self.source_offset,
                "destination_offset": self.last_copied and self.last_copied.destination_offset,
                "records": self.last_copied.records if self.last_copied else 0,
                "compared": self.last_copied.compared if self.last_copied else 0,
            }
        )
        return {
            "partition": self.partition,
            "group": group,
            "data": data,
            "write": self.new_frontier and orjson.loads(self.new_frontier.encode()),
            "refused": convert_error_to_dict(self.refusal),
        }


def build_row(partition: int, commit: Commit | None) -> RecoveredPartition:
    """A partition with what the group has of it."""
    row = RecoveredPartition(partition, commit)
    if commit is not None:
        try:
            row.frontier = frontiers.decode(commit.metadata)
        except ValueError as reason:
            row.unreadable = str(reason)
    return row


def format_json(
    group: str, route: Route, partitions: Sequence[RecoveredPartition], applied: bool
) -> str:
    """As JSON text, one object."""
    return orjson.dumps(
        {
            "group": group,
            "intermediate_topic": route.intermediate_topic,
            "source_topic": route.source_topic,
            "destination_topic": route.destination_topic,
            "applied": applied,
            "partitions": [row.to_dict() for row in partitions],
        }
    ).decode()


def format_text(
    group: str, route: Route, partitions: Sequence[RecoveredPartition], applied: bool
) -> str:
    """A table, and what to do next."""
    rows = [
        (
            "partition",
            "the group says",
            "the data says",
            "committed" if applied else "to be committed",
        ),
        *(
            (str(row.partition), row.describe_group(), row.describe_data(), row.describe_commit())
            for row in partitions
        ),
    ]
    if any(row.refusal for row in partitions):
        conclusion = "nothing was committed: a partition was refused"
    elif not any(row.new_frontier for row in partitions):
        conclusion = "the data confirms the group's frontiers: there is nothing to recover"
    else:
        conclusion = (
            "committed; start the service"
            if applied
            else (
                "nothing was changed; stop the service and run it again with --apply to commit this"
            )
        )
    return "\n".join(
        [
            (
                f"group {group} on {route.intermediate_topic}: {route.source_topic} →"
                f" {route.destination_topic}"
            ),
            *align_columns(rows),
            conclusion,
        ]
    )
