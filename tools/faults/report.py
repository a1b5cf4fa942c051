"""`make report`: docs/faults.md and its picture, from the results of a campaign.

    python -m tools.faults.report RESULTS.jsonl [--rivals RIVALS.json] [--soak SOAK.json]
        [--simulated SIMULATED.jsonl] [--planted PLANTED.jsonl]

Every figure of the page is from these files. A section without a new file is kept; next to new
fault runs it is marked as older.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path

from tests.harness.kafka import ROOT
from tools.faults.campaign_tables import (
    HEAD,
    Row,
    format_failures,
    format_runs,
    format_stories,
    format_summary,
    group_by_story,
    wrap_paragraph,
)
from tools.faults.timeline_picture import draw_picture
from tools.simulator import planted_defects

DOCS = ROOT / "docs"
RIVAL = "MirrorMaker 2, Kafka 4.3.1, exactly-once"
"""As `faults.rivals` calls it."""
SECTIONS = ("Simulated", "Planted defects", RIVAL, "Soak", "Every run")
"""The titles after the results of the fault runs."""
NOT_SIMULATED = (
    "**What it cannot find**: defects of what it replaces (Spark with stage one's sink, librdkafka,"
    " brokers, PostgreSQL), of the compiled path (compared with Python's reader by property tests,"
    " on real brokers and by the fuzzer), of the supervisor's process (what it decides is the same"
    " code), and of the HTTP server; brokers that disagree about a topic's id, or give the"
    " partitions of a topic that was created again away by its id (group.protocol=consumer)."
)
OLDER = "*From an earlier campaign, and so are its runs of reo, which are not on this page.*"
OLDER_LINE = re.compile(r"\A\*From an earlier campaign[^\n]*\n+")


def format_rivals(results: Row, rows: list[Row]) -> list[str]:
    """MirrorMaker 2 and reo in the same stories."""
    how = (
        "The same load, faults and judge (`python -m tools.faults.rivals`), each run on brokers of"
        " its own. The results of reo are those of the same story in the same campaign. After a"
        " recreated source, exact means: all records of the old topic that were copied, then all"
        " of the new one."
    )
    lines = [
        f"## {results['rival']}",
        "",
        wrap_paragraph(how),
        "",
        "| story | MirrorMaker 2 | its log | complete after | reo |",
        "|---|---|---|---:|---|",
    ]
    rows_by_story = group_by_story(rows)
    for outcome in results["outcomes"]:
        own_rows = rows_by_story.get(
            {"MirrorMaker SIGKILL": "SIGKILL of both stages"}.get(
                outcome["story"], outcome["story"]
            ),
            [],
        )
        verdicts = Counter(row["verdict"].split("\n")[0][:100] for row in own_rows)
        own_results = "; ".join(f"{count} × {verdict}" for verdict, count in verdicts.items())
        complete_after = "never" if outcome["seconds"] is None else f"{outcome['seconds']:.0f} s"
        lines.append(
            f"| {outcome['story']} | {outcome['verdict']} | {outcome['said']} | {complete_after} |"
            f" {own_results or 'not run'} |"
        )
    return [*lines, ""]


def format_soak(result: Row) -> list[str]:
    """The long run."""
    what = (
        f"`{result['how']}`: {result['minutes']:.0f} minutes at {result['records_per_s']:,}"
        f" records/s with a fault every {result['fault_every_s']} s on average;"
        f" {result['records']:,} records, {result['faults']} faults, verdict:"
        f" **{result['verdict']}**. The slopes are those of least-squares lines through the second"
        " half."
    )
    lines = [
        "## Soak",
        "",
        wrap_paragraph(what),
        "",
        (
            "| process | RSS at the end, MB | slope, MB/h | file descriptors | slope, 1/h | threads"
            " | slope, 1/h |"
        ),
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, row in result["processes"].items():
        lines.append(
            f"| {name} | {row['rss_mb']:.0f} | {row['rss_mb_per_h']:+.1f} |"
            f" {row['descriptors']:.0f} | {row['descriptors_per_h']:+.1f} | {row['threads']:.0f} |"
            f" {row['threads_per_h']:+.1f} |"
        )
    return [*lines, ""]


def join_ranges(rows: list[Row]) -> list[tuple[int, int]]:
    """The first and last seeds of what was run, without gaps in between."""
    ranges: list[tuple[int, int]] = []
    for first, last in sorted((row["seed"], row["seed"] + row["runs"] - 1) for row in rows):
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))
    return ranges


TEXT_CHARS_MAX = 200
FOUND_LINE = re.compile(r"\| [^|]+ \| [\d,]+ \|")
FOLDER = re.compile(r'(File ")[^"]*?/(?=(?:common|deduplicator|replicator|reo|simulator)/)')
"""In a line of a traceback, the folder of the tree that was simulated."""
COMMIT_HASH = re.compile(r"\b[0-9a-f]{7,}\+?(?=[,.])")


def format_simulation(rows: list[Row]) -> list[str]:
    """`make simulate`: totals, and every kind of fault. ValueError for rows of different code: what
    an older service did says nothing of this one.
    """
    if len({row.get("trees") for row in rows}) != 1:
        raise ValueError("the rows are not of one service and simulator: `trees` differ")
    fault_counts: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    for row in rows:
        fault_counts.update(row["faults"])
        ends.update(row["ends"])
    total = {
        name: sum(row[name] for row in rows)
        for name in ("runs", "compared", "steps", "virtual_s", "seconds")
    }
    violations = [violation for row in rows for violation in row["violations"]]
    seeds = ", ".join(f"{first:,} to {last:,}" for first, last in join_ranges(rows))
    commits = ", ".join(dict.fromkeys(row["commit"] for row in rows))
    how = (
        "The service's own processes, unchanged, on a virtual clock against a simulated Kafka"
        " (`tools/simulator/`). After every step the records that are visible at the destination"
        " must be a prefix of those that are visible at the source."
    )
    what = (
        f"**{total['runs']:,} schedules, {len(violations)} failed**: {fault_counts.total():,}"
        f" faults of {len(fault_counts)} kinds, {total['compared']:,} records compared,"
        f" {total['steps']:,} steps, {total['virtual_s'] / 3600:,.0f} hours of virtual time in"
        f" {total['seconds'] / 60:,.0f} minutes ({60 * total['runs'] / total['seconds']:,.0f}"
        f" schedules a minute). Seeds {seeds} (`make simulate SEED= RUNS=`); commit"
        f" {commits}."
    )
    lines = ["## Simulated", ""]
    lines += [line for text in (how, what, NOT_SIMULATED) for line in (wrap_paragraph(text), "")]
    failed = [f"- seed {seed}: {shorten_violation(text)}" for seed, text, _ in violations]
    if failed:
        lines += [*failed, "", "[The notebook](notebook.md) says what each of them was.", ""]
    lines += ["| fault | times |", "|---|---:|"]
    lines += [f"| {kind} | {number:,} |" for kind, number in fault_counts.most_common()]
    lines += [
        "",
        "| end of the service | schedules |",
        "|---|---:|",
        *(f"| {end} | {number:,} |" for end, number in ends.most_common()),
        "",
    ]
    return lines


def format_planted(rows: list[Row], page: str) -> list[str]:
    """Known defects, and after how many schedules each was found. Of several rows of a defect, the
    last one counts; one without a row keeps its line of the page.
    """
    last_rows = {row["name"]: row for row in rows}
    kept = "\n".join(keep_section(page, "Planted defects", is_older=False))
    kept_lines = {line.split(" | ")[0][2:]: line for line in kept.splitlines() if " | " in line}
    lines = [
        format_defect(defect, last_rows.get(defect.name), kept_lines.get(defect.name))
        for defect in planted_defects.DEFECTS
    ]
    found = sum(bool(FOUND_LINE.match(line)) for line in lines)
    kept_commits = (
        COMMIT_HASH.findall(kept.partition("\n|")[0]) if len(last_rows) < len(lines) else []
    )
    commits = dict.fromkeys([*kept_commits, *(row["commit"] for row in last_rows.values())])
    what = (
        "Known defects, put into the service's source text one at a time (`make simulate"
        " PLANTED=all`); the seeds from 1 on run until one finds it:"
        f" **{found} of {len(lines)} found**. Commit {', '.join(commits)}."
    )
    return [
        "## Planted defects",
        "",
        wrap_paragraph(what),
        "",
        "| defect | found after | violation |",
        "|---|---:|---|",
        *lines,
        "",
    ]


def format_defect(defect: planted_defects.Defect, row: Row | None, kept_line: str | None) -> str:
    """A line of that table. Of a defect that was not found, the reason is the current one."""
    if row is None:
        if not kept_line or FOUND_LINE.match(kept_line):
            return kept_line or f"| {defect.name} | not run | |"
        after, text = kept_line.split(" | ")[1], ""
    elif row["seed"]:
        after, text = format(row["seed"], ","), shorten_violation(row["violation"])
    else:
        after = f"not in {row['runs']:,}; in {row['reached']:,} it makes a difference"
        text = ""
    if not text:
        text = defect.limit + (f" `{defect.test}` fails with it." if defect.test else "")
    return f"| {defect.name} | {after} | {text.replace('|', '/')} |"


def shorten_violation(violation: str) -> str:
    """Its first line, without the machine's paths, for a table."""
    first_line = FOLDER.sub(r"\1", violation.splitlines()[0])
    return first_line[:TEXT_CHARS_MAX].replace("|", "/")


