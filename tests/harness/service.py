"""Helpers of the tests for the service: start it as a user does, read its log and metrics, send
signals to its processes.

Each service has its own session (setsid(2)). Its processes are found in /proc by the session id,
even when their parents are dead, and are killed by their process ids.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.harness.admin_requests import ANSWER_S
from tests.harness.kafka import COPY_S, ROOT, START_S, Clusters, until
from tests.harness.promql import list_known_samples
from tools.demo import fair_share
from tools.demo.broker import free_port
from tools.demo.process import start_process

CRASH = re.compile(r"ended \(SIG(ABRT|BUS|FPE|ILL|SEGV)\)")
STOP_S = 60
"""Timeout of an end that a signal or an error asks for."""
KILLED = "did not stop in"
"""What the supervisor says before it kills a process that SIGTERM does not end."""
CERTAIN_COMMITS = {"deduplicator_transaction_timeout_ms": "600000"}
"""Settings with which no commit becomes unknown on a machine that stands still: what an unknown one
has committed is copied, but not counted.
"""
RESTARTED = {"StageFailed", "Fenced"}
"""Errors after which the supervisor starts a stage again: a pause of the machine can bring them."""
BEFORE_A_CRASH = 60
"""Lines: the failed assertion and the stacks of some threads."""
LIBRDKAFKA_ABORT = "rd_kafka_enq_once_del_source_return: Assertion `eonce->refcnt > 0' failed"
"""librdkafka ends its process when the connection to a broker breaks just as a request to it is
sent (#4605, open). A test whose brokers restart can bring it.
"""


def read_session_id(pid: int) -> int:
    """The session id of a running process; 0 for a process that has ended, also for a zombie."""
    try:
        state, _, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[:4]
    except OSError:
        return 0
    return 0 if state in "ZX" else int(session)


def read_command_line(pid: int) -> str:
    """The command line of a process; empty for a process that has ended, also for a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def send_signal(pid: int, with_signal: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal; ProcessLookupError when the process does not run, so that a test cannot
    believe that a missed signal was received.
    """
    os.kill(pid, with_signal)


@dataclass
class Service:
    """`python -m reo run …` as a user starts it: its own session, its own empty temporary folder,
    all output in one file.
    """

    folder: Path
    environment: dict[str, str]
    arguments: tuple[str, ...]
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> Service:
        """Start it; returns at once."""
        self.folder.mkdir(parents=True)
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("REO_", "KAFKA_"))
        }
        self.process = start_process(
            [sys.executable, "-m", "reo", "run", *self.arguments],
            self.folder / "log",
            cwd=ROOT,
            env=inherited | {"TMPDIR": str(self.folder)} | self.environment,
        )
        return self

    @property
    def log(self) -> str:
        """The log of all its processes so far."""
        return (self.folder / "log").read_text(errors="replace")

    @property
    def errors(self) -> list[str]:
        """The lines that name a typed error."""
        return [
            line for line in self.log.splitlines() if re.search(r" ERROR +\S+: [A-Z]\w+: ", line)
        ]

    @property
    def crashes(self) -> list[str]:
        """The lines about processes that ended by a signal of their own doing, such as a failed
        assertion in a library, each behind what was written before it. The service restarts them,
        so the copy is right nevertheless. One that librdkafka is known for is left out.
        """
        lines = self.log.splitlines()
        ends = [number for number, line in enumerate(lines) if CRASH.search(line)]
        crashes = [
            "\n".join(lines[max(before + 1, number - BEFORE_A_CRASH) : number + 1])
            for before, number in pairwise([-1, *ends])
        ]
        return [crash for crash in crashes if LIBRDKAFKA_ABORT not in crash]

    def wait_for_log(self, text: str, timeout_s: float = START_S) -> str:
        """Wait for a line of the log; AssertionError if the service ends first."""

        def find_line() -> str | None:
            ended = self.process.poll() is not None  # before reading: its last line may match
            matching_line = next(
                (find_line for find_line in self.log.splitlines() if text in find_line), None
            )
            assert matching_line or not ended, (
                f"the service ended with {self.process.returncode} before it logged"
                f" {text!r}:\n{self.read_log_tail()}"
            )
            return matching_line

        return until(find_line, f"the service logs {text!r}", timeout_s) or ""

    def wait_for_exit(self, timeout_s: float = COPY_S) -> int:
        """Wait until the service ends; returns the exit code."""
        try:
            return fair_share.wait(self.process, timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the service did not end in {timeout_s} s:\n{self.read_log_tail()}"
            ) from None

    def stop(self) -> None:
        """Send SIGTERM. The exit code must be 0, and no process may remain."""
        self.process.terminate()
        code = self.wait_for_exit(STOP_S)
        assert code == 0, f"exit code {code} after SIGTERM:\n{self.read_log_tail()}"
        until(lambda: not self.list_processes(), "no process is left")

    def list_processes(self) -> list[int]:
        """Its running processes, the supervisor first."""
        return sorted(
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and read_session_id(int(entry.name)) == self.process.pid
        )

    def find_pid(self, stage: str, worker: int = 0) -> int | None:
        """The process id of a stage, while it runs; `jvm` is Spark's."""
        pattern = r"java .*SparkSubmit" if stage == "jvm" else rf"-m {stage} {worker}$"
        return next(
            (pid for pid in self.list_processes() if re.search(pattern, read_command_line(pid))),
            None,
        )

    def signal(self, stage: str, name: str) -> None:
        """Send a signal to a stage's process, or to the JVM; AssertionError when it does not
        run.
        """
        pid = self.find_pid(stage)
        assert pid, f"{stage} does not run"
        send_signal(pid, signal.Signals[name])

    def signal_all(self, name: str) -> None:
        """Send a signal to all its processes."""
        for pid in self.list_processes():
            with contextlib.suppress(ProcessLookupError):
                send_signal(pid, signal.Signals[name])

    def kill_all(self) -> None:
        """SIGKILL all its processes; returns when they have ended."""
        self.signal_all("SIGKILL")
        self.process.wait()
        until(lambda: not self.list_processes(), "no process is left")

    def delete_folder(self) -> None:
        """Delete its folder; only the log is moved to the parent folder, for messages."""
        (self.folder / "log").rename(self.folder.parent / "log")
        shutil.rmtree(self.folder)
        self.folder = self.folder.parent

    def http_get(self, path: str) -> tuple[int, str]:
        """GET from the service's HTTP port: status and body; (0, "") when the connection fails."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.environment['REO_METRICS_PORT']}{path}", timeout=ANSWER_S
            ) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def read_metrics(self) -> str:
        """Its metrics, as soon as it answers; empty when the service has ended."""

        def ask() -> tuple[int, str] | None:
            answer = self.http_get("/metrics")
            return answer if answer[0] == 200 or self.process.poll() is not None else None

        status, text = until(ask, "the service says its metrics", COPY_S)
        return text if status == 200 else ""

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        assert name in list_known_samples(), f"there is no metric {name}"
        total = 0.0
        for line in self.read_metrics().splitlines():
            sample = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if (
                sample
                and sample[1] == name
                and dict(re.findall(r'(\w+)="([^"]*)"', sample[2] or "")).items() >= labels.items()
            ):
                total += float(sample[3])
        return total

    def read_log_tail(self) -> str:
        """The end of the log, for messages."""
        return self.log[-4000:]


def build_environment(
    clusters: Clusters, topic: str, extra_settings: Mapping[str, str]
) -> dict[str, str]:
    """The environment variables of a service: names without prefix become REO_…"""
    required = {
        "REO_SOURCE_BOOTSTRAP_SERVERS": clusters.source.address,
        "REO_DESTINATION_BOOTSTRAP_SERVERS": clusters.destination.address,
        "REO_SOURCE_TOPIC": topic,
        "REO_INSTANCE": "test",
        "REO_CONNECT_TIMEOUT_S": "120",  # a start on a machine that stood still is no wrong address
        "REO_METRICS_PORT": str(free_port()),
    }
    return required | {f"REO_{name.upper()}": value for name, value in extra_settings.items()}


def stopped(
    service: Service, exit_code: int, name: str, *words: str, timeout_s: float = STOP_S
) -> str:
    """The service has ended with this code and says this error; returns the line. Every process
    that says an error for good says the same.
    """
    code = service.wait_for_exit(timeout_s)
    assert code == exit_code, f"exit code {code} instead of {exit_code}:\n{service.read_log_tail()}"
    named = [(line.split(": ")[1], line) for line in service.errors]
    lines = [line for error, line in named if error == name]
    assert lines, service.read_log_tail()
    assert {error for error, _ in named} <= RESTARTED | {name}, service.errors
    line = lines[0]
    missing = [word for word in words if word not in line]
    assert not missing, f"{missing} not in: {line}"
    assert "Traceback" not in service.log
    until(lambda: not service.list_processes(), "no process is left")
    return line


def deaf_address() -> str:
    """An address where nobody listens."""
    return f"127.0.0.1:{free_port()}"
