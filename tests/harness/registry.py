"""A real schema registry (Apicurio) as a child process, with Confluent's API, and records as its
clients write them.

It keeps its schemas on a topic of a broker, or in its own memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Self

from tests.harness.copy_judge import Record
from tests.harness.kafka import ROOT, Cluster, until
from tools.demo.broker import free_port
from tools.demo.process import kill, start_process

STARTS_IN_S = 120
CONFLUENT, OWN = "/apis/ccompat/v7", "/apis/registry/v3"
HEAP = "-Xmx400m"


@cache
def unpack(folder: Path) -> Path:
    """The program, once for all registries of a test; AssertionError without it."""
    archives = list((ROOT / "jars" / "registry").glob("*.tar.gz"))
    assert archives, "there is no schema registry: run `make registry`"
    folder.mkdir()
    subprocess.run(["tar", "-xzf", archives[0], "-C", folder], check=True)
    return next(folder.glob("*-runner.jar"))


@dataclass
class Registry:
    """One registry of the program that was unpacked into `folder`."""

    folder: Path
    name: str
    cluster: Cluster | None = None
    topic: str = ""
    """Of the cluster, where it keeps its schemas; without a cluster they are in its memory."""
    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        """For a client of Confluent's."""
        return f"http://127.0.0.1:{self.port}{CONFLUENT}"

    def __enter__(self) -> Self:
        on_topic = self.cluster and {
            "APICURIO_STORAGE_KIND": "kafkasql",
            "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": self.cluster.address,
            "APICURIO_KAFKASQL_TOPIC": self.topic,
            "APICURIO_KAFKASQL_SNAPSHOTS_TOPIC": f"{self.topic}-snapshots",
            "APICURIO_EVENTS_KAFKA_TOPIC": f"{self.topic}-events",
        }
        self.process = start_process(
            ["java", HEAP, "-jar", str(unpack(self.folder / "program"))],
            self.folder / f"{self.name}.log",
            cwd=self.folder,
            env=os.environ
            | {"QUARKUS_HTTP_PORT": str(self.port), "QUARKUS_HTTP_HOST": "127.0.0.1"}
            | (on_topic or {}),
        )
        until(self._answers, f"the registry answers: {self.folder / self.name}.log", STARTS_IN_S)
        return self

    def __exit__(self, *_: object) -> None:
        kill(self.process.pid)
        self.process.wait()

    def _answers(self) -> bool:
        assert self.process.poll() is None, "the registry has ended"
        try:
            return isinstance(self.call("GET", "/subjects"), list)
        except OSError:
            return False

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The answer of Confluent's API."""
        data = None if body is None else json.dumps(body).encode()
        return json.loads(self.send(method, CONFLUENT + path, data) or b"null")

    def send(self, method: str, path: str, data: bytes | None, kind: str = "json") -> bytes:
        """The answer's body; HTTPError when it refuses."""
        address, headers = (
            f"http://127.0.0.1:{self.port}{path}",
            {"Content-Type": f"application/{kind}"},
        )
        request = urllib.request.Request(address, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())

    def list_schemas(self) -> list[Any]:
        """The newest version of each subject, with id, number and schema."""
        names = self.call("GET", "/subjects")
        return [self.call("GET", f"/subjects/{name}/versions/latest") for name in sorted(names)]

    def register(self, subject: str, *fields: str, **more: Any) -> int:
        """An Avro schema with these fields; its id."""
        schema = {
            "type": "record",
            "name": "Order",
            "fields": [{"name": name, "type": "int"} for name in fields],
        }
        body = {"schema": json.dumps(schema), **more}
        return int(self.call("POST", f"/subjects/{subject}/versions", body)["id"])


def frame(schema_id: int, data: bytes = b"\x02") -> bytes:
    """As the serializers of a registry's clients do."""
    return b"\x00" + schema_id.to_bytes(4, "big") + data


def make_framed(schema_id: int) -> tuple[int, Record]:
    """A record for partition 0 whose value has this schema."""
    return 0, Record(b"key", frame(schema_id), (), 1_700_000_000_000)
