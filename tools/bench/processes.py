"""What the kernel says of a process: processor time and resident memory (proc(5))."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    """Seconds of processor time since the start, and resident memory now."""

    cpu_s: float
    rss_mb: float


def usage_of(processes: Iterable[int]) -> Usage:
    """The sum over processes that live."""
    cpu_s = rss_mb = 0.0
    for process in processes:
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        cpu_s += (int(fields[11]) + int(fields[12])) / TICKS_PER_S
        rss_mb += int(fields[21]) * PAGE_BYTES / 1e6
    return Usage(cpu_s, rss_mb)
