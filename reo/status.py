"""`reo status`: where every partition stands, how fast it moves, and what the clusters tell of the service; from outside, also when nothing runs.

Two looks (`reo.standing`) a second apart give the rates; with `--watch` each further look is compared with the one before. Of the service only its
consumer group is seen. Stage one is no member of it: that it lives is seen by what it writes, that it does not is never seen. An
error that ended a process is nowhere in the clusters; what is there is whether a start would go on
(`replicator.source_selection`). What is not known is called so.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from common import epochs, machine, permissions, source_candidates
from common.errors import ReoError
from common.group import Members
from common.settings import Settings
from reo import lag, shown
from reo.shown import aligned
from reo.standing import Lag, Look, Looker
from replicator import source_selection

APART_S = 1.0
UNKNOWN = "unknown from outside"
HEAD = ("partition", "source end", "stage one at", "lag", "seconds", "rate/s", "copied up to", "lag", "seconds", "rate/s", "in all", "seconds")


class Status(NamedTuple):
    """Two looks and what else was asked; `stop` is what a start would stop with, as far as the clusters tell."""

    before: Look
    now: Look
    members: Members
    stop: ReoError | None

    @property
    def rates(self) -> dict[str, tuple[float, float]]:
        """By source partition, source offsets per second of stage one and of stage two; a run that begins again at the frontier is no negative rate."""
        took_s = max(self.now.at - self.before.at, 1e-6)
        old = {row.source: row for row in self.before.standings}
        return {str(row.source): (max(0, row.written_to - old[row.source].written_to) / took_s, max(0, row.copied_to - old[row.source].copied_to) / took_s)
                for row in self.now.standings if row.source in old}

    def stage_one(self, now_ms: float) -> str:
        """In words."""
        wrote = [row.wrote_ms for row in self.now.standings if row.wrote_ms is not None]
        begun_ms = epochs.time_ms(max((row.epoch for row in self.now.standings), default=0))
        begun = f"; the newest run began at {datetime.fromtimestamp(begun_ms / 1000, UTC).isoformat(timespec='seconds')} (its epoch)"
        run = begun if 0 < begun_ms <= now_ms else ""  # one that is ahead of the clock says nothing of when (`common.epochs`)
        last = f"wrote last {max(0.0, (now_ms - max(wrote)) / 1000):.1f} s ago" if wrote else "nothing of it is on the intermediate topics"
        if any(one for one, _ in self.rates.values()):
            return f"runs: it moved between two looks{run}"
        return f"{last}{run}; whether it runs is {UNKNOWN}"

    def stage_two(self) -> str:
        """In words."""
        if not self.members.partitions:
            return f"does not run: group has no members ({self.members.state})"
        who = ", ".join(f"{name} with {partitions} partitions" for name, partitions in sorted(self.members.partitions.items()))
        return f"{'runs' if self.members.state == 'stable' else f'its members share the partitions out ({self.members.state})'}: {who}"

    def progress(self) -> str:
        """In words."""
        behind = lag.parts(self.now.standings)[2]
        rate = sum(two for _, two in self.rates.values())
        if rate:
            return f"{rate:,.0f} records/s are copied"
        if not behind.records:
            return "all is copied"
        return f"nothing was copied between two looks ({self.now.at - self.before.at:.1f} s apart), and {behind.records} records wait"

    def undecided(self) -> list[str]:
        """Transactions that were open in both looks; each is normal while it is short."""
        held_back = [f"{place} at the source: a transaction is open from offset {offset} on, in both looks; what is behind it cannot be copied yet"
                     for place, offset in self.now.held_back.items() if self.before.held_back.get(place) == offset]
        return [*held_back, *(f"{place}: a transaction is open from offset {offset} on, in both looks"
                              for place, offset in self.now.undecided.items() if self.before.undecided.get(place) == offset)]


class Watcher:
    """Looks again and again."""

    def __init__(self, settings: Settings) -> None:
        self.settings = source_candidates.select_answering(settings)
        self.failover = settings.failover
        self.looker = Looker(self.settings)
        self.before = self.looker.look()

    def next(self) -> Status:
        """Another look, held against the one before."""
        now = self.looker.look()
        before, self.before = self.before, now
        return Status(before, now, self.looker.group.members(), self._stop(now))

    def _stop(self, now: Look) -> ReoError | None:
        """With several candidates the next one is asked: none of them alone is a reason to stop."""
        try:
            if now.frontiers and not self.failover:
                source_selection.inspect_single_source(self.settings, now.sources, now.frontiers)
        except ReoError as stop:
            return stop
        return None


def words(settings: Settings, status: Status) -> list[str]:
    """What is to be said of the service."""
    return [
        f"{settings.application}: {', '.join(map(str, status.now.sources)) or 'no source topic fits the patterns'}",
        f"stage one   {status.stage_one(machine.time() * 1000)}",
        f"stage two   {status.stage_two()}",
        f"progress    {status.progress()}",
        f"last error  {UNKNOWN}: the log of the service has it" + (f". A start would stop now: {status.stop}" if status.stop else ""),
        *(f"open        {text}" for text in status.undecided()),
    ]


def table(status: Status) -> list[str]:
    """Where the partitions stand."""
    rates = status.rates
    rows = [_row(str(row.source), (row.source_end, row.written_to, row.copied_to if row.frontier else "not begun"), (row.one, row.two, row.both),
                 rates.get(str(row.source), (0, 0))) for row in status.now.standings]
    in_all = sum(one for one, _ in rates.values()), sum(two for _, two in rates.values())
    return aligned([HEAD, *rows, _row("total", ("", "", ""), lag.parts(status.now.standings), in_all)], numbers_from=1)


def _row(name: str, stands: tuple[object, object, object], lags: tuple[Lag, Lag, Lag], rates: tuple[float, float]) -> tuple[str, ...]:
    one, two, both = lags
    return (name, str(stands[0]), str(stands[1]), str(one.records), lag.seconds(one), f"{rates[0]:.0f}",
            str(stands[2]), str(two.records), lag.seconds(two), f"{rates[1]:.0f}", str(both.records), lag.seconds(both))


def facts(settings: Settings, status: Status) -> dict[str, Any]:
    """For JSON; `last_error` is null because the clusters do not know it."""
    rates = status.rates
    return {
        "application": settings.application, "stage_one": status.stage_one(machine.time() * 1000), "stage_two": status.stage_two(),
        "progress": status.progress(), "group": {"state": status.members.state, "members": status.members.partitions},
        "last_error": None, "would_stop": shown.facts(status.stop), "source_undecided": {str(place): offset for place, offset in status.now.held_back.items()},
        "undecided": {str(place): offset for place, offset in status.now.undecided.items()},
        "partitions": [{
            "topic": row.source.topic, "partition": row.source.partition, "source_end": row.source_end, "stage_one_offset": row.written_to,
            "frontier": row.frontier.rule.frontier if row.frontier else None, "epoch": row.epoch or None, "stage_one_wrote_ms": row.wrote_ms,
            "lag": lag.facts((row.one, row.two, row.both)),
            "rate": dict(zip(("stage_one", "stage_two"), rates.get(str(row.source), (0.0, 0.0)), strict=True))} for row in status.now.standings],
        "lag": lag.facts(lag.parts(status.now.standings)),
    }


def command(settings: Settings, as_json: bool, watch: bool, every_s: float) -> int:
    """The sub-command: exit code 0 when everything could be looked at, whatever it looks like. `--watch` goes on until it is interrupted."""
    console = Console()
    try:
        permissions.check_permissions(settings, "status")
        watcher = Watcher(settings)
        again = watch and (console.is_terminal or as_json)
        with Live(Text(""), console=console, auto_refresh=False) if again and not as_json else nullcontext() as screen:
            machine.sleep(APART_S)
            _show(settings, watcher.next(), as_json, screen)
            while again:
                machine.sleep(every_s)
                _show(settings, watcher.next(), as_json, screen)
    except ReoError as error:
        print(f"reo status: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        if not watch:
            raise
    return 0


def _show(settings: Settings, status: Status, as_json: bool, screen: Live | None) -> None:
    """A line of JSON, a table that stays in place, or lines."""
    if as_json:
        print(orjson.dumps(facts(settings, status)).decode(), flush=True)
    elif screen is not None:
        screen.update(Group(Text("\n".join(words(settings, status))), Text("\n".join(table(status)), no_wrap=True, overflow="crop")), refresh=True)
    else:
        print("\n".join([*words(settings, status), *table(status)]))
