"""The tutorial, walked as it stands on the page: its program and its commands in their order, and
what it shows after each of them.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from common.settings import is_ours
from tests.harness.commands import LONG_COMMAND_S
from tests.harness.kafka import COPY_S, ROOT, until
from tests.harness.service import STOP_S
from tools.demo import fair_share
from tools.demo.broker import free_port
from tools.demo.brokers import DESTINATION_PORT, SOURCE_PORT
from tools.demo.process import start_process

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CTRL_C = "^C"
VARYING = r"\d+\.\d+ s\b|\d+(?= records copied)"
"""Seconds, and what was already counted when the log said so."""


def read_page(page: str) -> tuple[str, list[tuple[str, list[str]]]]:
    """The program, and each command (Ctrl-C is one) with the lines that are shown after it."""
    program, steps = "", list[tuple[str, list[str]]]()
    for kind, text in BLOCK.findall(page):
        program += text if kind == "python" else ""
        for line in text.splitlines() if not kind else ():
            if line.startswith("$ ") or line == CTRL_C:
                steps.append((line.removeprefix("$ "), []))
            elif steps and line != "…":
                steps[-1][1].append(line)
    return program, steps


def find_missing(shown: list[str], output: str) -> list[str]:
    """The lines that the output does not have; `…` is anything."""
    patterns = {line: re.escape(re.sub(VARYING, "…", line)) for line in shown}
    return [
        line
        for line, pattern in patterns.items()
        if not re.search(f"^{pattern.replace('…', '.*')}$", output, re.MULTILINE)
    ]


class Walk:
    """The reader's terminals; what was started ends with `stack`."""

    def __init__(self, stack: ExitStack, folder: Path, ports: tuple[int, int]) -> None:
        self.stack, self.folder, self.ports = stack, folder, ports
        self.environment = {
            name: value for name, value in os.environ.items() if not is_ours(name)
        } | {
            "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}",
            "REO_METRICS_PORT": str(free_port()),
        }
        self.service: subprocess.Popen[bytes] | None = None
        self.started = 0

    def take(self, command: str, shown: list[str]) -> None:
        """One step: it does what it should, and says what is shown."""
        if command == "make brokers":
            self.start([sys.executable, "-m", "tools.demo.brokers", *map(str, self.ports)], shown)
        elif command.startswith("reo run"):
            self.service = self.start(command.split(), shown)
        elif command == CTRL_C:
            assert self.service
            self.service.send_signal(signal.SIGINT)
            assert fair_share.wait(self.service, STOP_S) == 0
        elif not command.startswith("export PATH="):
            done = fair_share.run(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout_s=LONG_COMMAND_S,
                check=False,
            )
            print(f"$ {command}\n{done.stdout}{done.stderr}")
            assert done.returncode == 0
            assert find_missing(shown, done.stdout) == []

    def start(self, command: list[str], shown: list[str]) -> subprocess.Popen[bytes]:
        """What goes on until somebody ends it; returns when it has said all that is shown."""
        self.started += 1
        log = self.folder / f"{self.started}.log"
        in_brokers = {"cwd": ROOT} if command[0] == sys.executable else {"cwd": self.folder}
        process = start_process(command, log, env=self.environment, **in_brokers)
        self.stack.callback(fair_share.wait, process, STOP_S)
        self.stack.callback(process.terminate)
        until(
            lambda: process.poll() is not None or not find_missing(shown, log.read_text()),
            f"{command} says {shown}",
            COPY_S,
        )
        assert process.poll() is None, log.read_text()
        return process


def test_the_tutorials_commands_do_what_it_shows(tmp_path: Path) -> None:
    """Two brokers, a topic that is filled by the page's program, check, run, status, verify; and
    once more after the service was stopped.
    """
    ports = free_port(), free_port()
    page = (ROOT / "docs" / "tutorial.md").read_text()
    for given, port in zip((SOURCE_PORT, DESTINATION_PORT), ports, strict=True):
        page = page.replace(str(given), str(port))
    program, steps = read_page(page)
    (tmp_path / "fill.py").write_text(program)
    assert [command.split()[1] for command, _ in steps if command.startswith("reo ")] == (
        ["config", "check", "run", "status", "verify", "run", "verify"]
    )
    with ExitStack() as stack:
        walk = Walk(stack, tmp_path, ports)
        for command, shown in steps:
            walk.take(command, shown)
