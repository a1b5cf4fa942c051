"""A child process of the service: the folders that it gets, and what becomes of its output when the
log takes nothing.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from common.settings import load
from reo.service.child import Child, forward_output
from tests.unit.common.settings.test_settings import GOOD

STAGE = """
import os, tempfile
from pathlib import Path
print(os.listdir(tempfile.gettempdir()), os.path.isdir(os.environ["PROMETHEUS_MULTIPROC_DIR"]))
(Path(tempfile.gettempdir()) / "left").touch()
"""


def test_each_start_gets_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process before it has left is deleted: a JVM that is killed leaves its libraries.
    Also when something has deleted the service's folder, as cleaners of /tmp do.
    """
    (tmp_path / "some_stage.py").write_text(STAGE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child, folder = Child("some_stage", 0), tmp_path / "service"
    for is_cleaned in (False, False, True):
        if is_cleaned:
            shutil.rmtree(folder)
        with child.start(load(GOOD), folder) as output:
            assert output.read() == b"[] True\n"
        assert child.process
        assert child.process.wait() == 0
        assert (folder / "some_stage-0" / "left").exists()


def test_nothing_that_a_killed_process_has_started_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a JVM that is starting when its stage is killed, and then waits for ever. What it has
    started holds the output open: the output ends when that has ended too.
    """
    (tmp_path / "some_stage.py").write_text(
        "import subprocess, os\n"
        "subprocess.Popen(['sleep', '100'])\n"
        "print('started', flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    child = Child("some_stage", 0)
    with child.start(load(GOOD), tmp_path / "service") as output:
        assert output.readline() == b"started\n"
        assert child.process
        assert child.process.wait() == -signal.SIGKILL
        assert not select.select([output], [], [], 0)[0]
        child.end()
        assert select.select([output], [], [], 50)[0], "it still runs"
        assert output.read() == b""
    assert child.process is None


class FullDisk:
    """A log that takes nothing until there is space again."""

    def __init__(self) -> None:
        self.is_full = True
        self.has_refused = threading.Event()
        self.written: list[bytes] = []

    def write(self, line: bytes) -> None:
        """As a file's."""
        if self.is_full:
            self.has_refused.set()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.written.append(line)

    def flush(self) -> None:
        """Nothing is kept back."""


def test_output_is_read_although_the_log_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child does not wait for it, nor end by it; later lines are written, when they can be."""
    disk = FullDisk()
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(buffer=disk))
    reading, writing = os.pipe()
    thread = forward_output(os.fdopen(reading, "rb"), "stage", as_json=False)
    with os.fdopen(writing, "wb") as child:
        child.write(b"lost\n")
        child.flush()
        assert disk.has_refused.wait(10)
        disk.is_full = False
        child.write(b"kept\n")
    thread.join(10)
    assert disk.written == [b"kept\n"]
