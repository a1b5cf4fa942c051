"""The ports of the tests' servers: `random.choice` gave one server the same port for two listeners,
and so can two test processes at the same moment.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from demo import broker

PORTS = range(9_000, 9_040)


def test_a_port_is_given_away_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not twice by one process, and not by two that run at the same time."""
    monkeypatch.setattr(broker, "PORTS", PORTS)
    ours = [broker.free_port() for _ in range(15)]
    program = (
        f"from demo import broker; broker.PORTS = {PORTS!r}; print(*[broker.free_port() for _ in"
        " range(15)])"
    )
    theirs = [
        int(port)
        for port in subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
        ).stdout.split()
    ]
    assert len({*ours, *theirs}) == 30
