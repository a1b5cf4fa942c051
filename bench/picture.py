"""The picture of docs/performance.md: rates and latencies side by side.

matplotlib is imported only where the picture is drawn: `make setup` does not install it.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from bench.results import OURS, THEIRS, Results


def draw_picture(results: Results, to: Path) -> str:
    """Rates and latencies side by side, every round a dot."""
    from matplotlib.figure import Figure

    kinds, rates = results.sections("throughput"), results.sections("latency")
    figure = Figure(figsize=(11, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, sections, figure_name, label in (
        (axes[0], kinds, "records_per_s", "records/s"),
        (axes[1], rates, "p99_ms", "p99, ms"),
    ):
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
    return f"![Rates and latencies]({to.name})\n\n*Bars are medians, dots are rounds.*\n"
