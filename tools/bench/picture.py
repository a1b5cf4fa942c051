"""The picture of docs/performance.md: rates, processor time and latencies side by side.

matplotlib is imported only where the picture is drawn: `make setup` does not install it.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from tools.bench.results import OURS, THEIRS, Results

PANELS = (
    ("throughput", "records_per_s", "records/s"),
    ("throughput", "cpu_us_all", "processor time per record, µs"),
    ("latency", "p50_ms", "latency p50, ms"),
    ("latency", "p99_ms", "latency p99, ms"),
)
"""The sections, the figure, and what the axis is called."""


def draw_picture(results: Results, to: Path) -> str:
    """Rates, processor time and latencies side by side, every round a dot."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 8), layout="constrained")
    for axis, (kind, figure_name, label) in zip(figure.subplots(2, 2).flat, PANELS, strict=True):
        sections = results.sections(kind)
        for position, (who, colour) in enumerate(((OURS, "tab:blue"), (THEIRS, "tab:orange"))):
            for number, section in enumerate(sections):
                values = [row[figure_name] for row in results.by_section[section, who]]
                if values:
                    axis.bar(
                        number + 0.4 * position,
                        median(values),
                        0.38,
                        color=colour,
                        label=who if number == 0 else None,
                    )
                    axis.plot([number + 0.4 * position] * len(values), values, "k.", markersize=4)
        axis.set_xticks(
            [number + 0.2 for number in range(len(sections))],
            [section.split(", ", 1)[-1].removeprefix("latency at ") for section in sections],
        )
        axis.set_ylabel(label)
        axis.legend()
    figure.savefig(to, dpi=110)
    picture = f"![Rates, processor time per record and latencies]({to.name})"
    return f"{picture}\n\n*Bars are medians, dots are rounds.*\n"
