"""Containers of the image (IMAGE names it), locked down as the manifests for Kubernetes lock pods
down, on the network of this machine.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.demo import fair_share

IMAGE = os.environ["IMAGE"]
LOCKED = [
    "--network",
    "host",
    "--read-only",
    "--tmpfs",
    "/tmp:exec,size=512m",
    "--cap-drop",
    "ALL",
    "--security-opt",
    "no-new-privileges",
    "--user",
    "10001:10001",
    "--memory",
    "1536m",
]
NAMELESS = "reo-check"
"""A host name without an address: on the network of the machine Docker gives it none."""
KILL_STAGE_ONE = """
import os, pathlib, time
def processes(): return [path for path in pathlib.Path("/proc").iterdir() if path.name.isdigit()]
old = [path for path in processes() if b"\\0-m\\0replicator\\0" in (path / "cmdline").read_bytes()]
for path in old: os.kill(int(path.name), 9)
time.sleep(3)
stats = [(path / "stat").read_text().rpartition(")")[2].split() for path in processes()]
dead = sum(state == "Z" and parent == "1" for state, parent, *_ in stats)
print(len(old), "killed,", dead, "dead")
"""
"""Run in the container: whose parent is dead belongs to process 1, which has to wait for it."""


def docker(*words: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """One command of docker's."""
    return fair_share.run(
        ["docker", *words], capture_output=True, text=True, timeout_s=timeout_s, check=False
    )


def container(environment: Mapping[str, object], *words: str) -> list[str]:
    """The words of `docker run` for this environment."""
    return [
        *LOCKED,
        *(
            word
            for name, text in environment.items()
            if text != ""
            for word in ("-e", f"{name}={text}")
        ),
        IMAGE,
        *words,
    ]


def pod(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> list[str]:
    """The command of an executor's pod (`tests.harness.kubernetes_api`)."""
    return ["docker", "run", "--rm", "--name", folder.name, *container(environment, *arguments)]


def start_container(
    name: str, environment: Mapping[str, object], *words: str
) -> subprocess.CompletedProcess[str]:
    """Start one that runs on."""
    return docker(
        "run", "-d", "--hostname", NAMELESS, "--name", name, *container(environment, *words)
    )


def is_healthy(name: str) -> bool:
    """Whether its health check says so."""
    return docker("inspect", "-f", "{{.State.Health.Status}}", name).stdout.strip() == "healthy"


def read_exit_code(name: str) -> int:
    """Of a container that has ended."""
    code: int = json.loads(docker("inspect", name).stdout)[0]["State"]["ExitCode"]
    return code


def read_memory_usage(*names: str) -> list[str]:
    """A line for each of these."""
    return docker(
        "stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}", *names
    ).stdout.split("\n")


def kill_stage_one(name: str) -> subprocess.CompletedProcess[str]:
    """SIGKILL; the output says how many were killed, and how many dead processes are left over."""
    return docker("exec", name, "python", "-c", KILL_STAGE_ONE)
