"""The runs of a campaign as Markdown: totals, failed runs, every story, every run."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from statistics import median
from typing import Any

Row = dict[str, Any]
PAGE_COLUMNS = 100
DURATION = re.compile(r" for [\d.]+ s( of at most \d+)?")
"""How long a fault lasted in one run; "half-open for 21 s, source"."""


def wrap_paragraph(text: str) -> str:
    """One paragraph in lines of the page's width."""
    return textwrap.fill(text, PAGE_COLUMNS, break_long_words=False, break_on_hyphens=False)


def get_figure(row: Row, name: str) -> int:
    """A figure of a run."""
    return int(row[name])


def group_by_story(rows: list[Row]) -> dict[str, list[Row]]:
    """The runs of each story, in the order of the first."""
    rows_by_story: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        rows_by_story[row["story"]].append(row)
    return rows_by_story


def is_good(row: Row) -> bool:
    """Whether the run ended as expected."""
    return not row["verdict"].startswith("FAILED")


def format_summary(rows: list[Row], how: str) -> list[str]:
    """Totals."""
    hits = sum(
        sum(
            count
            for what, count in row["hits"].items()
            if "records" not in what and "requests" not in what
        )
        for row in rows
    )
    stopped = sum(row["verdict"].startswith("stopped as ") for row in rows)
    exact = sum(row["verdict"] == "exact" for row in rows)
    outcome = (
        f"**{len(rows)} runs, {sum(map(is_good, rows))} ended as expected**: {exact} exact,"
        f" {stopped} stopped with the error that the fault requires,"
        f" {len(rows) - exact - stopped} failed."
    )
    names = {
        "records": "records compared",
        "aborted": "records aborted at the source",
        "duplicates": "duplicates dropped",
        "holes": "records after holes dropped",
        "stale": "stale records dropped",
        "torn": "records of torn transactions, found at the destination and not written again",
    }
    figures = {"faults": hits} | {
        text: sum(get_figure(row, name) for row in rows) for name, text in names.items()
    }
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows))
    replay = (
        f"Made with `{how}`. Replay one run with `make faults ONLY='<story>' SEED=<seed> REPLAY=1`."
        f" Commits: {commits}. A failed run stays in the tables with its verdict, also when the"
        " defect was fixed later."
    )
    return [
        wrap_paragraph(outcome),
        "",
        *(f"- {name}: {figure:,}" for name, figure in figures.items()),
        "",
        wrap_paragraph(replay),
        "",
    ]


def format_failures(rows: list[Row]) -> list[str]:
    """Each failed run, and the verdict of the same seed with other commits."""
    lines = [
        "## Failed runs",
        "",
        "| story | seed | commit | verdict | other commits |",
        "|---|---:|---|---|---|",
    ]
    for row in rows:
        if not is_good(row):
            later = [
                f"{other['commit']}: {format_verdict(other)}"
                for other in rows
                if (other["story"], other["seed"]) == (row["story"], row["seed"])
                and other["commit"] != row["commit"]
            ]
            lines.append(
                f"| {row['story']} | {row['seed']} | {row['commit']} | {format_verdict(row)} |"
                f" {'; '.join(later) or 'not run'} |"
            )
    return [*lines, ""] if not all(map(is_good, rows)) else []


def format_verdict(row: Row) -> str:
    """The verdict, for a cell of a table."""
    return str(row["verdict"]).split("\n", 1)[0].replace("|", "/")[:160]


def format_stories(rows: list[Row]) -> list[str]:
    """One line for each story."""
    lines = [
        "## By story",
        "",
        (
            "| story | runs | as expected | faults | duplicates | holes | stale | torn"
            " | exact after, s (median / maximum) |"
        ),
        "|---|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for story, story_rows in group_by_story(rows).items():
        hits: dict[str, int] = defaultdict(int)
        for row in story_rows:
            for what, count in row["hits"].items():
                hits[DURATION.sub("", what)] += count
        heal_times_s = [row["heal_s"] for row in story_rows if row["verdict"] == "exact"]
        times = f"{median(heal_times_s):.0f} / {max(heal_times_s):.0f}" if heal_times_s else "–"
        figures = " | ".join(
            f"{sum(get_figure(row, name) for row in story_rows):,}"
            for name in ("duplicates", "holes", "stale", "torn")
        )
        faults = ", ".join(f"{count} × {what}" for what, count in hits.items())
        lines.append(
            f"| {story} | {len(story_rows)} | {sum(map(is_good, story_rows))} | {faults} |"
            f" {figures} | {times} |"
        )
    return [*lines, ""]


def format_runs(rows: list[Row]) -> list[str]:
    """Every run."""
    lines = [
        "## Every run",
        "",
        (
            "| # | commit | story | seed | faults | records | duplicates | holes | stale | torn"
            " | s | verdict |"
        ),
        "|---:|---|---|---:|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for number, row in enumerate(rows, 1):
        faults = ", ".join(f"{count} × {what}" for what, count in row["hits"].items())
        figures = " | ".join(
            f"{get_figure(row, name):,}"
            for name in ("records", "duplicates", "holes", "stale", "torn")
        )
        lines.append(
            f"| {number} | {row['commit']} | {row['story']} | {row['seed']} | {faults} |"
            f" {figures} | {row['seconds']:.0f} | {format_verdict(row)} |"
        )
    return [*lines, ""]
