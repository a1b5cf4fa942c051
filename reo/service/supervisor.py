"""The service: runs both stages, or one of them, as child processes, and restarts them when they
die. Beside stage two also `reo.service.sync_process`, where something is to be kept alike.

When it dies, the kernel kills its children. A child's exit code decides: a code of
`common.errors.Stop` ends the service with the same code, every other code means a restart of this
child after a backoff. A child that sends no heartbeats is killed and then restarted. With
`--stop-at-end`, stage one leaves a file when everything is copied: a 0 alone can also be a SIGTERM
that only it has received.
"""

from __future__ import annotations

import logging
import math
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import mark_process_dead

from common import clock
from common.errors import StageFailed, find_exit_code_name
from common.liveness import SILENT_S
from common.settings import Settings
from common.stage_process import Stopping, take_error
from common.stop_at_end import EndOfCopy, StageTwoAlone
from reo import check
from reo.service import health, progress_log, service_status, startup, sync_process
from reo.service.child import Child, forward_output
from reo.service.progress_log import ProgressLog
from reo.service.restarts import WATCHDOG_INTERVAL_S
from reo.service.waiting_log import WaitingLog

log = logging.getLogger(__name__)
TICK_S = 0.05
STOP_S = 8.0
OUTPUT_TIMEOUT_S = 1.0
STOPPED_EXIT_CODE = 128 + signal.SIGTERM
"""With `--stop-at-end`, when SIGTERM or SIGINT comes before the end: what a shell makes of a
process that the signal has ended. So nobody takes a part for the whole.
"""


def create_folder() -> Path:
    """A temporary one; StageFailed when there can be none, which ends with the full disk."""
    try:
        return Path(tempfile.mkdtemp(prefix="reo-"))
    except OSError as failed:
        raise StageFailed(
            f"TMPDIR (by default /tmp): no temporary folder can be made there ({failed.strerror})",
            "Free space, or name one in TMPDIR that the service can write: a container with a"
            " read-only root needs a volume, as `docker run --read-only --tmpfs /tmp:exec` makes",
        ) from None


