"""The two replicators that are compared: reo, and MirrorMaker 2 with exactly-once; both have the
same four methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from tools.bench.mirrormaker import MirrorMaker
from tools.bench.processes import Usage, usage_of
from tools.bench.testbed import Testbed
from tools.demo.service import Service

RESTARTED = "; it restarts in "
"""What the supervisor says of a stage that has ended: such a copy is not measured."""


class Contender(ABC):
    """One copy of one topic, to a topic of the same name; it can be stopped and started again."""

    name: str

    @abstractmethod
    def start(self) -> None:
        """Start the processes."""

    @abstractmethod
    def stop(self) -> None:
        """End them, in order."""

    @abstractmethod
    def usage(self) -> dict[str, Usage]:
        """Processor time and memory by kind of process."""

    @abstractmethod
    def find_failure(self) -> str:
        """Why it has stopped copying; empty while it copies."""


class Reo(Contender):
    """reo with its default settings and `settings`; several topics are separated by commas, a
    pattern begins with ^.
    """

    name = "reo"

    def __init__(
        self, testbed: Testbed, topic: str, label: str, *stages: str, **settings: str
    ) -> None:
        there = {
            "REO_SOURCE_BOOTSTRAP_SERVERS": testbed.source.address,
            "REO_DESTINATION_BOOTSTRAP_SERVERS": testbed.destination.address,
            "REO_TOPICS" if set(topic) & set(",^") else "REO_SOURCE_TOPIC": topic,
            "REO_APPLICATION": f"reo-{label}",
        }
        self.service = Service(there | settings, testbed.folder / f"reo-{label}.log", stages)

    def start(self) -> None:
        """Start the service."""
        self.service.start()

    def stop(self) -> None:
        """SIGTERM."""
        self.service.stop(60)

    def usage(self) -> dict[str, Usage]:
        """By stage."""
        supervisor = [self.service.process.pid] if self.service.process else []
        kinds = {
            "stage one, JVM": self.service.processes("java"),
            "stage one, Python": self.service.processes("replicator"),
            "stage two": self.service.processes("deduplicator"),
            "supervisor": supervisor,
        }
        return {kind: usage_of(processes) for kind, processes in kinds.items()}

    def find_failure(self) -> str:
        """An exit code, or a stage that was restarted, and the end of the log."""
        log = self.service.log.read_text()
        if self.service.code is not None:
            return f"exit code {self.service.code}: {log[-2000:]}"
        return f"a stage was restarted: {log[-2000:]}" if RESTARTED in log else ""


class MirrorMakerContender(Contender):
    """MirrorMaker 2, see `bench.mirrormaker`."""

    name = "MirrorMaker 2"

    def __init__(self, testbed: Testbed, topic: str, label: str) -> None:
        self.process = MirrorMaker(
            testbed.folder / f"mm2-{label}",
            testbed.source.address,
            testbed.destination.address,
            topic,
            label,
        )

    def start(self) -> None:
        """Start the process."""
        self.process.start()

    def stop(self) -> None:
        """SIGTERM."""
        self.process.stop()

    def usage(self) -> dict[str, Usage]:
        """One process."""
        return {"MirrorMaker 2": usage_of(self.process.list_processes())}

    def find_failure(self) -> str:
        """An exit code, or tasks that have failed and are not restarted."""
        if self.process.exit_code is not None:
            return f"exit code {self.process.exit_code}: {self.process.read_log_tail()}"
        return "\n".join(self.process.task_failures)
