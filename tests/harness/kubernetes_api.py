"""A stand-in for Kubernetes' API, as much of it as Spark's scheduler asks for: it takes executor
pods and runs the container of each as a process here.

It is a fake: nothing is scheduled or admitted, pods have no network and no image, and a pod's
status is whether its process lives. What it shows is what Spark really asks for, which a test
compares with the API's schema, and that a container with a pod's arguments and environment is an
executor that works.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Self
from urllib.parse import urlsplit

from common.parent_death_signal import set_parent_death_signal
from tests.harness.kafka import ROOT

DRIVER = "reo-replicator-0"
OF_THE_POD = {"status.podIP": "127.0.0.1"}


Container = Callable[[Sequence[str], Mapping[str, str], Path], list[str]]
"""The command that runs a container with these arguments and this environment, given a folder for
its temporary files.
"""


def process(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> list[str]:
    """As a process of this machine, whose environment is the pod's and nothing else but for where
    programs and temporary files are.
    """
    own = {
        name: os.environ[name] for name in ("PATH", "JAVA_TOOL_OPTIONS") if name in os.environ
    } | {"TMPDIR": str(folder), "SPARK_LOCAL_DIRS": str(folder)}
    return [
        "env",
        "-i",
        *(f"{name}={value}" for name, value in (dict(environment) | own).items()),
        sys.executable,
        "-m",
        "reo",
        *arguments,
    ]


@dataclass
class Pod:
    """What was asked for, and the process that came of it."""

    asked: dict[str, Any]
    folder: Path
    container: Container
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        """Start it."""
        self.folder.mkdir(parents=True)
        (container,) = self.asked["spec"]["containers"]
        environment = {
            entry["name"]: entry.get("value") or self._field(entry) for entry in container["env"]
        }
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                self.container(container["args"], environment, self.folder),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=set_parent_death_signal,
            )

    def _field(self, entry: dict[str, Any]) -> str:
        wanted = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        return str(
            self.asked["metadata"]["name"]
            if wanted == "metadata.name"
            else OF_THE_POD.get(wanted, "")
        )

    def describe_pod(self) -> dict[str, Any]:
        """As the API shows it."""
        code = self.process.poll()
        terminated = (
            []
            if code is None
            else [
                {
                    "name": "executor",
                    "state": {"terminated": {"exitCode": code if code >= 0 else 128 - code}},
                }
            ]
        )
        return self.asked | {
            "status": {
                "phase": "Running" if code is None else "Failed",
                "containerStatuses": terminated,
            }
        }


class KubernetesApi:
    """Listens on a port of its own; all pods of a test are in `pods`, in order."""

    def __init__(self, folder: Path, container: Container = process) -> None:
        self.folder, self.container, self.pods, self.gone, self.lock = (
            folder,
            container,
            list[Pod](),
            set[str](),
            Lock(),
        )
        self.server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (Handler,), {"api": self})
        )

    def __enter__(self) -> Self:
        """Answer from now on."""
        Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """End all pods."""
        self.server.shutdown()
        for pod in self.pods:
            pod.process.kill()
            pod.process.wait()
            print(
                "--- pod"
                f" {pod.folder.name}\n{(pod.folder / 'log').read_text(errors='replace')[-1500:]}"
            )

    @property
    def url(self) -> str:
        """For `replicator.master`."""
        return f"k8s://http://127.0.0.1:{self.server.server_port}"

    def answer(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """What is said to a request; None for what there is not."""
        name = path.partition("/pods/")[2]
        with self.lock:
            if method == "POST":
                made = {
                    "uid": f"uid-{len(self.pods)}",
                    "namespace": path.split("/")[4],
                    "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                }
                asked = body | {"metadata": body["metadata"] | made}
                self.pods.append(Pod(asked, self.folder / body["metadata"]["name"], self.container))
                return self.pods[-1].describe_pod()
            if name == DRIVER:
                return {
                    "kind": "Pod",
                    "apiVersion": "v1",
                    "metadata": {"name": DRIVER, "uid": "uid-of-the-driver"},
                    "status": {"phase": "Running"},
                }
            there = [
                pod
                for pod in self.pods
                if pod.folder.name not in self.gone and name in ("", pod.folder.name)
            ]
            if method == "DELETE":
                for pod in there:
                    pod.process.kill()
                    self.gone.add(pod.folder.name)
            if not name:
                return {
                    "kind": "PodList",
                    "apiVersion": "v1",
                    "metadata": {},
                    "items": [pod.describe_pod() for pod in there],
                }
            return there[0].describe_pod() if there else None


class Handler(BaseHTTPRequestHandler):
    """One request, in and out as JSON."""

    api: KubernetesApi
    protocol_version = "HTTP/1.1"

    def _respond(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        found = self.api.answer(self.command, urlsplit(self.path).path, body)
        text = json.dumps(found or {"kind": "Status", "status": "Failure", "code": 404}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = _respond  # noqa: N815  (names of the standard library)

    def log_message(self, *_: object) -> None:
        """Nothing: what is asked is in `pods`."""