@dataclass
class Supervisor:
    """Runs the children in a temporary folder, which it deletes at the end; `exit_code` is None
    until it is known.
    """

    settings: Settings
    stages: Sequence[str]
    stopping: Stopping
    folder: Path = field(default_factory=create_folder)
    children: list[Child] = field(default_factory=list)
    output_threads: list[threading.Thread] = field(default_factory=list)
    """They forward the children's output."""
    exit_code: int | None = None
    end_of_copy: EndOfCopy = field(init=False)
    progress: ProgressLog = field(init=False)
    waiting: WaitingLog = field(default_factory=WaitingLog)
    last_error: dict[str, Any] | None = None
    """Of the last child that ended by an error, for /status."""
    end_reason: str = ""
    """The error of the child that has ended the service, as it has said it."""

    def run(self) -> int:
        """Run until told to stop, or until a child ends with a code that a restart cannot repair;
        returns the exit code.
        """
        progress_log.log_start(self.settings)
        try:
            check.raise_first_error(check.Start(self.settings, self.stages), "before clusters")
            # its port is taken before anything is created on the clusters
            server = health.open_server(
                self.settings.metrics.address,
                self.settings.metrics.port,
                str(self.folder / "metrics"),
                self.list_processes,
                self.describe,
                any_port=self.settings.stop_at_end,
            )
            self.children = self._list_children()  # none of them is ready

            def is_stopping() -> bool:
                """Asked again and again while the clusters are waited for."""
                health.serve_next(server)
                return self.stopping()

            copied = startup.prepare_clusters(self.settings, self.stages, is_stopping)
            if copied is None:
                return self._end_by_signal()
            health.serve(server)
            port = {"port": server.server_port}
            log.info("metrics, health and readiness on port %(port)d", port)
            metrics = str(self.folder / "metrics")
            registry = health.build_registry(metrics)
            liveness = health.build_liveness_registry(metrics)
            is_alone = self.settings.stop_at_end and "replicator" not in self.stages
            self.end_of_copy = EndOfCopy(
                lambda: not copied or self._is_stage_two_ready(liveness),
                StageTwoAlone(self.settings, copied) if is_alone else None,
            )

            def get_status() -> dict[str, Any]:
                now = health.assess_health(liveness, self.list_processes())
                return self.describe(registry, now)

            self.progress = ProgressLog(self.settings, self.stages, registry, get_status)
            self._run_until_end(liveness)
        finally:
            self._stop_all()
            if self.settings.stop_at_end and self.exit_code == 0:
                self.progress.log_end()
            shutil.rmtree(self.folder, ignore_errors=True)
        if self.exit_code is None:
            self.exit_code = self._end_by_signal()
        if not self.exit_code:
            log.info("the service has stopped")
        elif self.end_reason:
            # the last line again: below the error, the other processes have said that they end
            facts = {"error": find_exit_code_name(self.exit_code), "exit_code": self.exit_code}
            log.error("%s", self.end_reason, extra={"facts": facts})
        return self.exit_code

    def _list_children(self) -> list[Child]:
        workers = {"replicator": 1, "deduplicator": self.settings.deduplicator.workers}
        children = [
            Child(stage, worker) for stage in self.stages for worker in range(workers[stage])
        ]
        if "deduplicator" in self.stages and sync_process.list_rounds(self.settings):
            children.append(Child(sync_process.STAGE, 0))
        return children

    def _run_until_end(self, liveness: CollectorRegistry) -> None:
        watchdog_at = clock.monotonic() + WATCHDOG_INTERVAL_S
        while self.exit_code is None and not self.stopping():
            for child in self.children:
                self._update_child(child)
            if clock.monotonic() >= watchdog_at:
                watchdog_at = clock.monotonic() + WATCHDOG_INTERVAL_S
                self._kill_hanging(liveness)
                self.waiting.update(health.assess_health(liveness, self.list_processes()).waits)
            if self.settings.stop_at_end:
                self._check_end()
            self.progress.update()
            clock.sleep(TICK_S)

    def _end_by_signal(self) -> int:
        """The exit code after SIGTERM or SIGINT."""
        if not self.settings.stop_at_end:
            return 0
        log.warning("the service was asked to stop before everything was copied")
        return STOPPED_EXIT_CODE

    def _check_end(self) -> None:
        """End with 0 when everything is copied."""
        verdict = self.end_of_copy.check()
        if verdict == "complete":
            self.exit_code = 0
        for child in self.children:
            if verdict == "ask again" and child.stage == "replicator":
                child.restarts.start_at = clock.monotonic()

    def list_processes(self) -> Iterable[tuple[str, str, float]]:
        """The processes of the stages that should run, for `reo.service.health`."""
        return [
            (child.stage, str(child.worker), child.started)
            for child in self.children
            if child.stage in self.stages
        ]

    def describe(self, registry: CollectorRegistry, now: health.Health) -> dict[str, Any]:
        """What /status says."""
        return service_status.build_status(
            self.settings, self.stages, registry, now, self.last_error
        )

    def _is_stage_two_ready(self, liveness: CollectorRegistry) -> bool:
        """Whether every worker of stage two is ready: then it has compared its frontiers with the
        destination, which may have lost what they say. True without stage two.
        """
        workers = [process for process in self.list_processes() if process[0] == "deduplicator"]
        return not health.assess_health(liveness, workers).not_ready

    def _update_child(self, child: Child) -> None:
        """Start a child when its backoff is over; when it has ended, decide by its exit code."""
        if child.process is None:
            if clock.monotonic() >= child.restarts.start_at:
                self._start_child(child)
            return
        code = child.process.poll()
        if code is None:
            child.restarts.on_running(child.started)
            return
        mark_process_dead(child.process.pid, str(self.folder / "metrics"))
        reason = take_error(self.folder, child.process.pid)
        child.end()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        if code:
            ended = datetime.fromtimestamp(clock.time(), UTC).isoformat(timespec="seconds")
            self.last_error = {
                "error": find_exit_code_name(code),
                "exit_code": code,
                "message": f"{child.name} ended at {ended} ({how}): {reason or 'its log says why'}",
            }
        if child.stage in self.stages and child.restarts.is_end_of_service(code):
            text = "%s ended with exit code %d, which a restart cannot repair: the service ends"
            log.warning(text, child.name, code)
            self.exit_code, self.end_reason = code, reason
        elif child.stage == "replicator" and self.end_of_copy.has_stage_one_copied(self.folder):
            log.info("%s has copied all records that existed at the start", child.name)
            child.restarts.start_at = math.inf
        else:
            waits_s = child.restarts.start_later()
            log.warning("%s ended (%s); it restarts in %.1f s", child.name, how, waits_s)
            health.RESTARTS.labels(child.stage).inc()

    def _start_child(self, child: Child) -> None:
        """One that the system does not start now, for want of space, memory, processes or threads,
        is tried again as if it had ended.
        """
        try:
            output = child.start(self.settings, self.folder)
            as_json = self.settings.log.format == "json"
            self.output_threads.append(forward_output(output, child.stage, as_json))
        except (OSError, RuntimeError) as failed:
            if child.process:
                child.end()
            text = "%s cannot be started (%s); it is tried again in %.1f s"
            log.error(text, child.name, failed, child.restarts.start_later())

    def _kill_hanging(self, liveness: CollectorRegistry) -> None:
        """Kill each child that hangs: a call of a client can hang, and only a new process repairs
        that.
        """
        for child in self.children:
            process = (child.stage, str(child.worker), child.started)
            if child.process and health.assess_health(liveness, [process]).silent:
                text = "%s gave no sign of life for %.0f s; it is killed and restarted"
                log.error(text, child.name, SILENT_S)
                child.process.kill()

    def _stop_all(self) -> None:
        """Send SIGTERM to all children, and SIGKILL to those that need longer than STOP_S."""
        running = [(child, child.process) for child in self.children if child.process is not None]
        for _, process in running:
            process.terminate()
        deadline = clock.monotonic() + STOP_S
        for child, process in running:
            try:
                process.wait(max(0.0, deadline - clock.monotonic()))
            except subprocess.TimeoutExpired:
                log.warning("%s did not stop in %.0f s and is killed", child.name, STOP_S)
                process.kill()
                process.wait()
            child.end()
        for thread in self.output_threads:
            thread.join(OUTPUT_TIMEOUT_S)
