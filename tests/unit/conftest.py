"""Fixtures for tests that need nothing but Python: no Java, no jars, no network."""

from __future__ import annotations

from pathlib import Path

import pytest

from replicator.spark import connector_jars, sink_jar


@pytest.fixture
def empty_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the names of stage one's jars, for what asks only whether they are there."""
    folder = tmp_path / "jars"
    folder.mkdir()
    for name in (*connector_jars.read_checksums(), sink_jar.compute_name()):
        (folder / name).touch()
    monkeypatch.setenv(connector_jars.VARIABLE, str(folder))
