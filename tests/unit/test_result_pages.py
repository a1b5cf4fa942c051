"""The pages of measured results: docs/faults.md and its picture, docs/performance.md."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tools.bench.__main__ import Bench, parse_rounds
from tools.bench.picture import PANELS
from tools.bench.report import SIDE_BY_SIDE, format_details, format_side_by_side
from tools.bench.results import Results
from tools.bench.targets import GROWTH, GROWTH_RATIO, OWN_FIGURES, TARGETS, format_targets
from tools.faults import campaign_tables, report
from tools.faults.campaign_tables import format_stories, format_summary, wrap_paragraph
from tools.faults.timeline_picture import (
    STORY,
    break_at_gaps,
    choose_run,
    compute_rates,
    group_faults,
)
from tools.reference import figures
from tools.simulator.planted_defects import DEFECTS, ROOT, Defect

PAGE = report.DOCS / "faults.md"


def make_run(verdict: str = "exact", **more: Any) -> dict[str, Any]:
    """One run of a campaign, as in its file."""
    names = ("records", "aborted", "duplicates", "gaps", "stale", "torn", "seconds", "heal_s")
    run = dict.fromkeys(names, 0) | {"story": STORY, "seed": 1, "commit": "abc"}
    return run | {"verdict": verdict, "hits": {}, "timeline": [[0, 0, 0]], "marks": []} | more


def test_a_line_is_broken_at_a_gap() -> None:
    """No line joins two samples that are more than 1 s apart, and no rate is computed over them."""
    samples = break_at_gaps([(0.0, 0, 0), (1.0, 10, 5), (5.0, 20, 20), (6.0, 25, 25)])
    assert [seconds for seconds, _, _ in samples] == [0, 1, 3, 5, 6]
    assert math.isnan(samples[2][1])
    rates = compute_rates(samples, 1)
    assert (rates[0], rates[-1]) == (10, 5)
    assert all(map(math.isnan, rates[1:3]))


def test_a_fault_is_as_wide_as_it_was_long() -> None:
    """A duration in the name of a fault is used; faults whose numbers would overlap share one."""
    faults = group_faults(
        [(10.0, "half-open for 7 s, source"), (50.0, "SIGKILL"), (50.5, "SIGKILL")], run_s=100
    )
    assert [(fault.start_s, fault.end_s) for fault in faults] == [(10, 17), (50, 51.5)]
    assert faults[1].label == "at 50 s: 2 × SIGKILL"


def test_the_picture_of_the_comparison_shows_the_median_too() -> None:
    """Where reo loses as well as where it wins: latency is shown by p50 and by p99."""
    assert {"p50_ms", "p99_ms"} <= {name for kind, name, _ in PANELS if kind == "latency"}


def test_the_picture_is_of_the_exact_run_that_caught_up_first() -> None:
    """A failed run has no time, and another story has other faults."""
    chosen = make_run(heal_s=4.0)
    others = [
        make_run(heal_s=9.0),
        make_run("FAILED: x"),
        make_run(story="another"),
        make_run(timeline=[]),
    ]
    assert choose_run([*others, chosen]) is chosen
    assert choose_run(others[1:]) is None


def test_a_section_without_new_results_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With new simulated results, every other row of the page stays. Planted defects are a new
    section; a later report keeps it.
    """
    page = tmp_path / PAGE.name
    page.write_text(PAGE.read_text())
    planted = tmp_path / "planted.jsonl"
    name = DEFECTS[0].name
    planted.write_text(
        "\n".join(
            json.dumps({"name": name, "commit": "abc"} | row)
            for row in (
                {"seed": 0, "reached": 2, "runs": 7, "violation": ""},
                {"seed": 8, "reached": 2, "runs": 9, "violation": "a loss"},
            )
        )
    )
    simulated = tmp_path / "simulated.jsonl"
    simulated.write_text(
        '{"seed": 1, "runs": 9, "faults": {"a fault": 3}, "ends": {"copied": 9}, "compared": 1,'
        ' "steps": 1, "virtual_s": 1, "seconds": 1, "violations": [], "commit": "abc"}'
    )
    monkeypatch.setattr(report, "DOCS", tmp_path)
    for arguments in (["--planted", str(planted)], ["--simulated", str(simulated)]):
        monkeypatch.setattr(sys, "argv", ["report", *arguments])
        report.main()
    new, old = page.read_text(), PAGE.read_text()
    assert new.startswith(campaign_tables.HEAD)
    assert new.count("\n## Planted defects\n") == new.count(f"| {name} | 8 |") == 1
    titles = [line for line in old.splitlines() if line.startswith("## ")]
    assert all(new.count(f"\n{title}\n") == 1 for title in titles)
    runs = old.partition("\n**")[2].partition("\n## Simulated\n")[0]
    others = old.partition(f"\n## {report.RIVAL}\n")[2]
    assert runs in new
    assert others in new


