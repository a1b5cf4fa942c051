"""The runs of a campaign as Markdown: totals, what came out wrong, every story, every run."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

Row = dict[str, Any]


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
    """Whether it came out as it has to."""
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
    stopped = sum("stopped as it has to" in row["verdict"] for row in rows)
    exact = sum(row["verdict"] == "exact" for row in rows)
    outcome = (
        f"**{len(rows)} runs, {sum(map(is_good, rows))} came out as they have to**: {exact} exact,"
        f" {stopped} ended with the named stop that the harm asks for,"
        f" {len(rows) - exact - stopped} wrong."
    )
    names = {
        "records": "records compared",
        "aborted": "aborted at the source",
        "duplicates": "duplicates dropped",
        "holes": "records behind holes dropped",
        "stale": "stale records dropped",
        "torn": "torn records healed",
    }
    figures = {"faults": hits} | {
        text: sum(get_figure(row, name) for row in rows) for name, text in names.items()
    }
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows))
    replay = (
        f"Made with `{how}`. Replay one run with `make faults ONLY='<story>' SEED=<seed> REPLAY=1`."
        f" Commits: {commits}; what a run found was fixed, and stays in the table as it came out."
    )
    return [
        outcome,
        "",
        *(f"- {name}: {figure:,}" for name, figure in figures.items()),
        "",
        replay,
        "",
    ]


def format_failures(rows: list[Row]) -> list[str]:
    """Each run that did not come out as it has to, and what the same seed does with later code."""
    lines = [
        "## What came out wrong",
        "",
        "| story | seed | commit | verdict | replayed |",
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
                f" {'; '.join(later) or 'no'} |"
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
            "| story | runs | good | harm done | duplicates | holes | stale | torn | exact after, s"
            " (median / most) |"
        ),
        "|---|---:|---:|---|---:|---:|---:|---:|---:|",
    ]
    for story, story_rows in group_by_story(rows).items():
        hits: dict[str, int] = defaultdict(int)
        for row in story_rows:
            for what, count in row["hits"].items():
                hits[strip_figures(what)] += count
        heal_times_s = [row["heal_s"] for row in story_rows if row["verdict"] == "exact"]
        times = f"{median(heal_times_s):.0f} / {max(heal_times_s):.0f}" if heal_times_s else "–"
        figures = " | ".join(
            f"{sum(get_figure(row, name) for row in story_rows):,}"
            for name in ("duplicates", "holes", "stale", "torn")
        )
        harm = ", ".join(f"{count} × {what}" for what, count in hits.items())
        lines.append(
            f"| {story} | {len(story_rows)} | {sum(map(is_good, story_rows))} | {harm} | {figures}"
            f" | {times} |"
        )
    return [*lines, ""]


def strip_figures(what: str) -> str:
    """A hit without the figures of its run."""
    return (
        " ".join(word for word in what.split() if not word.replace(".", "").isdigit())
        .replace("for s,", "")
        .replace("for s of at most", "")
    )


def format_runs(rows: list[Row]) -> list[str]:
    """Every run."""
    lines = [
        "## Every run",
        "",
        (
            "| # | commit | story | seed | harm | records | duplicates | holes | stale | torn | s |"
            " verdict |"
        ),
        "|---:|---|---|---:|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for number, row in enumerate(rows, 1):
        harm = ", ".join(f"{count} × {what}" for what, count in row["hits"].items())
        figures = " | ".join(
            f"{get_figure(row, name):,}"
            for name in ("records", "duplicates", "holes", "stale", "torn")
        )
        lines.append(
            f"| {number} | {row['commit']} | {row['story']} | {row['seed']} | {harm} | {figures} |"
            f" {row['seconds']:.0f} | {format_verdict(row)} |"
        )
    return [*lines, ""]
