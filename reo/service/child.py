"""A child process of the service: how it is started, and what becomes of its output.

It gets the settings as environment variables, the service's folder for its metrics, an empty folder
for temporary files, a process group, and a signal from the kernel when the supervisor dies.

The supervisor forwards its output to its own standard error, without the lines that every JVM
prints. With `log.format=json` plain text, as of a crashing library, becomes an event. When standard
error takes nothing (a full disk, a reader that has gone), lines are lost: a child must not wait for
its log, nor end with the exit code 120 that Python has for output that cannot be written.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import orjson

from common import clock
from common.logs import LineFormatter
from common.parent_death_signal import set_parent_death_signal
from common.settings import Settings, is_ours
from reo.service import sync_process
from reo.service.restarts import Restarts

log = logging.getLogger(__name__)
MODULES = {sync_process.STAGE: "reo.service.sync_process"}
"""What runs a child that is not a package of its own."""
PACKAGES = Path(__file__).parent.parent.parent
KEPT_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 2**20),
}
"""glibc keeps this much free memory (mallopt(3)). With its defaults, stage two gave memory back and
took it again for each fetch, and spent a fifth of its processor time on that (records of 1 kB).
"""
NOISE = (b"WARNING: Using incubator modules: jdk.incubator.vector", b"Picked up JAVA_TOOL_OPTIONS:")
"""The beginnings of lines that every start of a JVM prints; they are dropped."""


@dataclass(slots=True)
class Child:
    """One process of a stage, and its restarts."""

    stage: str
    worker: int
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    """Unix time; 0 before the first start."""
    restarts: Restarts = field(default_factory=Restarts)

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.stage}-{self.worker}"

    def start(self, settings: Settings, folder: Path) -> IO[bytes]:
        """Start the process; returns its output. OSError when it cannot be started.

        Its temporary folder is a new one: a JVM that was killed has left its native libraries
        there. And both folders are made, in case something has cleaned the host's temporary files.
        """
        self.started = clock.time()
        metrics, temporary = folder / "metrics", folder / self.name
        shutil.rmtree(temporary, ignore_errors=True)
        for needed in (metrics, temporary):
            needed.mkdir(parents=True, exist_ok=True)
        inherited = {name: value for name, value in os.environ.items() if not is_ours(name)}
        paths = filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH")])
        own = {
            "PROMETHEUS_MULTIPROC_DIR": str(metrics),
            "TMPDIR": str(temporary),
            "PYTHONPATH": os.pathsep.join(paths),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", MODULES.get(self.stage, self.stage), str(self.worker)],
            env=KEPT_MEMORY | inherited | settings.build_environment() | own,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=set_parent_death_signal,
        )
        log.info("%s started, process %d", self.name, self.process.pid)
        assert self.process.stdout
        return self.process.stdout

    def end(self) -> None:
        """After the process has ended: SIGKILL what it has left running. A JVM that is starting
        when its stage is killed does not end by itself.
        """
        assert self.process
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process = None


def convert_line(line: bytes, stage: str, as_json: bool) -> bytes | None:
    """The line to write; None for NOISE. As JSON: an event as it is, any other line as the message
    of a new event, and None for an empty line.
    """
    if line.startswith(NOISE):
        return None
    if not as_json:
        return line.rstrip(b"\n")
    text = line.strip()
    with contextlib.suppress(orjson.JSONDecodeError):
        if not text or isinstance(orjson.loads(text), dict):
            return text or None
    message = text.decode(errors="replace")
    record = logging.LogRecord(__name__, logging.WARNING, "", 0, message, None, None)
    return LineFormatter(stage, as_json=True).format(record).encode()


def forward_output(output: IO[bytes], stage: str, as_json: bool) -> threading.Thread:
    """Forward a child's output to standard error until it ends. The supervisor joins the thread
    when the child has ended, so no line is lost.
    """

    def forward() -> None:
        with output:
            for line in output:
                converted = convert_line(line, stage, as_json)
                if converted is not None:
                    with contextlib.suppress(OSError):
                        sys.stderr.buffer.write(converted + b"\n")
                        sys.stderr.buffer.flush()

    thread = threading.Thread(target=forward, daemon=True, name=f"events of {stage}")
    thread.start()
    return thread
