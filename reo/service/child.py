"""A child process of the service: how it is started, and when it is started again.

It gets the settings as environment variables, the service's folder for its metrics, an empty folder
for temporary files, and a signal from the kernel when the supervisor dies. What it prints goes
where the supervisor's own output goes, by the supervisor (`reo.service.child_output`).
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from common import clock
from common.parent_death_signal import set_parent_death_signal
from common.settings import Settings, is_ours
from reo.migration import offsets_sync
from reo.service.restarts import Restarts

log = logging.getLogger(__name__)
MODULES = {offsets_sync.STAGE: "reo.migration.offsets_sync"}
"""What runs a child that is not a package of its own."""
PACKAGES = Path(__file__).parent.parent.parent
KEPT_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": str(64 * 2**20),
}
"""glibc keeps this much free memory (mallopt(3)). With its defaults, stage two gave memory back and
took it again for each fetch, and spent a fifth of its processor time on that (records of 1 kB).
"""


@dataclass(slots=True)
class Child:
    """One process of a stage, and its restarts."""

    stage: str
    worker: int
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    """Unix time; 0 before the first start."""
    restarts: Restarts = field(default_factory=Restarts)
    starts: int = 0

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.stage}-{self.worker}"

    def start(self, settings: Settings, folder: Path) -> IO[bytes]:
        """Start the process; returns its output.

        Its temporary folder is a new one: a JVM that was killed has left its native libraries
        there. And both folders are made, in case something has cleaned the host's temporary files.
        """
        metrics, temporary = folder / "metrics", folder / self.name
        shutil.rmtree(temporary, ignore_errors=True)
        for needed in (metrics, temporary):
            needed.mkdir(parents=True, exist_ok=True)
        inherited = {name: value for name, value in os.environ.items() if not is_ours(name)}
        paths = filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH")])
        self.process = subprocess.Popen(
            [sys.executable, "-m", MODULES.get(self.stage, self.stage), str(self.worker)],
            env=KEPT_MEMORY
            | inherited
            | settings.build_environment()
            | {
                "PROMETHEUS_MULTIPROC_DIR": str(metrics),
                "TMPDIR": str(temporary),
                "PYTHONPATH": os.pathsep.join(paths),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=set_parent_death_signal,
        )
        self.started = clock.time()
        self.starts += 1
        log.info("%s started, process %d", self.name, self.process.pid)
        assert self.process.stdout
        return self.process.stdout
