"""`reo status`: the offsets, rates and lags of every partition, and what the clusters tell about
the service; it also works when nothing runs.

Two snapshots (`reo.progress.snapshot`) a second apart give the rates; with `--watch` each new
snapshot is compared with the one before. The clusters show only the service's consumer group. Stage
one is not a member of it: what it writes shows that it runs, and nothing shows that it does not.
The clusters do not know the error that ended a process; they tell whether a start would continue
(`replicator.source_checks`). What is not known is printed as unknown.
"""

from __future__ import annotations

from contextlib import nullcontext

import orjson
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from common import runtime, source_candidates
from common.errors import ReoError
from common.frontier import check_not_moved
from common.kafka import permissions
from common.settings import Settings
from reo import interrupt
from reo.progress.snapshot import Snapshot, SnapshotReader
from reo.progress.status_report import (
    Status,
    convert_status_to_dict,
    describe_service,
    format_table,
)
from replicator import source_checks

SNAPSHOT_INTERVAL_S = 1.0


class Watcher:
    """Takes one snapshot after the other."""

    def __init__(self, settings: Settings) -> None:
        self.settings = source_candidates.select_answering(settings)
        self.failover = settings.failover
        self.snapshot_reader = SnapshotReader(self.settings)
        self.before = self.snapshot_reader.take_snapshot()

    def take_status(self) -> Status:
        """Take a new snapshot and pair it with the one before."""
        now = self.snapshot_reader.take_snapshot()
        before, self.before = self.before, now
        return Status(
            before, now, self.snapshot_reader.group.describe_members(), self._find_stop_error(now)
        )

    def _find_stop_error(self, now: Snapshot) -> ReoError | None:
        """The error with which a start would stop. With several candidates there is none unless a
        topic has moved: a start would try the next candidate.
        """
        try:
            for row in now.partitions:
                if row.frontier:
                    check_not_moved(row.source, row.frontier)
            if now.frontiers and not self.failover:
                source_checks.inspect_single_source(self.settings, now.sources, now.frontiers)
        except ReoError as error:
            return error
        return None


def run_command(settings: Settings, as_json: bool, watch: bool, every_s: float) -> int:
    """The sub-command: exit code 0 when the clusters could be read, whatever the state is.
    `--watch` continues until it is interrupted.
    """
    console = Console()
    permissions.check_permissions(settings, "status")
    watcher = Watcher(settings)
    repeat = watch and (console.is_terminal or as_json)
    with (
        Live(Text(""), console=console, auto_refresh=False)
        if repeat and not as_json
        else nullcontext()
    ) as screen:
        runtime.sleep(SNAPSHOT_INTERVAL_S)
        _show(settings, watcher.take_status(), as_json, screen)
        while repeat:
            interrupt.set_normal_end()
            runtime.sleep(every_s)
            _show(settings, watcher.take_status(), as_json, screen)
    return 0


def _show(settings: Settings, status: Status, as_json: bool, screen: Live | None) -> None:
    """Print a line of JSON, a table that is redrawn in place, or lines."""
    if as_json:
        print(orjson.dumps(convert_status_to_dict(settings, status)).decode(), flush=True)
    elif screen is not None:
        service, table = (
            "\n".join(describe_service(settings, status)),
            "\n".join(format_table(status)),
        )
        screen.update(
            Group(Text(service), Text(table, no_wrap=True, overflow="crop")), refresh=True
        )
    else:
        print("\n".join([*describe_service(settings, status), *format_table(status)]))
