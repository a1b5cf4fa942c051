"""`reo offsets sync`: keeps the committed offsets of consumer groups translated at the destination,
once or at an interval.

A round asks the source for its groups, and translates each that matches the pattern
(`reo.migration.group_translator`). A group that is active at the destination is skipped: it has
moved already. No offset at the destination is ever moved back. What is refused, as where the group
has read records that are not copied yet, is tried again in the next round; the other partitions of
the group, and the other groups, are translated. What was translated before is remembered by this
process only, so that a round reads and compares what the groups have read since the round before.

With `offsets.sync_groups` the service does the same (`reo.service.sync_process`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from common import clock, source_pool
from common.errors import (
    AccessRefused,
    ClusterUnreachable,
    GroupBusy,
    OffsetUntranslatable,
    ReoError,
    SettingsInvalid,
)
from common.kafka import permissions
from common.settings import Settings
from reo.migration.group_translator import GroupTranslator, ProvedOffsets, refuse_tables
from reo.migration.partition_translator import TranslatedPartition
from reo.migration.user_group import list_groups
from reo.report import convert_error_to_dict, format_table, print_json

TITLES = "group|source|offset|destination|offset|translated|committed"


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

    def list_rows(self) -> Iterator[tuple[object, ...]]:
        """As rows of a table."""
        if not self.skipped:
            yield from ((self.name, *row.list_cells()) for row in self.rows)
        elif self.is_active:
            yield self.name, *("",) * 5, "nothing: active at the destination"
        else:
            yield self.name, *("",) * 5, f"refused ({type(self.skipped).__name__})"


class OffsetsSync:
    """Keeps the groups that match `pattern` translated; the whole name has to match."""

    def __init__(
        self, settings: Settings, pattern: str, on_progress: Callable[[], None] = lambda: None
    ) -> None:
        self.settings = settings
        self.pattern = re.compile(pattern)
        self.on_progress = on_progress
        self.translator = GroupTranslator(settings, on_progress)
        self._proved: dict[str, ProvedOffsets] = {}
        self._identities: list[str] = []

    def list_matching(self) -> list[str]:
        """The groups of the source that match, and a group that the pattern names literally, which
        the principal may not be allowed to see.
        """
        names = list_groups(self.settings.source_cluster, self.translator.source_admin)
        groups = [name for name in names if self.pattern.fullmatch(name)]
        text = self.pattern.pattern
        if not groups and re.escape(text).replace("\\-", "-") == text:
            groups = [text]
        return [name for name in groups if name != self.settings.application]

    def sync(self) -> list[SyncedGroup]:
        """One round: translate and commit. Returns the groups that have an offset on the topics, or
        are refused.
        """
        self.translator.look_up_topics()
        known = (*self.translator.sources.values(), *self.translator.destinations.values())
        identities = [topic.identity for topic in known]
        if identities != self._identities:
            self._proved, self._identities = {}, identities
        groups = [self._sync_group(name) for name in self.list_matching()]
        return [group for group in groups if group.rows or group.skipped]

    def _sync_group(self, name: str) -> SyncedGroup:
        group = SyncedGroup(name)
        self.on_progress()  # a group that has not moved is translated without a read
        try:
            if self.translator.open_destination_group(name).has_members():
                raise GroupBusy(
                    f"group {name} has members at the destination: it has moved, and is left alone"
                )
            rows = self.translator.translate(name, self._proved.setdefault(name, {}))
            group.rows = [row for row in rows if row.source_offset is not None]
            self.translator.commit(name, group.rows)
        except AccessRefused as refused:
            group.skipped = refused
            try:  # the message then has the missing ACLs
                permissions.check_permissions(
                    self.settings, "offsets translate --apply", group=name
                )
            except AccessRefused as explained:
                group.skipped = explained
        except OffsetUntranslatable as recreated:
            group.rows, group.skipped = [], recreated
            self._proved = {}
        except ClusterUnreachable as silent:
            self.translator.look_up_topics()  # raises it when not only the coordinator is silent
            group.skipped, self._proved = silent, {}
        except ReoError as failed:
            group.skipped = failed
        return group


def run_command(
    settings: Settings, groups: str | None, interval_s: float | None, as_json: bool
) -> int:
    """The command. Exit code of one round: 0 when all is translated, else that of the first
    error. With an interval it runs until Ctrl-C, whatever a round meets; text and errors are
    printed when they change.
    """
    refuse_tables(settings)
    pattern = groups or settings.offsets.sync_groups
    if not pattern:
        raise SettingsInvalid(
            "`reo offsets sync` needs the groups to translate: --groups REGEX, or the setting"
            " offsets.sync_groups"
        )
    answering = source_pool.select_answering(settings)
    permissions.check_permissions(answering, "offsets translate --apply")
    sync: OffsetsSync | None = OffsetsSync(answering, pattern)
    printed = {sys.stdout: "", sys.stderr: ""}

    def print_changed(text: str, file: TextIO) -> None:
        if text not in ("", printed[file]):
            print(text, file=file, flush=True)
        printed[file] = text

    hint = ""
    while True:
        try:
            sync = sync or OffsetsSync(source_pool.select_answering(settings), pattern)
            result = sync.sync()
            errors = [error for group in result for error in group.errors]
            errors += sync.translator.not_comparable
            if as_json:
                print_json({"groups": [group.to_dict() for group in result]})
            else:
                print_changed(format_text(result), sys.stdout)
            if not result and not hint:
                hint = f"reo offsets: {sync.translator.explain_no_groups(pattern)}"
                print(hint, file=sys.stderr)
        except ReoError as error:
            if interval_s is None:
                raise
            sync, errors = None, [error]
        texts = dict.fromkeys(f"reo offsets: {error}" for error in errors)
        print_changed("\n".join(texts), sys.stderr)
        if interval_s is None:
            return errors[0].exit_code if errors else 0
        clock.sleep(interval_s)


def format_text(groups: Sequence[SyncedGroup]) -> str:
    """A table, and a summary."""
    rows = [row for group in groups for row in group.list_rows()]
    return "\n".join([*([format_table(TITLES, rows)] if rows else []), summarize(groups)])


def summarize(groups: Sequence[SyncedGroup]) -> str:
    """As text, one line; the two first counts always."""
    refusals = [row.refusal for group in groups for row in group.rows if row.refusal]
    waiting = sum(isinstance(refusal, OffsetUntranslatable) for refusal in refusals)
    active = sum(group.is_active for group in groups)
    counts = {
        "groups": len(groups),
        "partitions committed": sum(
            row.moves for group in groups for row in group.rows if not group.skipped
        ),
        "partitions that cannot be translated yet": waiting,
        "partitions refused": len(refusals) - waiting,
        "groups active at the destination": active,
        "groups refused": sum(bool(group.skipped) for group in groups) - active,
    }
    shown = [f"{what}: {count}" for what, count in counts.items()]
    return ", ".join([*shown[:2], *(text for text in shown[2:] if not text.endswith(": 0"))])
