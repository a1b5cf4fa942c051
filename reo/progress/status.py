"""`reo status`: the offsets, rates and lags of every partition, and what the clusters tell about
the service; it also works when nothing runs.

Two snapshots give the rates. The clusters show only the service's consumer group. Stage one is not
a member of it: what it writes shows that it runs, and nothing shows that it does not. The clusters
do not know the error that ended a process; they tell whether a start would continue
(`replicator.runs.source_selection`). What is not known is printed as unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from common import clock, source_pool
from common.errors import ReoError
from common.frontier import check_not_moved
from common.kafka import permissions
from common.kafka.consumer_group import Members
from common.route_states import EXCEPT_HALTED
from common.routes import TopicPartition, name_some
from common.settings import Settings
from reo import interrupt
from reo.progress.partition_progress import Lags, describe_gone, sum_lags
from reo.progress.progress_snapshot import Snapshot, SnapshotReader, measure_rates
from reo.report import convert_error_to_dict, format_table, print_json
from replicator.runs import source_selection

SNAPSHOT_INTERVAL_S = 1.0
UNKNOWN = "unknown from outside"
STAGES = "||stage one||||stage two||||in all|"
TITLES = "partition|source end|at|lag|seconds|rate/s|copied up to|lag|seconds|rate/s|lag|seconds"


class Status(NamedTuple):
    """Two snapshots and the group's members; `stop_error` is the error with which a start would
    stop, as far as the clusters tell.
    """

    before: Snapshot
    now: Snapshot
    members: Members
    stop_error: ReoError | None

    @property
    def rates(self) -> dict[TopicPartition, tuple[float, float]]:
        """By source partition, source offsets per second of stage one and of stage two."""
        stage_one = measure_rates(self.before, self.now, lambda row: row.stage_one_offset)
        stage_two = measure_rates(self.before, self.now, lambda row: row.stage_two_offset)
        return {tp: (rate, stage_two[tp]) for tp, rate in stage_one.items()}

    def describe_stage_one(self, now_ms: float) -> str:
        """As text for a person."""
        written_ms = [
            row.last_written_ms for row in self.now.partitions if row.last_written_ms is not None
        ]
        last = (
            f"last wrote {max(0.0, (now_ms - max(written_ms)) / 1000):.1f} s ago"
            if written_ms
            else "no record is on the intermediate topics now"
        )
        if waiting := [row for row in self.now.partitions if row.is_run_waiting]:
            names = name_some([row.intermediate for row in waiting])
            unread = sum(row.unread for row in waiting)
            last += f"; its newest run waits until stage two has read {names}"
            return f"{last} ({unread} envelopes)"
        if any(stage_one for stage_one, _ in self.rates.values()):
            return "runs: it moved between two snapshots"
        return f"{last}; whether it runs is {UNKNOWN}"

    def describe_stage_two(self) -> str:
        """As text for a person."""
        if self.members.state == "dead":  # what Kafka calls a group that it does not know
            return (
                "does not run: its consumer group does not exist. Stage two never ran, or the group"
                " was deleted or has expired"
            )
        if not self.members.partitions:
            return f"does not run: group has no members ({self.members.state})"
        members = ", ".join(
            f"{name} with {partitions} partitions"
            for name, partitions in sorted(self.members.partitions.items())
        )
        if self.members.state == "stable":
            return f"runs: {members}"
        return f"the group is rebalancing ({self.members.state}): {members}"

    def describe_progress(self) -> str:
        """As text for a person."""
        if not self.now.partitions:
            return "there is nothing to copy"
        running = [row for row in self.now.partitions if row.source.topic not in self.now.halted]
        waiting = sum_lags(running).both.records
        rate = sum(stage_two for _, stage_two in self.rates.values())
        if gone := describe_gone(self.now.partitions):
            return f"{gone}. The copy begins again; {waiting} records wait"
        if rate:
            return f"{rate:,.0f} records/s are copied"
        not_begun = [str(row.source) for row in running if row.frontier is None]
        if not waiting:
            more = f"the copy has not begun with {name_some(not_begun)}"
            copied = f"all is copied{EXCEPT_HALTED if self.now.halted else ''}"
            return more if not_begun else copied
        interval_s = self.now.taken_at_s - self.before.taken_at_s
        return (
            f"nothing was copied between two snapshots ({interval_s:.1f} s apart), and {waiting}"
            " records wait"
        )

    def open_transactions(self) -> list[str]:
        """Transactions that are open in both snapshots; this is normal for a short time."""
        now, before, both = self.now, self.before, "in both snapshots"
        return [
            *(
                f"{tp} at the source: a transaction is open from offset {begin} on, {both}; records"
                " after it cannot be copied yet"
                for tp, begin in now.open_at_source.items() & before.open_at_source.items()
            ),
            *(
                f"{tp}: a transaction is open from offset {begin} on, {both}"
                for tp, begin in now.open_at_destination.items()
                & before.open_at_destination.items()
            ),
        ]


class Watcher:
    """Takes one snapshot after the other."""

    def __init__(self, settings: Settings) -> None:
        self.settings = source_pool.select_answering(settings)
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
                source_selection.inspect_single_source(self.settings, now.sources, now.frontiers)
        except ReoError as error:
            return error
        return None


def describe_service(settings: Settings, status: Status) -> list[str]:
    """The lines about the service."""
    routes = name_some([*status.now.sources]) or "no source topic matches the patterns"
    return [
        f"{settings.application}: {routes}",
        f"stage one   {status.describe_stage_one(clock.time() * 1000)}",
        f"stage two   {status.describe_stage_two()}",
        f"progress    {status.describe_progress()}",
        f"last error  {UNKNOWN}: the log of the service has it"
        + (f". A start would stop now: {status.stop_error}" if status.stop_error else ""),
        *(f"halted      {topic} is {state}" for topic, state in sorted(status.now.halted.items())),
        *(f"open        {text}" for text in status.open_transactions()),
        *(
            f"moved       {row.source} {row.frontier.describe_move()}"
            for row in status.now.partitions
            if row.frontier and row.move
        ),
    ]


def format_partitions(status: Status) -> str:
    """The table of the partitions; the last line is the total."""
    rates, partitions = status.rates, status.now.partitions

    def list_cells(
        name: object, end: object, at: object, copied: object, lags: Lags, rates: Sequence[float]
    ) -> list[object]:
        cells = lags.list_cells()
        stage_one_rate, stage_two_rate = (f"{rate:.0f}" for rate in rates)
        stage_one = [end, at, *cells[:2], stage_one_rate]
        return [name, *stage_one, copied, *cells[2:4], stage_two_rate, *cells[4:]]

    rows = [
        list_cells(
            row.source,
            row.source_end,
            row.stage_one_offset,
            row.stage_two_offset if row.frontier else "not begun",
            row.lags,
            rates[row.source],
        )
        for row in partitions
    ]
    total_rates = tuple(map(sum, zip(*rates.values(), strict=True))) or (0, 0)
    rows.append(list_cells("total", "", "", "", sum_lags(partitions), total_rates))
    return format_table(STAGES, [TITLES.split("|"), *rows], numbers_from=1)


def convert_status_to_dict(settings: Settings, status: Status) -> dict[str, Any]:
    """As a JSON object. `last_error` is always null: the clusters do not know it."""
    rates = status.rates
    return {
        "application": settings.application,
        "stage_one": status.describe_stage_one(clock.time() * 1000),
        "stage_two": status.describe_stage_two(),
        "progress": status.describe_progress(),
        "group": {"state": status.members.state, "members": status.members.partitions},
        "last_error": None,
        "would_stop": convert_error_to_dict(status.stop_error),
        "source_undecided": {str(tp): offset for tp, offset in status.now.open_at_source.items()},
        "undecided": {str(tp): offset for tp, offset in status.now.open_at_destination.items()},
        "halted": {topic: state._asdict() for topic, state in status.now.halted.items()},
        "partitions": [
            {
                **row.source._asdict(),
                "source_end": row.source_end,
                "last_stable_offset": row.last_stable_offset,
                "stage_one_offset": row.stage_one_offset,
                "frontier": row.frontier.source_offset if row.frontier else None,
                "destination_gone": bool(row.gone_topic),
                "moved": row.move and row.move._asdict(),
                "epoch": row.epoch or None,
                "unread": row.unread,
                "stage_one_wrote_ms": row.last_written_ms,
                "lag": row.lags.to_dict(),
                "rate": dict(zip(("stage_one", "stage_two"), rates[row.source], strict=True)),
            }
            for row in status.now.partitions
        ],
        "lag": sum_lags(status.now.partitions).to_dict(),
    }


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
        clock.sleep(SNAPSHOT_INTERVAL_S)
        _show(settings, watcher.take_status(), as_json, screen)
        while repeat:
            interrupt.set_normal_end()
            clock.sleep(every_s)
            _show(settings, watcher.take_status(), as_json, screen)
    return 0


def _show(settings: Settings, status: Status, as_json: bool, screen: Live | None) -> None:
    """Print a line of JSON, a table that is redrawn in place, or lines."""
    if as_json:
        print_json(convert_status_to_dict(settings, status))
    elif screen is not None:
        table = Text(format_partitions(status), no_wrap=True, overflow="crop")
        service = Text("\n".join(describe_service(settings, status)))
        screen.update(Group(service, table), refresh=True)
    else:
        print("\n".join([*describe_service(settings, status), format_partitions(status)]))
