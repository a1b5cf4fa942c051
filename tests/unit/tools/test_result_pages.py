"""The pages of measured results: docs/faults.md and docs/performance.md."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tools.bench.__main__ import Bench, parse_rounds
from tools.bench.picture import PANELS
from tools.bench.report import SIDE_BY_SIDE, THROUGHPUTS, format_details, format_side_by_side
from tools.bench.results import Results
from tools.faults import report
from tools.reference import figures
from tools.simulator.planted_defects import DEFECTS, ROOT, Defect

STORY = "everything mixed"


def make_run(verdict: str = "exact", **more: Any) -> dict[str, Any]:
    """One run of a campaign, as `make faults` writes it."""
    names = ("records", "aborted", "duplicates", "gaps", "stale", "torn", "seconds", "heal_s")
    run = dict.fromkeys(names, 0) | {"story": STORY, "seed": 1, "commit": "abc"}
    return run | {"verdict": verdict, "hits": {}} | more


def make_defect_row(seed: int, **more: Any) -> dict[str, Any]:
    """What a search for a planted defect writes."""
    row = {"name": DEFECTS[0].name, "reached": 31, "seed": seed, "runs": 2000}
    return row | {"violation": "a loss\nthere" if seed else "", "commit": "abc"} | more


SIMULATED = {
    "seed": 1, "runs": 2, "compared": 3, "steps": 4, "virtual_s": 5.5, "seconds": 6.5,
    "faults": {"a fault": 3}, "ends": {"copied": 2}, "violations": [], "commit": "abc",
    "trees": "here", "reached": {},
}  # fmt: skip


def test_the_page_is_that_of_the_results() -> None:
    """Else `make report` was forgotten."""
    assert report.PAGE.read_text() == report.format_page(report.read_rows(report.RESULTS))


def test_the_picture_of_the_comparison_shows_the_median_too() -> None:
    """Where reo loses as well as where it wins: latency is shown by p50 and by p99."""
    assert {"p50_ms", "p99_ms"} <= {name for kind, name, _ in PANELS if kind == "latency"}


def test_new_results_replace_those_of_their_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of planted defects, of the same name; everything else stays as it is."""
    results, page, new = (tmp_path / name for name in ("results", "page", "new"))
    results.write_text(report.RESULTS.read_text())
    monkeypatch.setattr(report, "RESULTS", results)
    monkeypatch.setattr(report, "PAGE", page)
    before = report.read_rows(results)
    new.write_text("\n".join(json.dumps(make_defect_row(seed)) for seed in (0, 8)))
    monkeypatch.setattr(sys, "argv", ["report", "--planted", str(new), "--note", "at night"])
    report.main()
    after = report.read_rows(results)
    (row,) = (row for row in after if row.get("name") == DEFECTS[0].name)
    assert (row["seed"], row["violation"], row["note"]) == (8, "a loss", "at night")
    others = [row for row in before if row.get("name") != DEFECTS[0].name]
    assert sorted(map(str, after)) == sorted(map(str, [*others, row]))
    new.write_text(json.dumps(SIMULATED, indent=1))
    monkeypatch.setattr(sys, "argv", ["report", "--simulated", str(new)])
    report.main()
    assert [row["runs"] for row in report.read_rows(results) if row["kind"] == "simulated"] == [2]
    assert "**2 schedules, 0 failed** (seeds 1 to 2)" in page.read_text()
    assert "at night" in page.read_text()


def test_a_defect_that_was_not_found_has_its_reason_and_the_test_that_fails_with_it() -> None:
    """From the list of defects, as it is when the results are added."""
    defect = next(defect for defect in DEFECTS if defect.limit)
    rows = report.merge_rows([], "planted", [make_defect_row(0, name=defect.name)], "")
    page = "\n".join(report.format_planted(rows))
    assert "**0 of 1 found**. Commit abc." in page
    assert f"| {defect.name} | 2,000 | 31 | {defect.limit} | `{defect.test}` |" in page


def test_a_violation_has_no_path_of_a_machine() -> None:
    """Its first line, for a cell of a table."""
    traceback = 'worker 0:   File "/a/machine/of/mine/deduplicator/loop.py", line 1 | run\nmore'
    assert report.shorten(traceback) == 'worker 0:   File "deduplicator/loop.py", line 1 / run'


@pytest.mark.parametrize("defect", [defect for defect in DEFECTS if defect.limit])
def test_a_defect_that_is_hard_to_find_names_tests_that_are_there(defect: Defect) -> None:
    """What the simulator finds hardly or never is found by another test."""
    assert (ROOT / defect.test).is_file()
    assert defect.test.startswith("tests/")


def test_a_run_ends_as_expected_when_it_is_exact_or_stops_as_it_should() -> None:
    """The totals, the line of its kind of story, and the failed run."""
    runs = [
        make_run(hits={"half-open": 2, "records behind gaps": 90}, heal_s=4.0, records=2000),
        make_run("stopped as expected: SourceTruncated, exit code 20", hits={"half-open": 1}),
        make_run("FAILED: 1 missing\nlog", hits={"half-open": 1}, story="one that is gone"),
    ]
    rows = report.merge_rows([], "run", runs, "")
    page = "\n".join(report.format_runs(rows)).replace("\n", " ")
    assert "**3 runs, 2 ended as expected**: 1 exact, 1 stopped as they have to, 1 failed." in page
    assert "4 faults, 2,000 records compared. Commit abc." in page
    assert "| everything | 1 | 2 | 2 | 3 | 2,000 | 4 / 4 |" in page
    assert "| stories that are gone | 1 | 1 | 0 | 1 | 0 | – |" in page
    assert "- one that is gone, seed 1, abc: FAILED: 1 missing " in page


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


def test_readmes_table_has_what_was_measured() -> None:
    """Each of its figures is one that `make bench` measures of both, and docs/performance.md has
    it: reo's in one row, MirrorMaker 2's in the other.
    """
    measured = {row.name for row in SIDE_BY_SIDE} | set(THROUGHPUTS.values())
    assert figures.PRICE.keys() <= measured
    names, _, ours, theirs = (
        row.strip("| ").split(" | ") for row in figures.price_table().splitlines()[-4:]
    )
    assert names == [*figures.PRICE.values()]
    assert (ours[0], theirs[0]) == ("reo", "MirrorMaker 2")
    assert len(ours) == len(theirs) == len(names) + 1
    page = figures.PERFORMANCE_PAGE.read_text()
    at = names.index("brokers' CPU µs/record, 1 kB") + 1
    for who, row in (("reo", ours), ("MirrorMaker 2", theirs)):
        assert f"| throughput, 1 kB | both brokers, while {who} copies | {row[at]} |" in page


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
    failed = SIMULATED | {"seed": 3, "commit": "def"}
    failed |= {"violations": [[4, "nothing | is copied\nwhere", []]]}
    rows = report.merge_rows([], "simulated", [SIMULATED, failed], "")
    whole = "\n".join(report.format_simulated(rows))
    assert "**4 schedules, 1 failed** (seeds 1 to 4)" in whole
    assert "- seed 4: nothing / is copied\n" in whole
    assert "Commits abc, def." in whole.replace("\n", " ")
    with pytest.raises(ValueError, match="not of one service"):
        report.format_simulated([*rows, SIMULATED | {"trees": "there"}])
