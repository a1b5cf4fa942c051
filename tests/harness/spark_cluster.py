"""A real standalone cluster of Spark on this machine: a master and workers, from the jars inside
PySpark.

A worker starts executors, one for each application, as processes of its own. All are found and
ended by their number: a worker is killed with its executors, as a machine that is switched off, and
an executor can be frozen alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pyspark

from tests.harness.kafka import until
from tests.harness.service import read_command_line, read_session_id, send_signal
from tools.demo.broker import free_port
from tools.demo.process import start_process

JARS = Path(pyspark.__file__).parent / "jars"
SCALA = "2.13"
"""What Spark's own start scripts find out; a worker does not start executors without it."""
ENDLESS = 2**63 - 1
CORES = 4
"""Of each worker: Real-Time Mode needs a slot for each partition, also when the other worker is
gone.
"""
MEMORY_MB = 700
HEAP_MB = 160
START_S = 90
HERE = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "127.0.0.1"}


@dataclass
class SparkCluster:
    """One master, two workers; each is a session of its own (setsid(2)), by which its executors are
    found.
    """

    folder: Path
    workers: int = 2
    port: int = field(default_factory=free_port)
    master: subprocess.Popen[bytes] = field(init=False)
    alive: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __enter__(self) -> Self:
        """Start all; returns when every worker is registered."""
        self.folder.mkdir(parents=True)
        self.master = self._start(
            "master",
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--webui-port",
            str(free_port()),
        )
        until(lambda: "New state: ALIVE" in self.log("master"), "the master is up", START_S)
        self.alive = [self._worker(number) for number in range(self.workers)]
        until(
            lambda: self.log("master").count("Registering worker") == self.workers,
            "the workers are registered",
            START_S,
        )
        return self

    def __exit__(self, *_: object) -> None:
        """SIGKILL to all that lives."""
        for process in [*self.alive, self.master]:
            self._end(process)

    @property
    def url(self) -> str:
        """For `replicator.master`."""
        return f"spark://127.0.0.1:{self.port}"

    def log(self, name: str) -> str:
        """What a process has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def executors(self, worker: subprocess.Popen[bytes]) -> list[int]:
        """The executors of a worker that live now."""
        return [
            pid
            for pid in self._members(worker)
            if "CoarseGrainedExecutorBackend" in read_command_line(pid)
        ]

    def partitions_read(self, number: int, topic: str) -> set[int]:
        """The partitions that executors of a worker have read in Real-Time Mode, which has no end
        offset, as their logs have it.
        """
        logs = "".join(
            log.read_text(errors="replace")
            for log in (self.folder / f"work-{number}").rglob("stderr")
        )
        return {
            int(partition)
            for partition in re.findall(
                rf"topicPartition={re.escape(topic)}-(\d+) fromOffset=\d+\}}"
                rf" untilOffset={ENDLESS}\b",
                logs,
            )
        }

    def kill_worker(self, worker: subprocess.Popen[bytes]) -> list[int]:
        """SIGKILL to a worker and its executors at once; ProcessLookupError when it has none, so
        that a test cannot take a miss for a hit.
        """
        killed = [worker.pid, *self.executors(worker)]
        if len(killed) < 2:
            raise ProcessLookupError(f"worker {worker.pid} has no executor")
        for pid in killed:
            send_signal(pid)
        worker.wait()
        self.alive.remove(worker)
        return killed

    def _worker(self, number: int) -> subprocess.Popen[bytes]:
        return self._start(
            f"worker-{number}",
            "org.apache.spark.deploy.worker.Worker",
            "--host",
            "127.0.0.1",
            "--cores",
            str(CORES),
            "--memory",
            f"{MEMORY_MB}m",
            "--work-dir",
            str(self.folder / f"work-{number}"),
            "--webui-port",
            str(free_port()),
            self.url,
        )

    def _start(self, name: str, main_class: str, *arguments: str) -> subprocess.Popen[bytes]:
        return start_process(
            [
                "java",
                f"-Xmx{HEAP_MB}m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                f"{JARS}/*",
                main_class,
                *arguments,
            ],
            self.folder / f"{name}.log",
            env=os.environ
            | HERE
            | {
                "SPARK_LOCAL_DIRS": str(self.folder / "local"),
                "SPARK_HOME": str(JARS.parent),
                "SPARK_SCALA_VERSION": SCALA,
            },
        )

    def _members(self, process: subprocess.Popen[bytes]) -> list[int]:
        return [
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and read_session_id(int(entry.name)) == process.pid
        ]

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        for pid in self._members(process):
            with contextlib.suppress(ProcessLookupError):
                send_signal(pid)
        process.wait()


def state_of(pid: int) -> str:
    """As the kernel has it: T is stopped, S and R are not; empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""


def freeze(pid: int) -> None:
    """SIGSTOP; returns when the process stands still."""
    send_signal(pid, signal.SIGSTOP)
    until(lambda: state_of(pid) == "T", f"process {pid} stands still")


def thaw(pid: int) -> None:
    """SIGCONT; returns when the process moves again."""
    assert state_of(pid) == "T", f"process {pid} was not frozen: {state_of(pid)!r}"
    send_signal(pid, signal.SIGCONT)
    until(lambda: state_of(pid) in {"R", "S", "D"}, f"process {pid} goes on")


def jar_names(folder: Path) -> set[str]:
    """The jars that executors were given, without versions and checksums."""
    return {re.sub(r"(-[\da-f._]+)+\.jar$", "", jar.name) for jar in folder.rglob("*.jar")}
