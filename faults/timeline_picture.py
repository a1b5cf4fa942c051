"""The picture of docs/faults.md: the rate and the lag of one run over time, with its faults."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

from faults.campaign_tables import Row

LABELS_APART_S = 2.0


def merge_labels(marks: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """What happened at nearly the same time has one label."""
    labels: list[tuple[float, str]] = []
    for moment, what in marks:
        if labels and moment - labels[-1][0] < LABELS_APART_S:
            labels[-1] = (labels[-1][0], f"{labels[-1][1]}, {what}")
        else:
            labels.append((moment, what))
    return labels


def draw_picture(rows: list[Row], to: Path) -> str:
    """Rate and lag of one run over time, with what was done to it."""
    timeline_rows = [row for row in rows if row.get("timeline")]
    if not timeline_rows:
        return ""
    row = max(timeline_rows, key=lambda candidate: len(candidate["timeline"]))
    times, source, copy = zip(*row["timeline"], strict=True)
    figure, (rate, lag) = plt.subplots(2, 1, sharex=True, figsize=(11, 6), layout="constrained")
    for offsets, name in ((source, "source"), (copy, "destination")):
        speeds = [
            (after - before) / (later - earlier)
            for before, after, earlier, later in zip(
                offsets, offsets[1:], times, times[1:], strict=False
            )
        ]
        rate.plot(times[1:], speeds, label=name, linewidth=1)
    rate.set_ylabel("offsets/s")
    rate.legend(loc="upper right")
    offset_lags = [
        max(0, source_offset - destination_offset)
        for source_offset, destination_offset in zip(source, copy, strict=True)
    ]
    lag.plot(times, offset_lags, color="tab:red", linewidth=1)
    lag.set_ylabel("offsets behind")
    lag.set_xlabel("seconds")
    for moment, what in merge_labels(row["marks"]):
        rate.axvline(moment, color="grey", linewidth=0.7)
        lag.axvline(moment, color="grey", linewidth=0.7)
        rate.annotate(
            what,
            (moment, 1),
            xycoords=("data", "axes fraction"),
            rotation=75,
            fontsize=7,
            va="bottom",
            annotation_clip=False,
        )
    figure.suptitle(" ")
    figure.savefig(to, dpi=110)
    legend = (
        f"*{row['story']}, seed {row['seed']}: {row['verdict']}. Grey lines are faults. Markers of"
        " transactions are offsets too.*"
    )
    return f"![One run over time]({to.name})\n\n{legend}\n"
