"""`reo offsets sync`: keeps the committed offsets of consumer groups translated at the destination,
once or at an interval.

A round asks the source for its groups, and translates each that matches the pattern
(`reo.migration.group_translator`). A group that is active at the destination is skipped: it has
moved already. No offset at the destination is ever moved back. A partition that cannot be
translated yet, because the group has read records that are not copied, keeps the offset that it
has, and is translated in a later round. Nobody waits for what is refused, whatever the reason: the
other partitions of the group, and the other groups, are translated.
Nothing is stored: what was translated before is remembered by this process only, so that a round
reads and compares what the groups have read since the round before.

With `offsets.sync_groups` the service does the same, in a process of its own beside stage two
(`python -m reo.migration.offsets_sync`). It is not part of the copy: its errors are logged, and the
next round tries again.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from common import clock, source_pool, stage_process
from common.errors import (
    AccessRefused,
    ClusterUnreachable,
    CopyDiffers,
    FrontierLost,
    GroupBusy,
    OffsetUntranslatable,
    ReoError,
    SettingsInvalid,
)
from common.kafka import client_watch, permissions
from common.metrics import HEARTBEAT
from common.settings import Settings, destination_kind
from common.stage_process import Stopping
from reo.migration.group_translator import GroupTranslator, ProvedOffsets
from reo.migration.partition_translator import TranslatedPartition
from reo.migration.user_group import list_groups
from reo.report import convert_error_to_dict, format_table, print_json

log = logging.getLogger(__name__)
TITLES = "group|source|offset|destination|offset|translated|committed"
STAGE = "offsets"
"""What the supervisor and the metrics call the process."""
POLL_S = 0.2
HEARTBEAT_INTERVAL_S = 1.0


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
    error. With an interval it runs until Ctrl-C, whatever a round meets; errors are printed when
    they change.
    """
    destination_kind.refuse_command(
        settings, "reo offsets", "its records have the source's own offsets, and no consumer groups"
    )
    pattern = groups or settings.offsets.sync_groups
    if not pattern:
        raise SettingsInvalid(
            "`reo offsets sync` needs the groups to translate: --groups REGEX, or the setting"
            " offsets.sync_groups"
        )
    answering = source_pool.select_answering(settings)
    permissions.check_permissions(answering, "offsets translate --apply")
    sync: OffsetsSync | None = OffsetsSync(answering, pattern)
    printed, printed_hint, printed_errors = "", False, ""
    while True:
        try:
            sync = sync or OffsetsSync(source_pool.select_answering(settings), pattern)
            result = sync.sync()
            text = format_text(result)
            if as_json:
                print_json({"groups": [group.to_dict() for group in result]})
            elif text != printed:
                print(text, flush=True)
            printed = text
            errors: list[ReoError] = [error for group in result for error in group.errors]
            errors += sync.translator.not_comparable
            if not result and not printed_hint:
                printed_hint = True
                print(f"reo offsets: {sync.translator.explain_no_groups(pattern)}", file=sys.stderr)
        except ReoError as error:
            if interval_s is None:
                raise
            sync, errors = None, [error]
        text = "\n".join(dict.fromkeys(f"reo offsets: {error}" for error in errors))
        if text not in ("", printed_errors):
            print(text, file=sys.stderr, flush=True)
        printed_errors = text
        if interval_s is None:
            return errors[0].exit_code if errors else 0
        clock.sleep(interval_s)


def format_text(groups: Sequence[SyncedGroup]) -> str:
    """A table, and a summary."""
    rows = [row for group in groups for row in group.list_rows()]
    return "\n".join([*([format_table(TITLES, rows)] if rows else []), summarize(groups)])


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


def run(settings: Settings, stopping: Stopping) -> int:
    """The process of the service: a round at each interval, until it is told to stop. An error is
    logged, and the next round begins anew.
    """
    heartbeat, last_beat_s = HEARTBEAT.labels(STAGE, "0"), 0.0

    def beat() -> None:
        nonlocal last_beat_s
        if clock.monotonic() > last_beat_s + HEARTBEAT_INTERVAL_S:
            last_beat_s = clock.monotonic()
            heartbeat.set(clock.time())

    sync: OffsetsSync | None = None
    logged = ""
    while not stopping():
        round_began_s = clock.monotonic()
        try:
            sync = sync or OffsetsSync(
                source_pool.select_answering(settings), settings.offsets.sync_groups, beat
            )
            groups = sync.sync()
            errors = dict.fromkeys(
                str(error)
                for group in groups
                for error in group.errors
                if not isinstance(error, OffsetUntranslatable)
            )
            text = "; ".join([summarize(groups), *errors])
        except ReoError as error:
            sync, text = None, f"{type(error).__name__}: {error}"
        if text != logged:
            level = logging.INFO if sync and not errors else logging.WARNING
            log.log(level, "consumer groups: %s", text)
        logged = text
        while (
            not stopping() and clock.monotonic() < round_began_s + settings.offsets.sync_interval_s
        ):
            beat()
            clock.sleep(POLL_S)
    return 0


if __name__ == "__main__":
    client_watch.start()
    sys.exit(stage_process.run(STAGE, run))