def test_a_defect_that_was_not_found_has_its_reason_and_the_test_that_fails_with_it() -> None:
    """The page's older line of such a defect keeps its number, and gets the current reason."""
    defect = Defect("a defect", "a.module", "", "", "It is rare.", "tests/unit/test_it.py")
    row = {"seed": 0, "reached": 31, "runs": 2000, "violation": "", "commit": "abc"}
    line = report.format_defect(defect, row, None)
    reason = "It is rare. `tests/unit/test_it.py` fails with it. |"
    assert line == f"| a defect | not in 2,000; in 31 it makes a difference | {reason}"
    older = "| a defect | not in 7 | It was rare. |"
    assert report.format_defect(defect, None, older) == f"| a defect | not in 7 | {reason}"
    assert report.format_defect(defect, row | {"seed": 8, "violation": "a loss\nthere"}, older) == (
        "| a defect | 8 | a loss |"
    )
    assert report.format_defect(defect, None, "| a defect | 8 | a loss |") == (
        "| a defect | 8 | a loss |"
    )
    traceback = 'worker 0:   File "/a/machine/of/mine/deduplicator/loop.py", line 1, in run'
    assert report.format_defect(defect, row | {"seed": 8, "violation": traceback}, None) == (
        '| a defect | 8 | worker 0:   File "deduplicator/loop.py", line 1, in run |'
    )


@pytest.mark.parametrize("defect", [defect for defect in DEFECTS if defect.limit])
def test_a_defect_that_is_hard_to_find_names_tests_that_are_there(defect: Defect) -> None:
    """What the simulator finds hardly or never is found by another test."""
    assert (ROOT / defect.test).is_file()
    assert defect.test.startswith("tests/")


def test_a_run_ends_as_expected_when_it_is_exact_or_stops_as_it_should() -> None:
    """The totals, and the faults of a story without the durations of single runs."""
    rows = [
        make_run(hits={"half-open for 21 s, source": 1}),
        make_run("stopped as expected: SourceTruncated, exit code 20"),
        make_run("FAILED: 1 missing", hits={"half-open for 9 s, source": 1}),
    ]
    assert format_summary(rows, "make faults")[0] == wrap_paragraph(
        "**3 runs, 2 ended as expected**: 1 exact, 1 stopped with the error that the fault"
        " requires, 1 failed."
    )
    assert "| 3 | 2 | 2 × half-open, source |" in "\n".join(format_stories(rows))


def test_a_campaign_says_which_path_copied() -> None:
    """Where a run knows it: older rows, and stops, do not."""
    rows = [make_run(compiled=True), make_run(compiled=True), make_run(compiled=None), make_run()]
    summary = format_summary([*rows, make_run(compiled=False)], "make faults")
    assert "- copies recorded as made by the compiled path: 2" in summary
    assert "- copies recorded as made by Python alone: 1" in summary
    assert not any("copies recorded" in line for line in format_summary(rows[2:], "make faults"))


def test_what_one_core_buys_is_computed_from_the_processor_time() -> None:
    """The median of the rounds decides."""
    rows = [
        {"section": "throughput, 100 B", "who": who, "cpu_us_all": cpu_us, "records_per_s": 1.0}
        | {"first_record_s": 1.0, "rss_mb_all": 1.0}
        for who, times_us in (("reo", (3.34, 9.0, 3.0)), ("MirrorMaker 2", (2.74, 2.0, 8.0)))
        for cpu_us in times_us
    ]
    row = "| records/s that one core buys, 100 B | 299,000 | 365,000 | 0.82 | 3 |"
    assert row in format_side_by_side(Results(rows))


def test_readmes_row_has_what_was_measured() -> None:
    """Each of its figures is one that `make bench` compares, and docs/performance.md has it."""
    assert figures.PRICE.keys() <= {row.name for row in SIDE_BY_SIDE}
    names, _, row = figures.price_table().splitlines()[-3:]
    assert names.split(" | ")[1:] == [*list(figures.PRICE.values())[:-1], "memory, MB |"]
    assert row.startswith("| reo : MirrorMaker 2 | ")
    assert row.count(" : ") == len(figures.PRICE) + 1


@pytest.mark.parametrize(
    ("name", "ours", "missed"),
    [
        ("records/s, 100 B", 90, "| 0.90 | 1.8 | 2.5 | 50 % |"),
        ("records/s, 100 B", 200, "| 2.00 | 1.8 | 2.5 | – |"),
        ("CPU µs/record of its processes, 100 B", 90, "| 0.90 | 0.45 | 0.33 | 100 % |"),
        ("CPU µs/record of its processes, 100 B", 40, "| 0.40 | 0.45 | 0.33 | – |"),
    ],
)
def test_a_missed_target_is_named(name: str, ours: float, missed: str) -> None:
    """By how much of what is wanted at least; what was not measured is no success."""
    measured = ("records_per_s", "cpu_us_all", "first_record_s", "rss_mb_all")
    rows: list[dict[str, Any]] = [
        {"section": "throughput, 100 B", "who": who} | dict.fromkeys(measured, 100.0)
        for who in ("reo", "MirrorMaker 2")
    ]
    rows[0]["records_per_s" if name.startswith("records") else "cpu_us_all"] = ours
    lines = format_targets(Results(rows))
    assert f"| {name} {missed}" in lines
    assert any("latency p50 at 450/s" in line and "not measured" in line for line in lines)


