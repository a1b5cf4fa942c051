"""`reo run` as a process of the demo: started, looked into by its metrics, and its stages killed by
process id.

Also what tests and fault runs use, so that a kill is always the real thing: SIGKILL to a process
that was alive.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from common.parent_death_signal import list_children
from tools.demo.broker import free_port
from tools.demo.process import kill, start_process

PACKAGES = Path(__file__).parents[2]


@dataclass
class Service:
    """One `reo run` with these settings; its log goes to a file."""

    settings: dict[str, str]
    log: Path
    arguments: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> Service:
        """Start the supervisor in a session of its own, so that the whole service can be killed at
        once.
        """
        others = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("REO_", "KAFKA_"))  # of the user's own copy
        }
        environment = (
            others
            | self.settings
            | {
                "REO_METRICS_PORT": str(self.port),
                "PYTHONPATH": str(PACKAGES),
            }
        )
        self.process = start_process(
            [sys.executable, "-m", "reo", "run", *self.arguments],
            self.log,
            env=environment,
            cwd=PACKAGES,
        )
        return self

    @property
    def code(self) -> int | None:
        """The exit code, None while it runs."""
        return self.process.poll() if self.process else None

    def stop(self, timeout_s: float = 15) -> int:
        """SIGTERM, and the exit code; SIGKILL to the session when it does not end in time."""
        if self.process is None:
            return 0
        self.process.terminate()
        try:
            return self.process.wait(timeout_s)
        finally:
            self.kill_all()

    def kill_all(self) -> None:
        """SIGKILL to every process of the service."""
        if self.process is None:
            return
        for victim in self.list_stages():
            kill(victim)
        self.process.kill()
        self.process.wait()

    def replace(self) -> Service:
        """SIGSTOP to every process, as on a machine that hangs, and another service in their place;
        returns the one that stands still.
        """
        assert self.process
        for process_id in (self.process.pid, *self.list_stages()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGSTOP)
        frozen = dataclasses.replace(self)
        self.port = free_port()
        self.start()
        return frozen

    def list_stages(self) -> list[int]:
        """The process ids of both stages."""
        return [
            process_id
            for name in ("replicator", "java", "deduplicator")
            for process_id in self.processes(name)
        ]

    def processes(self, name: str) -> list[int]:
        """Process ids of `replicator`, `deduplicator`, or stage one's `java`."""
        if self.process is None:
            return []
        found, waiting = [], [self.process.pid]
        while waiting:
            parent = waiting.pop()
            children = list_children(parent)
            waiting += children
            found += [child for child in children if name in _command(child)]
        return found

    def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Every sample by name and labels; empty while the port does not answer."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}/metrics", timeout=5
            ) as answer:
                text = answer.read().decode()
        except OSError:
            return {}
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def total(self, name: str, **labels: str) -> float:
        """The sum of a metric over all label sets that have these labels."""
        return sum(
            value
            for (metric, found), value in self.metrics().items()
            if metric == name and labels.items() <= dict(found).items()
        )

    def frontiers(self) -> dict[int, int]:
        """The committed source offset of each partition, as the service reports it."""
        return {
            int(dict(labels)["partition"]): int(value)
            for (metric, labels), value in self.metrics().items()
            if metric == "reo_frontier_offset"
        }


def _command(process_id: int) -> list[str]:
    try:
        words = Path(f"/proc/{process_id}/cmdline").read_text().split("\0")
    except OSError:
        return []
    return [Path(words[0]).name, *words[1:3]]
