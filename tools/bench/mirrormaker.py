"""MirrorMaker 2 with exactly-once, as a process that is started, watched and killed like our own
service.

MirrorMaker 2 must run as its authors intend: dedicated mode, exactly-once source support (KIP-618),
read_committed at the source, the heap and garbage collector of Kafka's own start script. What it
needs around that, and why:

    internal REST server        exactly-once needs it: tasks' zombies are fenced through the leader
    identity policy             the copy keeps the topic's name
    no heartbeats, checkpoints, offset syncs   they serve failover of consumers, which is not
                                               compared; without them it has less to do
    short refresh intervals     a new topic or partition is seen in seconds, not in ten minutes

Everything that it remembers (group, internal topics, transactional ids) carries `name`, so
instances with different names share brokers and do not disturb each other; one with the same name
goes on where the last one stopped. It logs one ERROR at each start: the checkpoint connector cannot
be configured because checkpoints are off. This is expected.
"""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from tools.demo.broker import free_port
from tools.demo.process import start_process

JARS = Path(__file__).parents[2] / "jars" / "rival"
MISSING = "MirrorMaker 2 is not installed: `make rival` downloads it"
STOP_S = 60
"""Timeout of a clean stop."""

PROPERTIES = """
clusters = source, target
source.bootstrap.servers = {source}
target.bootstrap.servers = {destination}
source->target.enabled = true
source->target.topics = {topic}
source->target.groups =
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy

tasks.max = 2
source.consumer.max.poll.records = 5000
target.producer.linger.ms = 10
target.producer.batch.size = 131072

target.exactly.once.source.support = enabled
source.consumer.isolation.level = read_committed
dedicated.mode.enable.internal.rest = true
listeners = http://127.0.0.1:{port}

target.group.id = mm2-{name}
target.offset.storage.topic = mm2-{name}-offsets
target.config.storage.topic = mm2-{name}-configs
target.status.storage.topic = mm2-{name}-status
replication.factor = 1
offset.storage.replication.factor = 1
config.storage.replication.factor = 1
status.storage.replication.factor = 1
heartbeats.topic.replication.factor = 1

emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
emit.offset-syncs.enabled = false
sync.topic.acls.enabled = false
refresh.topics.interval.seconds = 5
sync.topic.configs.interval.seconds = 5
"""

JAVA = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


@dataclass
class MirrorMaker:
    """Copies one topic from `source` to `destination` (bootstrap servers); `name` is what it is
    known by on the destination.
    """

    folder: Path
    source: str
    destination: str
    topic: str
    name: str = ""
    heap_mb: int = 1024
    settings: dict[str, str] = field(default_factory=dict)
    """Further lines of its properties."""
    jars: Path = JARS
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> MirrorMaker:
        """Start it, in a session of its own; returns at once. After `stop` or `kill`, starts it
        again, and the log goes on.
        """
        if not any(self.jars.glob("connect-mirror-*.jar")):
            raise FileNotFoundError(MISSING)
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "mm2.properties"
        properties.write_text(self.properties())
        self.process = start_process(
            [
                "java",
                *JAVA,
                "-Xms256m",
                f"-Xmx{self.heap_mb}m",
                f"-Djava.io.tmpdir={self.folder}",
                "-cp",
                f"{self.jars}/*",
                "org.apache.kafka.connect.mirror.MirrorMaker",
                str(properties),
            ],
            self.folder / "log",
        )
        return self

    def properties(self) -> str:
        """What its configuration file says; the topic is a regular expression there."""
        topic = self.topic.replace(".", "[.]")
        text = PROPERTIES.format(
            source=self.source,
            destination=self.destination,
            topic=topic,
            name=self.name or self.topic,
            port=free_port(),
        )
        return text + "".join(f"{key} = {value}\n" for key, value in self.settings.items())

    @property
    def exit_code(self) -> int | None:
        """The exit code, None while it runs."""
        return self.process.poll() if self.process else None

    def list_processes(self) -> list[int]:
        """Its processes that live now: one, it starts no others."""
        return [self.process.pid] if self.process and self.process.poll() is None else []

    @property
    def log(self) -> str:
        """What it has said so far, over all starts."""
        return (self.folder / "log").read_text(errors="replace")

    def read_log_tail(self) -> str:
        """The end of the log, for messages."""
        return self.log[-4000:]

    @property
    def task_failures(self) -> list[str]:
        """The log lines of failed tasks: the process continues without them, and does not restart
        them.
        """
        return [
            line
            for line in self.log.splitlines()
            if "will not recover until manually restarted" in line
        ]

    def send_signal(self, with_signal: signal.Signals) -> None:
        """Send a signal; ProcessLookupError when it does not live, so that nobody takes a miss for
        a hit.
        """
        if not self.list_processes() or self.process is None:
            raise ProcessLookupError(f"MirrorMaker {self.name or self.topic} does not live")
        self.process.send_signal(with_signal)

    def stop(self, timeout_s: float = STOP_S) -> float:
        """SIGTERM; returns how many seconds the end took. SIGKILL when it does not end in time."""
        began = time.monotonic()
        self._end(signal.SIGTERM, timeout_s)
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._end(signal.SIGKILL, STOP_S)

    def _end(self, with_signal: signal.Signals, timeout_s: float) -> None:
        if self.process is None:
            return
        if self.list_processes():
            self.process.send_signal(with_signal)
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
