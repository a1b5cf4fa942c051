"""`reo setup` where the folder of the jars takes nothing more."""

from __future__ import annotations

import errno
import os
from types import ModuleType
from typing import Any

import pytest

from reo import cli
from replicator.spark import class_archive, connector_jars, java, sink_jar


@pytest.mark.usefixtures("empty_jars")
@pytest.mark.parametrize(
    ("module", "function"), [(sink_jar, "build"), (class_archive, "create_archive")]
)
@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "/jars/x"), "/jars/x: Read-only file sys"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "No space left on device"),
    ],
)
def test_a_folder_that_takes_nothing_is_one_error(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    module: ModuleType,
    function: str,
    failure: OSError,
    reason: str,
) -> None:
    """The jars are there, and the sink or the archive of classes is still to be made."""

    def fail(*_: Any) -> None:
        raise failure

    folder = connector_jars.get_jars_folder()
    (folder / sink_jar.compute_name()).unlink()
    monkeypatch.setattr(java, "find_version", lambda: "21.0.2")
    monkeypatch.setattr(connector_jars, "install_jars", lambda _: [])
    monkeypatch.setattr(sink_jar, "build", lambda _: None)
    monkeypatch.setattr(class_archive, "is_current", lambda: False)
    monkeypatch.setattr(module, function, fail)
    assert cli.main(["setup"]) == 2
    said = capsys.readouterr().err
    assert f"reo setup: what stage one needs cannot be put into {folder}: {reason}" in said
    assert "or set REO_JARS to another folder" in said
