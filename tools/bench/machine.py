"""Where and how `make bench` was run: the first row of its results."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
from typing import Any

from tools.bench.testbed import BROKER_HEAP_MB


def describe_machine(options: argparse.Namespace) -> dict[str, Any]:
    """The machine and the commit; the first row of the results."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    how = f"python -m tools.bench --rounds {options.rounds} --scale {options.scale}" + (
        f" --only '{options.only}'" if options.only else ""
    )
    return {
        "section": "machine",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "linux": platform.release(),
        "commit": commit,
        "how": how,
        "brokers": (
            f"two single-node Kafka 4.3.1, {BROKER_HEAP_MB} MB heap each, on the same machine"
        ),
        "scale": options.scale,
    }
