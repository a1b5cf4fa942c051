"""`reo offsets sync`: keeps the committed offsets of consumer groups translated at the destination,
once or at an interval.

A round asks the source for its groups, and translates each that matches the pattern
(`reo.migration.offsets`). A group that is active at the destination is skipped: it has moved
already. No offset at the destination is ever moved back. A partition that cannot be translated yet,
because the group has read records that are not copied, keeps the offset that it has, and is
translated in a later round; the other partitions of the group do not wait for it. Nothing is
stored: what was translated before is remembered by this process only, so that a round reads and
compares what the groups have read since the round before.

With `offsets.sync_groups` the service does the same, in a process of its own beside stage two
(`python -m reo.migration.offsets_sync`). It is not part of the copy: its errors are logged, and the
next round tries again.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from common import process, runtime, source_candidates
from common.errors import (
    AccessRefused,
    CopyDiffers,
    FrontierLost,
    GroupBusy,
    HangingTransaction,
    OffsetUntranslatable,
    ReoError,
    SettingsInvalid,
)
from common.kafka import permissions
from common.metrics import HEARTBEAT
from common.process import Stopping
from common.settings import Settings, destination_settings
from reo.migration.foreign_group import list_groups
from reo.migration.offsets import ProvedOffsets, Translator
from reo.migration.translation_report import TranslatedPartition, format_offset
from reo.output import align_columns, error_to_dict

log = logging.getLogger(__name__)
STAGE = "offsets"
"""What the supervisor and the metrics call the process."""
POLL_S = 0.2
HEARTBEAT_INTERVAL_S = 1.0
Skipped = AccessRefused | GroupBusy | HangingTransaction
HEAD = ("group", "source", "offset", "destination", "offset", "translated", "committed")


@dataclass(slots=True)
class SyncedGroup:
    """One group in one round; `skipped` is why nothing was committed for it."""

    name: str
    rows: list[TranslatedPartition] = field(default_factory=list)
    """The partitions with an offset of the group."""
    skipped: Skipped | None = None

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
        """For JSON."""
        return {
            "group": self.name,
            "active_at_destination": self.is_active,
            "skipped": error_to_dict(self.skipped),
            "partitions": [row.to_dict() for row in self.rows],
        }

    def table_rows(self) -> list[tuple[str, ...]]:
        """For people."""
        if self.skipped:
            return [
                (
                    self.name,
                    "",
                    "",
                    "",
                    "",
                    "",
                    (
                        "nothing: active at the destination"
                        if self.is_active
                        else f"refused ({type(self.skipped).__name__})"
                    ),
                )
            ]
        return [
            (
                self.name,
                str(row.source),
                format_offset(row.source_offset),
                str(row.destination),
                format_offset(row.committed_offset),
                format_offset(row.destination_offset),
                row.describe_commit(),
            )
            for row in self.rows
        ]


class OffsetsSync:
    """Keeps the groups that match `pattern` translated; the whole name has to match."""

    def __init__(
        self, settings: Settings, pattern: str, on_progress: Callable[[], None] = lambda: None
    ) -> None:
        self.settings = settings
        self.pattern = re.compile(pattern)
        self.translator = Translator(settings, on_progress)
        self._proved: dict[str, ProvedOffsets] = {}
        self._identities: list[str] = []

    def list_matching(self) -> list[str]:
        """The groups of the source that match, and a group that the pattern names literally, which
        the principal may not be allowed to see.
        """
        groups = [
            name
            for name in list_groups(self.settings.source_cluster, self.translator.source_admin)
            if self.pattern.fullmatch(name)
        ]
        is_literal = re.escape(self.pattern.pattern).replace("\\-", "-") == self.pattern.pattern
        return [
            name
            for name in groups or ([self.pattern.pattern] if is_literal else [])
            if name != self.settings.application
        ]

    def sync(self) -> list[SyncedGroup]:
        """One round: translate and commit. Returns the groups that have an offset on the topics, or
        are refused.
        """
        self.translator.look_up_topics()
        identities = [
            *(topic.identity for topic in self.translator.sources.values()),
            *(topic.identity for topic in self.translator.destinations.values()),
        ]
        if identities != self._identities:
            self._proved, self._identities = {}, identities
        groups = [self._sync_group(name) for name in self.list_matching()]
        return [group for group in groups if group.rows or group.skipped]

    def _sync_group(self, name: str) -> SyncedGroup:
        group = SyncedGroup(name)
        try:
            if self.translator.destination_group(name).has_members():
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
        except (GroupBusy, HangingTransaction) as skipped:
            group.skipped = skipped
        return group


def as_json(groups: Sequence[SyncedGroup]) -> str:
    """One object."""
    return orjson.dumps({"groups": [group.to_dict() for group in groups]}).decode()


def as_text(groups: Sequence[SyncedGroup]) -> str:
    """A table, and a summary."""
    return "\n".join(
        [
            *(
                align_columns([HEAD, *(row for group in groups for row in group.table_rows())])
                if groups
                else []
            ),
            summarize(groups),
        ]
    )


def summarize(groups: Sequence[SyncedGroup]) -> str:
    """One line."""
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


def command(
    settings: Settings, groups: str | None, interval_s: float | None, as_json_lines: bool
) -> int:
    """The sub-command. Exit code of one round: 0 when all is translated, else that of the first
    error. With an interval it runs until Ctrl-C.
    """
    try:
        destination_settings.refuse_command(
            settings, "reo offsets", "a table has the source's own offsets, and no consumer groups"
        )
        pattern = groups or settings.offsets.sync_groups
        if not pattern:
            raise SettingsInvalid(
                "`reo offsets sync` needs the groups to translate: --groups REGEX, or the setting"
                " offsets.sync_groups"
            )
        settings = source_candidates.select_answering(settings)
        permissions.check_permissions(settings, "offsets translate --apply")
        sync = OffsetsSync(settings, pattern)
        printed = ""
        while True:
            result = sync.sync()
            text = (as_json if as_json_lines else as_text)(result)
            if text != printed or as_json_lines:
                print(text, flush=True)
            printed = text
            errors: list[ReoError] = [error for group in result for error in group.errors]
            errors += sync.translator.not_comparable
            if interval_s is None:
                for error in errors:
                    print(f"reo offsets: {error}", file=sys.stderr)
                return errors[0].exit_code if errors else 0
            runtime.sleep(interval_s)
    except ReoError as error:
        print(f"reo offsets: {error}", file=sys.stderr)
        return error.exit_code


def run(settings: Settings, stopping: Stopping) -> int:
    """The process of the service: a round at each interval, until it is told to stop. An error is
    logged, and the next round begins anew.
    """
    heartbeat, last_beat_s = HEARTBEAT.labels(STAGE, "0"), 0.0

    def beat() -> None:
        nonlocal last_beat_s
        if runtime.monotonic() > last_beat_s + HEARTBEAT_INTERVAL_S:
            last_beat_s = runtime.monotonic()
            heartbeat.set(runtime.time())

    sync: OffsetsSync | None = None
    logged = ""
    while not stopping():
        round_began_s = runtime.monotonic()
        try:
            sync = sync or OffsetsSync(
                source_candidates.select_answering(settings), settings.offsets.sync_groups, beat
            )
            groups = sync.sync()
            text = "; ".join(
                [
                    summarize(groups),
                    *(
                        str(error)
                        for group in groups
                        for error in group.errors
                        if not isinstance(error, OffsetUntranslatable)
                    ),
                ]
            )
        except ReoError as error:
            sync, text = None, f"{type(error).__name__}: {error}"
        if text != logged:
            log.log(logging.INFO if sync else logging.WARNING, "consumer groups: %s", text)
        logged = text
        while (
            not stopping()
            and runtime.monotonic() < round_began_s + settings.offsets.sync_interval_s
        ):
            beat()
            runtime.sleep(POLL_S)
    return 0


if __name__ == "__main__":
    sys.exit(process.run(STAGE, run))
