"""The file by which a test knows that a process has reached a failpoint (`common.failpoints`)."""

from __future__ import annotations

import re
from pathlib import Path

from tests.harness.kafka import until


def wait_for_failpoint(marker_file: Path, point: str, timeout_s: float = 90) -> int:
    """Wait for the line that a process writes when it reaches the failpoint (`common.failpoints`);
    return its process id.
    """
    pattern = re.compile(rf"{re.escape(point)}, process (\d+)\n")
    match = until(
        lambda: pattern.fullmatch(marker_file.read_text()) if marker_file.exists() else None,
        f"a process reaches {point!r}",
        timeout_s,
    )
    return int(match[1])
