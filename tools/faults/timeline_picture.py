"""The picture of docs/faults.md: throughput and lag of one run over time, with its faults.

matplotlib is imported only where the picture is drawn: `make setup` does not install it.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tools.faults.campaign_tables import Row, wrap_paragraph

STORY = "one fault after the other"
GAP_S = 1.0
"""Samples that are further apart are not connected: a broker did not answer."""
SHADED_S = 1.0
"""The width of a fault whose duration is not known."""
NUMBERS_MAX = 50
"""How many numbers fit beside one another above the picture."""
LEGEND_COLUMNS, LEGEND_CHARACTERS = 2, 70
DURATION = re.compile(r"\bfor (\d+(?:\.\d+)?) s\b")
FAULT_COLOUR, SOURCE_COLOUR, DESTINATION_COLOUR, LAG_COLOUR = (
    "gold",
    "tab:blue",
    "tab:orange",
    "tab:red",
)
Samples = list[tuple[float, float, float]]
"""(seconds, records at the source, records at the destination)."""


class Fault(NamedTuple):
    """Faults of nearly the same time: one shaded area with one number."""

    start_s: float
    end_s: float
    names: list[str]

    @property
    def label(self) -> str:
        """For the legend."""
        counts = Counter(self.names)
        names = (f"{count} × {name}" if count > 1 else name for name, count in counts.items())
        return f"at {self.start_s:.0f} s: {', '.join(names)}"


def choose_run(rows: list[Row]) -> Row | None:
    """The exact run of `STORY` that was complete soonest after the end of the load."""
    candidates = [
        row
        for row in rows
        if row["story"] == STORY and row["verdict"] == "exact" and row.get("timeline")
    ]
    return min(candidates, key=lambda row: float(row["heal_s"]), default=None)


def break_at_gaps(samples: Samples) -> Samples:
    """The samples with a NaN in each gap, so that no line is drawn across it."""
    broken: Samples = []
    for seconds, source_records, destination_records in samples:
        if broken and seconds - broken[-1][0] > GAP_S:
            broken.append(((broken[-1][0] + seconds) / 2, math.nan, math.nan))
        broken.append((seconds, source_records, destination_records))
    return broken


def group_faults(marks: list[tuple[float, str]], run_s: float) -> list[Fault]:
    """The faults in the order of time. Those whose numbers would overlap have one number."""
    faults: list[Fault] = []
    for start_s, name in sorted(marks):
        duration = DURATION.search(name)
        end_s = start_s + (float(duration[1]) if duration else SHADED_S)
        if faults and start_s - faults[-1].start_s < run_s / NUMBERS_MAX:
            last = faults[-1]
            faults[-1] = Fault(last.start_s, max(last.end_s, end_s), [*last.names, name])
        else:
            faults.append(Fault(start_s, end_s, [name]))
    return faults


def compute_rates(samples: Samples, column: int) -> list[float]:
    """Records per second between each sample and the one before it; NaN at a gap."""
    return [
        (after[column] - before[column]) / (after[0] - before[0])
        for before, after in pairwise(samples)
    ]


def draw_picture(rows: list[Row], to: Path) -> str:
    """Draw the run and return the Markdown of the picture; without such a run, nothing."""
    row = choose_run(rows)
    if row is None:
        return ""
    from matplotlib.figure import Figure

    samples = break_at_gaps(row["timeline"])
    faults = group_faults(row["marks"], samples[-1][0])
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    axes = figure.subplots(2, 1, sharex=True)
    _draw_rates(axes[0], samples)
    _draw_lag(axes[1], samples)
    _shade_faults(axes, faults)
    for axis in axes:
        axis.set_ylim(bottom=0)
        axis.yaxis.set_major_formatter("{x:,.0f}")
        axis.grid(alpha=0.3)
    axes[1].set_xlim(0, samples[-1][0])
    axes[1].set_xlabel("seconds since the start of the run")
    figure.suptitle(f"{row['story']}, seed {row['seed']}: {row['verdict']}", fontweight="bold")
    axes[0].set_title(
        f"{row['records']:,} records, {len(row['marks'])} faults; the copy was complete"
        f" {row['heal_s']:.0f} s after the end of the load",
        fontsize=10,
        loc="left",
        pad=20,
    )
    _draw_legend(figure, faults)
    figure.savefig(to, dpi=110)
    legend = wrap_paragraph(
        f"*{row['story']}, seed {row['seed']}: {row['verdict']}. Records are those that a"
        " `read_committed` consumer has received. Each shaded area is a fault; where its"
        f" duration is not recorded it is {SHADED_S:.0f} s wide. A line is broken where a broker"
        " did not answer.*"
    )
    return f"![Throughput and lag of one run, with its faults]({to.name})\n\n{legend}\n"


def _draw_rates(axis: Any, samples: Samples) -> None:
    times_s = [sample[0] for sample in samples[1:]]
    for column, name, colour in (
        (1, "source", SOURCE_COLOUR),
        (2, "destination", DESTINATION_COLOUR),
    ):
        axis.plot(times_s, compute_rates(samples, column), color=colour, label=name, linewidth=1.2)
    axis.set_ylabel("records/s")
    axis.legend(loc="lower right", bbox_to_anchor=(1, 1.07), ncols=2, frameon=False)


def _draw_lag(axis: Any, samples: Samples) -> None:
    """The records that are visible at the source and not yet at the destination. The two are
    counted one after the other, so the difference can be a little below 0.
    """
    times_s, source_records, destination_records = zip(*samples, strict=True)
    lag_records = [
        source if math.isnan(source) else max(0, source - destination)
        for source, destination in zip(source_records, destination_records, strict=True)
    ]
    axis.plot(times_s, lag_records, color=LAG_COLOUR, linewidth=1.2)
    axis.fill_between(times_s, lag_records, color=LAG_COLOUR, alpha=0.25, linewidth=0)
    axis.set_ylabel("lag, records")


def _shade_faults(axes: Any, faults: list[Fault]) -> None:
    """Shade each fault in both diagrams, with its number above the upper one."""
    for number, fault in enumerate(faults, 1):
        for axis in axes:
            axis.axvspan(fault.start_s, fault.end_s, color=FAULT_COLOUR, alpha=0.45, linewidth=0)
        axes[0].text(
            (fault.start_s + fault.end_s) / 2,
            1.02,
            str(number),
            transform=axes[0].get_xaxis_transform(),
            ha="center",
            va="bottom",
            fontsize=9,
            fontweight="bold",
        )


def _draw_legend(figure: Any, faults: list[Fault]) -> None:
    """Below the diagrams, what each number is."""
    from matplotlib.lines import Line2D

    figure.legend(
        handles=[Line2D([], [], linestyle="none") for _ in faults],
        labels=[
            textwrap.fill(f"{number}  {fault.label}", LEGEND_CHARACTERS, subsequent_indent="    ")
            for number, fault in enumerate(faults, 1)
        ],
        loc="outside lower center",
        ncols=LEGEND_COLUMNS,
        handlelength=0,
        handletextpad=0,
        fontsize=9,
        title="Faults",
        title_fontproperties={"weight": "bold", "size": 9},
    )
