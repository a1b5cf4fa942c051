"""The service: both stages, or one of them, as child processes that are started again when they die.

It holds no state and takes no part in the copy, so it may die too: the kernel kills its children then. A child's exit code says
all: 0 is done, a code of `common.errors.Stop` ends the service with the same code, everything else is a restart after a backoff.
A child that lives but gives no sign of life is killed, which makes it the same case.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.multiprocess import mark_process_dead

from common import machine
from common.children import die_with_parent
from common.errors import ClusterUnreachable, stop_codes
from common.process import Stopping
from common.settings import Settings, is_ours
from reo import events, health, startup
from reo.drain import AtEnd

log = logging.getLogger(__name__)
TICK_S = 0.05
BACKOFF_FIRST_S = 0.2
BACKOFF_MOST_S = 30.0
HEALTHY_S = 60.0
STOP_S = 8.0
LAST_WORDS_S = 1.0
WATCHDOG_EVERY_S = 5.0
MENDED_BY_WAITING = ClusterUnreachable.exit_code
"""At the start of the service a silent cluster is a wrong address; later it is an outage."""
PACKAGES = Path(__file__).parent.parent


def ends_service(code: int, stop_at_end: bool) -> bool:
    """Whether the service ends with this exit code of a child; otherwise the child is started again."""
    return (code == 0 and stop_at_end) or (code in stop_codes() and code != MENDED_BY_WAITING)


@dataclass(slots=True)
class Child:
    """One process of a stage, and how often it has died lately."""

    stage: str
    worker: int
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    start_at: float = 0.0
    backoff_s: float = BACKOFF_FIRST_S
    starts: int = 0

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.stage}-{self.worker}"


@dataclass
class Supervisor:
    """Runs the children in a temporary folder that goes with it; `ended` is the exit code once it is known."""

    settings: Settings
    stages: Sequence[str]
    stopping: Stopping
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="reo-")))
    children: list[Child] = field(default_factory=list)
    told: list[threading.Thread] = field(default_factory=list)
    """What children say (`reo.events`)."""
    ended: int | None = None

    def run(self) -> int:
        """Until told to stop, or an end that a restart does not mend; returns the exit code."""
        try:
            places = startup.prepare_clusters(self.settings, self.stages, self.stopping)
            if places is None:
                return 0
            at_end = AtEnd(self.settings, places) if self.settings.stop_at_end and "replicator" not in self.stages else None
            (self.folder / "metrics").mkdir()
            self.children = [Child(stage, worker) for stage in self.stages for worker in range(self._workers(stage))]  # none of them is ready
            port = health.serve(self.settings.text("metrics.address"), self.settings.number("metrics.port"), str(self.folder / "metrics"), self.processes)
            log.info("metrics, health and readiness on port %d", port, extra={"facts": {"port": port}})
            watchdog_at = machine.monotonic() + WATCHDOG_EVERY_S
            while self.ended is None and not self.stopping():
                for child in self.children:
                    self._tend(child)
                if machine.monotonic() >= watchdog_at:
                    watchdog_at = machine.monotonic() + WATCHDOG_EVERY_S
                    self._watchdog()
                if at_end and at_end.reached():
                    self.ended = 0
                machine.sleep(TICK_S)
            return self.ended or 0
        finally:
            self._stop_all()
            shutil.rmtree(self.folder, ignore_errors=True)

    def processes(self) -> Iterable[tuple[str, str, float]]:
        """The processes that should live, for `reo.health`."""
        return [(child.stage, str(child.worker), child.started) for child in self.children]

    def _workers(self, stage: str) -> int:
        return self.settings.number("deduplicator.workers") if stage == "deduplicator" else 1

    def _tend(self, child: Child) -> None:
        """Start it when it is due; look at how it ended when it did."""
        if child.process is None:
            if machine.monotonic() >= child.start_at:
                self._start(child)
            return
        code = child.process.poll()
        if code is None:
            if child.backoff_s > BACKOFF_FIRST_S and machine.time() - child.started > HEALTHY_S:
                child.backoff_s = BACKOFF_FIRST_S
            return
        mark_process_dead(child.process.pid, str(self.folder / "metrics"))
        child.process = None
        if ends_service(code, self.settings.stop_at_end):
            if code:
                log.error("%s ended with exit code %d, which a restart does not mend: the service ends", child.name, code)
            else:
                log.info("%s has copied all there was", child.name)
            self.ended = code
        else:
            log.warning("%s ended (%s); it is started again in %.1f s", child.name,
                        signal.Signals(-code).name if code < 0 else f"exit code {code}", child.backoff_s)
            health.RESTARTS.labels(child.stage).inc()
            child.start_at = machine.monotonic() + child.backoff_s
            child.backoff_s = min(BACKOFF_MOST_S, child.backoff_s * 2)

    def _start(self, child: Child) -> None:
        inherited = {name: value for name, value in os.environ.items() if not is_ours(name)}
        environment = inherited | self.settings.as_environment() | {
            "PROMETHEUS_MULTIPROC_DIR": str(self.folder / "metrics"), "TMPDIR": str(self.folder),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH")])),
        }
        as_json = self.settings.text("log.format") == "json"
        child.process = subprocess.Popen([sys.executable, "-m", child.stage, str(child.worker)], env=environment, stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE if as_json else None, stderr=subprocess.STDOUT if as_json else None, preexec_fn=die_with_parent)
        if child.process.stdout:
            self.told.append(events.follow(child.process.stdout, child.stage))
        child.started = machine.time()
        child.starts += 1
        log.info("%s started, process %d", child.name, child.process.pid)

    def _watchdog(self) -> None:
        """Kill what hangs: a call into a client can, and only a new process mends it."""
        metrics = health.registry(str(self.folder / "metrics"))
        for child in self.children:
            if child.process and health.health(metrics, [(child.stage, str(child.worker), child.started)]).silent:
                log.error("%s gave no sign of life for %.0f s; it is killed and started again", child.name, health.SILENT_S)
                child.process.kill()

    def _stop_all(self) -> None:
        """SIGTERM to all, and SIGKILL to those that need longer than STOP_S."""
        living = [(child, child.process) for child in self.children if child.process is not None]
        for _, process in living:
            process.terminate()
        deadline = machine.monotonic() + STOP_S
        for child, process in living:
            try:
                process.wait(max(0.0, deadline - machine.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("%s did not stop in %.0f s and is killed; what it had open is aborted by its successor", child.name, STOP_S)
                process.kill()
                process.wait()
        for thread in self.told:
            thread.join(LAST_WORDS_S)
