"""The ports of the tests' servers: `random.choice` gave one server the same port for two listeners,
and so can two test processes at the same moment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from tools.demo import broker

PORTS = range(9_000, 9_040)


def test_a_port_is_given_away_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not twice by one process, and not by two that run at the same time. With a lock file of its
    own: another run of this test, at the same time, must not take these few ports away.
    """
    monkeypatch.setattr(broker, "PORTS", PORTS)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(broker, "_lock_file", cache(broker._lock_file.__wrapped__))
    ours = [broker.free_port() for _ in range(15)]
    program = (
        f"from tools.demo import broker; broker.PORTS = {PORTS!r};"
        " print(*[broker.free_port() for _ in range(15)])"
    )
    theirs = [
        int(port)
        for port in subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.split()
    ]
    assert len({*ours, *theirs}) == 30
