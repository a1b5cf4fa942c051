"""What the kernel says of a process: processor time, resident memory, threads and file descriptors
(proc(5)).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Usage(NamedTuple):
    """Seconds of processor time since the start, and what is used now."""

    cpu_s: float
    rss_mb: float
    threads: int
    descriptors: int


def usage_of(processes: Iterable[int]) -> Usage:
    """The sum over processes that live."""
    cpu_s = rss_mb = 0.0
    threads = descriptors = 0
    for process in processes:
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
            descriptors += len(list(Path(f"/proc/{process}/fd").iterdir()))
        except OSError:
            continue
        cpu_s += (int(fields[11]) + int(fields[12])) / TICKS_PER_S
        rss_mb += int(fields[21]) * PAGE_BYTES / 1e6
        threads += int(fields[17])
    return Usage(cpu_s, rss_mb, threads, descriptors)
