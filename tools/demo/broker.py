"""A real single-node Kafka broker (KRaft) as a child process, from the jars that `make` fetched.

The demo, the tests and the benchmarks all need "a Kafka that can be killed": this is the one way to
get it. The broker's folder outlives the process, so a broker that was killed can be started again
on what it had written. A broker is formatted once, listens on 127.0.0.1 only, and creates no topic
by itself: a typing error in a topic name must be an error.

`python -m tools.demo.broker <folder of jars>` makes the archive of classes with which brokers
of these jars start sooner; `build/setup` calls it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import BinaryIO

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tools.demo import fair_share
from tools.demo.fair_share import Limit
from tools.demo.process import start_process

START_TIMEOUT_S = 60
ARCHIVE = "broker.jsa"
"""Beside the jars: the classes that a start loads, for HotSpot to map (JEP 350). A broker is up
with half the processor time. The class path is relative, so that the archive fits wherever the
folder is; where it does not fit, HotSpot does without.
"""
MARKER_WRITER = "kafka.coordinator.transaction.TransactionMarkerChannelManager"
"""It logs, as information, that it does not write a marker to a partition without a leader
(KAFKA-20734, in Kafka 4.3).
"""

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.retention.ms=-1
"""
"""The rest are Kafka's defaults. With them a client can create a missing topic by asking for it, so
the tests notice if one of the service's does.
"""

PORTS = range(10_000, 32_768)
"""Below those that Linux gives to outgoing connections (net.ipv4.ip_local_port_range): from there,
a client that tries to reach a broker that is down could be given the broker's own port, and the
broker could not come back.
"""

_given: set[int] = set()
"""The ports that this process has handed out."""


@cache
def _lock_file() -> BinaryIO:
    """Its byte number n is locked by the process that has handed out port n, until that process
    ends (fcntl(2), record locks).
    """
    return (Path(tempfile.gettempdir()) / f"reo-ports-{os.getuid()}").open("ab")


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now, and that no process of this user gets
    from here while this one lives.
    """
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            fcntl.lockf(_lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            if port not in _given:
                _given.add(port)
                return port


@dataclass
class Broker:
    """One broker in `folder`; `settings` are further lines of its server.properties."""

    folder: Path
    jars: Path
    heap_mb: int = 512
    settings: dict[str, str] = field(default_factory=dict)
    java_options: tuple[str, ...] = ()
    class_path: tuple[Path, ...] = ()
    """Further classes."""
    port: int = field(default_factory=free_port)
    controller_port: int = field(default_factory=free_port)
    cluster_id: str = field(
        default_factory=lambda: "C" + urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
    )
    """One that began with "-" would be taken for an option. Brokers of one cluster share it."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """What a client's `bootstrap.servers` takes."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> Broker:
        """Format the folder if it is new and start the process; `wait` says when it answers."""
        properties = self.folder / "server.properties"
        if not properties.exists():
            self._format(properties)
        self.process = start_process(
            self._java("kafka.Kafka", str(properties.absolute())),
            self.folder / "broker.log",
            cwd=self.jars,
        )
        return self

    def wait(self) -> Broker:
        """Return when the broker answers; RuntimeError with the end of its log if it does not in
        START_TIMEOUT_S.
        """
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        limit = Limit(START_TIMEOUT_S)
        while not limit.is_over() and self.running:
            try:
                if admin.list_topics(timeout=1).brokers:
                    return self
            except KafkaException:
                time.sleep(0.1)
        tail = (self.folder / "broker.log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"the broker in {self.folder} did not start:\n{tail}")

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self.process is not None and self.process.poll() is None

    def stop(self, with_signal: signal.Signals = signal.SIGTERM, timeout_s: float = 15) -> None:
        """End the process and wait for it; it is killed when it does not end in time."""
        if self.process is None:
            return
        if self.running:
            self.process.send_signal(with_signal)
        try:
            fair_share.wait(self.process, timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def kill(self) -> None:
        """SIGKILL: nothing is flushed, no session is closed."""
        self.stop(signal.SIGKILL)

    def create_topic(self, name: str, partitions: int, **config: str) -> None:
        """Create a topic that keeps old timestamps; `config` has underscores for dots."""
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        settings = {"retention.ms": "-1"} | {
            key.replace("_", "."): value for key, value in config.items()
        }
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result()

    def _format(self, properties: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        text = PROPERTIES.format(
            port=self.port, controller_port=self.controller_port, folder=self.folder.absolute()
        )
        text += "".join(f"{key}={value}\n" for key, value in self.settings.items())
        properties.write_text(text)
        done = subprocess.run(
            self._java(
                "kafka.tools.StorageTool",
                "format",
                "-t",
                self.cluster_id,
                "-c",
                str(properties.absolute()),
            ),
            cwd=self.jars,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(
                f"formatting the broker's folder failed:\n{done.stdout}{done.stderr}"
            )

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        archive = self.jars.absolute() / ARCHIVE
        shared = [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"] if archive.exists() else []
        return [
            "java",
            f"-Xms{self.heap_mb}m",
            f"-Xmx{self.heap_mb}m",
            "-XX:+UseParallelGC",
            *shared,
            *self.java_options,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
            "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.coordinator.transaction=info",
            f"-Dorg.slf4j.simpleLogger.log.{MARKER_WRITER}=info",
            "-cp",
            ":".join(["./*", *map(str, self.class_path)]),
            main_class,
            *arguments,
        ]


def archive_classes(jars: Path) -> None:
    """Run a broker of these jars once, and have it write down the classes that it has loaded when
    it ends.
    """
    with tempfile.TemporaryDirectory(prefix="reo-broker-") as folder:
        made = Path(folder) / ARCHIVE
        broker = Broker(
            Path(folder) / "broker",
            jars,
            java_options=(
                f"-XX:ArchiveClassesAtExit={made}",
                "-Xlog:cds=off",
                "-Xlog:cds+dynamic=off",
            ),
        )
        try:
            broker.start().wait().create_topic("archived", 1)
        finally:
            broker.stop(timeout_s=START_TIMEOUT_S)
        shutil.copyfile(made, jars / ARCHIVE)


if __name__ == "__main__":
    archive_classes(Path(sys.argv[1]))