def test_each_target_is_of_a_figure_that_is_measured() -> None:
    """Else it would be "not measured" for ever; those of reo alone are figures by themselves."""
    own = {GROWTH_RATIO, *OWN_FIGURES}
    assert TARGETS.keys() - {row.name for row in SIDE_BY_SIDE} == own
    rows = [
        {"section": f"growth: {partitions} partitions", "who": "reo", "cpu_us_all": cpu_us}
        for partitions, cpu_us in ((4, 2.0), (64, 3.0))
    ]
    lines = format_targets(Results(rows))
    assert f"| {GROWTH} | 3.00 | 2.5 | 2.5 | 20 % |" in lines
    assert f"| {GROWTH_RATIO} | 1.50 | 1.32 | 1.15 | 14 % |" in lines


@pytest.mark.parametrize("rounds", ["0", "1", "3"])
def test_each_contender_is_first_as_often_as_second(rounds: str) -> None:
    """An odd number of rounds is refused."""
    assert parse_rounds("4") == 4
    with pytest.raises(argparse.ArgumentTypeError):
        parse_rounds(rounds)


def test_brokers_are_warm_before_the_first_counted_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One copy of each contender before each kind of record, and before anything else where no
    throughput is asked for; then each is first in half of the rounds.
    """

    def measure(only: str) -> list[tuple[str, str, int]]:
        bench = Bench(cast(Any, None), 2, 1.0, re.compile(only), tmp_path / "results")
        order: list[tuple[str, str, int]] = []
        contenders = [SimpleNamespace(name=who) for who in ("reo", "MirrorMaker 2")]
        monkeypatch.setattr(bench, "topic", lambda *_: "filled")
        monkeypatch.setattr(
            bench,
            "contenders",
            lambda number, *_: [(each, "") for each in contenders[:: -1 if number % 2 else 1]],
        )
        monkeypatch.setattr(
            bench, "measure", lambda section, who, number, _: order.append((section, who, number))
        )
        bench.throughput()
        return order

    assert measure("1 kB") == [
        ("warm-up, 1 kB", "reo", 0),
        ("warm-up, 1 kB", "MirrorMaker 2", 0),
        ("throughput, 1 kB", "reo", 0),
        ("throughput, 1 kB", "MirrorMaker 2", 0),
        ("throughput, 1 kB", "MirrorMaker 2", 1),
        ("throughput, 1 kB", "reo", 1),
    ]
    assert [section for section, *_ in measure("latency")] == ["warm-up, 100 B"] * 2


def test_repeated_rounds_are_one_row() -> None:
    """Limits are medians over the rounds; a figure that is not measured is empty."""
    rows = [
        {"section": "limits: bare loop", "who": "loop", "records_per_s": rate, "cpu_us_all": 1.0}
        for rate in (3000.0, 1000.0, 2000.0)
    ]
    assert "| bare loop | loop | 2,000 | 1.00 |  | 3 |" in format_details(Results(rows))


def test_each_hop_has_its_latency() -> None:
    """Medians over the rounds of each quantile."""
    hops = ("stage one", "stage two", "both")
    rows = [
        {"section": "hops at 450 records/s", "who": "reo"}
        | {hop: dict.fromkeys(("p50_ms", "p90_ms", "p99_ms", "max_ms"), ms) for hop in hops}
        for ms in (3.0, 1.0, 2.0)
    ]
    lines = format_details(Results(rows))
    assert all(
        f"| latency at 450 records/s | {hop} | 2.0 | 2.0 | 2.0 | 2.0 |" in lines for hop in hops
    )


def test_what_another_service_did_does_not_count() -> None:
    """The schedules of a campaign in several parts are of one and the same code."""
    row = {"seed": 1, "runs": 2, "compared": 3, "steps": 4, "virtual_s": 5, "seconds": 6}
    row |= {"faults": {}, "ends": {}, "violations": [], "commit": "abc", "trees": "here"}
    failed = {"seed": 3, "commit": "def", "violations": [[4, "nothing | is copied\nwhere", []]]}
    whole = "\n".join(report.format_simulation([row, row | failed]))
    assert "4 schedules, 1 failed" in whole
    assert "- seed 4: nothing / is copied\n\n" in whole
    assert "commit abc, def." in whole
    with pytest.raises(ValueError, match="not of one service"):
        report.format_simulation([row, row | {"seed": 3, "trees": "there"}])