def keep_section(page: str, title: str, is_older: bool) -> list[str]:
    """A section of the page as it is; with `is_older`, marked as of an earlier campaign. Nothing
    when the page does not have it.
    """
    _, heading, rest = page.partition(f"\n## {title}\n")
    body = rest.split("\n## ", 1)[0].strip()
    if is_older:
        body = f"{OLDER}\n\n{OLDER_LINE.sub('', body)}"
    return [f"## {title}", "", body, ""] if heading else []


def keep_fault_runs(page: str) -> tuple[str, str]:
    """The page's results of the fault runs: from the totals to the first of `SECTIONS`, and the
    table at the end. The head is the current one.
    """
    before = re.split(rf"\n## (?:{'|'.join(map(re.escape, SECTIONS))})\n", page, maxsplit=1)[0]
    _, _, results = before.partition("\n**")
    _, heading, table = page.partition("\n## Every run\n")
    return f"{HEAD}\n**{results}" if results else HEAD, f"{heading}{table}".lstrip("\n")


def main() -> None:
    """Write the page."""
    arguments = argparse.ArgumentParser(prog="python -m tools.faults.report")
    arguments.add_argument("results", type=Path, nargs="?")
    arguments.add_argument("--rivals", type=Path)
    arguments.add_argument("--soak", type=Path)
    arguments.add_argument("--simulated", type=Path)
    arguments.add_argument("--planted", type=Path)
    arguments.add_argument("--how", default="make faults")
    options = arguments.parse_args()
    if options.rivals and not options.results:
        arguments.error("--rivals compares with fault runs of reo: give their results too")
    file = DOCS / "faults.md"
    page = file.read_text() if file.exists() else ""
    rows = read_rows(options.results) if options.results else []
    if rows:
        beginning = [HEAD, *format_summary(rows, options.how), *format_failures(rows)]
        beginning += [draw_picture(rows, DOCS / "faults.png"), *format_stories(rows)]
        end = format_runs(rows)
    else:
        kept_beginning, kept_end = keep_fault_runs(page)
        beginning, end = [kept_beginning], [kept_end]
    sections = {
        "Simulated": options.simulated and format_simulation(read_rows(options.simulated)),
        "Planted defects": options.planted and format_planted(read_rows(options.planted), page),
        RIVAL: options.rivals and format_rivals(json.loads(options.rivals.read_text()), rows),
        "Soak": options.soak and format_soak(json.loads(options.soak.read_text())),
    }
    middle = [
        line
        for title, section in sections.items()
        for line in section or keep_section(page, title, is_older=bool(rows))
    ]
    file.write_text("\n".join([*beginning, *middle, *end]))


def read_rows(file: Path) -> list[Row]:
    """JSON lines."""
    return [json.loads(line) for line in file.read_text().splitlines()]


if __name__ == "__main__":
    main()
