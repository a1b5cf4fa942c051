"""`reo lag`: how far the copy is behind, of each stage, per partition and in all; for scripts and alarms. What the figures mean: `reo.standing`.

With `--max-records` or `--max-seconds` the exit code says whether it is further behind than that: of records all partitions together, of seconds the
partition that waits longest.
"""

from __future__ import annotations

import sys
from typing import Any

import orjson

from common import permissions, source_candidates
from common.errors import LagsBehind, ReoError
from common.settings import Settings
from reo.shown import aligned
from reo.standing import Lag, Looker, Standing, total

HEAD = ("topic", "partition", "stage one", "seconds", "stage two", "seconds", "both", "seconds")


def parts(standings: list[Standing]) -> tuple[Lag, Lag, Lag]:
    """Of several partitions: stage one's lag, stage two's, and of both together, which is not their sum: stage two's is in records of its own topic."""
    return total([row.one for row in standings]), total([row.two for row in standings]), total([row.both for row in standings])


def as_text(standings: list[Standing]) -> str:
    """A table; the last line is of all partitions."""
    rows = [(row.source.topic, str(row.source.partition), *_cells((row.one, row.two, row.both))) for row in standings]
    return "\n".join(aligned([HEAD, *rows, ("total", "", *_cells(parts(standings)))], numbers_from=1))


def as_json(standings: list[Standing]) -> str:
    """One object."""
    rows = [{"topic": row.source.topic, "partition": row.source.partition, **facts((row.one, row.two, row.both))} for row in standings]
    return orjson.dumps({"partitions": rows, "total": facts(parts(standings))}).decode()


def facts(lags: tuple[Lag, Lag, Lag]) -> dict[str, Any]:
    """For JSON."""
    return {name: lag.facts() for name, lag in zip(("stage_one", "stage_two", "both"), lags, strict=True)}


def seconds(lag: Lag) -> str:
    """For people."""
    return "?" if lag.seconds is None else f"{lag.seconds:.1f}"


def _cells(lags: tuple[Lag, Lag, Lag]) -> list[str]:
    return [cell for lag in lags for cell in (str(lag.records), seconds(lag))]


def check(lag: Lag, most_records: int | None, most_seconds: float | None) -> None:
    """LagsBehind when it is more than is allowed."""
    wrong = []
    if most_records is not None and lag.records > most_records:
        wrong.append(f"{lag.records} records, more than --max-records {most_records}")
    if most_seconds is not None and (lag.seconds or 0) > most_seconds:
        wrong.append(f"{lag.seconds:.1f} seconds, more than --max-seconds {most_seconds:g}")
    if wrong:
        raise LagsBehind(f"the copy is behind by {' and by '.join(wrong)}. `reo status` shows which stage waits, and whether it moves")


def command(settings: Settings, as_json_: bool, most_records: int | None, most_seconds: float | None) -> int:
    """The sub-command: exit code 0, or 36 when it lags more than is allowed."""
    try:
        settings = source_candidates.select_answering(settings)
        permissions.check_permissions(settings, "lag")
        found = Looker(settings).look().standings
        print((as_json if as_json_ else as_text)(found))
        check(parts(found)[2], most_records, most_seconds)
    except ReoError as error:
        print(f"reo lag: {error}", file=sys.stderr)
        return error.exit_code
    return 0
