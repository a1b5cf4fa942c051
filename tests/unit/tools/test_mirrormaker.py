"""MirrorMaker 2 as the bench starts it, where it is not installed; with brokers:
`tests/broker/test_rival.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.bench.mirrormaker import MirrorMaker


def test_without_its_jars_it_says_what_to_run(tmp_path: Path) -> None:
    """A missing folder of jars is an error that names the command, not a JVM that finds no
    class.
    """
    with pytest.raises(FileNotFoundError, match="make rival"):
        MirrorMaker(tmp_path, "source:1", "destination:1", "t", jars=tmp_path / "none").start()
