"""What the tests do with Kafka and with the service: make topics, write records, start, watch and kill processes.

Everything that waits is given a condition and a bound (`until`). Each service is a session of its own (setsid(2)): its processes are
found in /proc by that, also when their parents are dead, and are ended by their number.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from common.children import die_with_parent
from reo.demo.broker import Broker, free_port
from tests.judge import Partitions, Record, read, verdict

ROOT = Path(__file__).parent.parent
Seen = TypeVar("Seen")
PAUSE_S = 0.02
START_S = 60
"""Bound on what needs a start of Spark."""
COPY_S = 120
"""Bound on a copy of everything that the tests write, on a busy machine."""
NOT_YET = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._NOENT,
           KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.FENCED_LEADER_EPOCH, KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT)
"""What a client says of a partition or broker that is only coming (back); it is asked again within a bound."""
MARKERS_S = 5
"""Bound on writing the markers of a transaction that is decided; the shortest time-out of a transaction in the tests is 12 s."""
FOREVER = {"retention.ms": "-1"}


def quick_jvms() -> None:
    """Let every JVM started from now on compile quickly and not well: a test starts many, and none lives long enough for the better code to pay.

    Measured on two cores: one kill of stage two with all around it takes 19 s instead of 34.
    """
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")


def until(condition: Callable[[], Seen | None], what: str, timeout_s: float = START_S, seen_last: Sequence[str] = ()) -> Seen:
    """Ask again and again until the condition holds, and return what it said; AssertionError with `what` when it never does."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen = condition()
        if seen:
            return seen
        assert time.monotonic() < deadline, f"not in {timeout_s} s: {what} (last seen: {seen_last or seen!r})"
        time.sleep(PAUSE_S)


@dataclass
class Cluster:
    """One broker and what is asked of it."""

    broker: Broker
    _admin: AdminClient | None = None

    @property
    def address(self) -> str:
        """For `bootstrap.servers`."""
        return self.broker.address

    @property
    def admin(self) -> AdminClient:
        """One client for all questions."""
        self._admin = self._admin or AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        return self._admin

    def create(self, topic: str, partitions: int, **config: str) -> str:
        """A topic that keeps old timestamps."""
        wanted = NewTopic(topic, partitions, -1, config=FOREVER | {name.replace("_", "."): value for name, value in config.items()})
        self.admin.create_topics([wanted])[topic].result()
        until(lambda: self.partitions(topic) == partitions, f"topic {topic} is there")
        return topic

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until it is gone."""
        self.admin.delete_topics([topic])[topic].result()
        until(lambda: self.partitions(topic) == 0, f"topic {topic} is gone")

    def topic_id(self, topic: str) -> tuple[str, str]:
        """Of the cluster, and of the topic."""
        found = self.admin.describe_topics(TopicCollection([topic]))[topic].result()
        return self.admin.describe_cluster().result().cluster_id, str(found.topic_id)

    def partitions(self, topic: str) -> int:
        """How many the topic has; 0 when there is no such topic."""
        try:
            return len(self.admin.describe_topics(TopicCollection([topic]))[topic].result().partitions)
        except KafkaException:
            return 0

    def config(self, topic: str) -> dict[str, str]:
        """A topic's configuration."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return {name: str(entry.value) for name, entry in self.admin.describe_configs([resource])[resource].result().items()}

    def ends(self, topic: str, stable: bool = False) -> dict[int, int]:
        """The next offset of each partition; with `stable`, the first offset that an open transaction may still change."""
        isolation = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
        return self._offsets(topic, OffsetSpec.latest(), isolation)

    def beginnings(self, topic: str) -> dict[int, int]:
        """The first offset that each partition still has."""
        return self._offsets(topic, OffsetSpec.earliest())

    def _offsets(self, topic: str, spec: OffsetSpec, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
                 partitions: int | None = None) -> dict[int, int]:
        """Asked again while a partition that was made just now has no leader."""
        asked = {TopicPartition(topic, partition): spec for partition in range(partitions or self.partitions(topic))}

        def answered() -> list[tuple[int, int]] | None:
            try:
                return [(place.partition, future.result().offset) for place, future in self.admin.list_offsets(asked, isolation_level=isolation).items()]
            except KafkaException as failed:
                if failed.args[0].code() in NOT_YET:
                    return None
                raise
        return dict(until(answered, f"the offsets of {topic}")) if asked else {}

    def written(self, topic: str, partitions: int | None = None) -> int:
        """An upper bound on the records that anybody can see: markers, aborted records and what is not committed yet are counted too.

        Saying how many partitions the topic has saves a request: for what has to be quick.
        """
        return sum(self._offsets(topic, OffsetSpec.latest(), partitions=partitions).values())

    def no_transaction_is_open(self, topic: str) -> bool:
        """Whether a `read_committed` reader reaches the end of the topic, and of the groups' offsets."""
        return all(self.ends(name, stable=True) == self.ends(name) for name in (topic, "__consumer_offsets"))

    def closes(self, topic: str) -> bool:
        """Whether nothing is open, at once or as soon as the markers of the last commit are written: long before a transaction that was left open times out."""
        deadline = time.monotonic() + MARKERS_S
        while not self.no_transaction_is_open(topic):
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE_S)
        return True

    def write(self, topic: str, records: Iterable[tuple[int, Record]], **options: Any) -> None:
        """Write records in order, each to its partition, and wait until all are there."""
        producer = self.producer(**options)
        send(producer, topic, records)
        assert producer.flush(60) == 0

    def producer(self, **options: Any) -> Producer:
        """An idempotent producer."""
        return Producer({"bootstrap.servers": self.address, "enable.idempotence": True, "linger.ms": 5, "message.max.bytes": 10_000_000,
                         "queue.buffering.max.messages": 1_000_000, "log_level": 0} | {name.replace("_", "."): value for name, value in options.items()})

    def read(self, topic: str) -> Partitions:
        """What the judge sees."""
        return read(self.address, topic)


@dataclass
class Clusters:
    """Both sides."""

    source: Cluster
    destination: Cluster

    def differences(self, topic: str, copy: str | None = None) -> list[str]:
        """The judge's verdict on a topic and its copy: empty when the copy is exact."""
        return verdict(self.source.read(topic), self.destination.read(copy or topic))

    def copied(self, topic: str, records: int, timeout_s: float = COPY_S) -> None:
        """Wait until the copy of a source with so many visible records is exact; the judge is asked only when it can be."""
        last: list[str] = []

        def exact() -> bool:
            if self.destination.written(topic) >= records:
                last[:] = self.differences(topic)
                return not last
            return False
        until(exact, f"{records} records of {topic} are copied", timeout_s, last)


def send(producer: Producer, topic: str, records: Iterable[tuple[int, Record]]) -> None:
    """Hand records to a producer; a record that can not be delivered is an error."""
    def delivered(error: object, _: object) -> None:
        assert error is None, error

    for partition, record in records:
        while True:
            try:
                producer.produce(topic, record.value, record.key, partition, None, delivered, record.timestamp_ms, list(record.headers))
                break
            except BufferError:
                producer.poll(0.1)
    producer.poll(0)


def plain(number: int, size: int = 100) -> Record:
    """A record that is like no other of its topic."""
    return Record(b"key-%d" % (number % 1000), b"%010d" % number + b"." * (size - 10), (("number", b"%d" % number),), 1_700_000_000_000 + number)


def spread(numbers: Iterable[int], partitions: int) -> list[tuple[int, Record]]:
    """Plain records, one partition after the other in turn."""
    return [(number % partitions, plain(number)) for number in numbers]


# Processes

def session_of(pid: int) -> int:
    """The session a living process belongs to; 0 for one that has ended, even if nobody has waited for it."""
    try:
        state, _, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[:4]
    except OSError:
        return 0
    return 0 if state in "ZX" else int(session)


def command_of(pid: int) -> str:
    """Its command line; empty for one that has ended, even if nobody has waited for it."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def kill(pid: int, with_signal: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal; ProcessLookupError when the process is gone, so that a test can not take a miss for a hit."""
    os.kill(pid, with_signal)


@dataclass
class Service:
    """`python -m reo run …` as a user starts it: its own session, an own empty temporary folder, all output in one file."""

    folder: Path
    environment: dict[str, str]
    arguments: tuple[str, ...]
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> Service:
        """Start it; returns at once."""
        self.folder.mkdir(parents=True)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("REO_", "KAFKA_"))}
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "reo", "run", *self.arguments], cwd=ROOT, start_new_session=True, preexec_fn=die_with_parent,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=inherited | {"TMPDIR": str(self.folder)} | self.environment)
        return self

    @property
    def log(self) -> str:
        """What all its processes have said so far."""
        return (self.folder / "log").read_text(errors="replace")

    @property
    def errors(self) -> list[str]:
        """The lines that name a typed error."""
        return [line for line in self.log.splitlines() if re.search(r" ERROR +\S+: [A-Z]\w+: ", line)]

    def says(self, text: str, timeout_s: float = START_S) -> str:
        """Wait for a line of the log; AssertionError if the service ends first."""
        def line() -> str | None:
            found = next((line for line in self.log.splitlines() if text in line), None)
            assert found or self.process.poll() is None, f"the service ended with {self.process.returncode} before it said {text!r}:\n{self.tail()}"
            return found
        return until(line, f"the service says {text!r}", timeout_s) or ""

    def ends(self, timeout_s: float = COPY_S) -> int:
        """Wait for its end; returns the exit code."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the service did not end in {timeout_s} s:\n{self.tail()}") from None

    def stop(self, timeout_s: float = 20) -> float:
        """SIGTERM; returns how many seconds the end took. The exit code has to be 0, and nothing may be left."""
        began = time.monotonic()
        self.process.terminate()
        code = self.ends(timeout_s)
        took = time.monotonic() - began
        assert code == 0, f"exit code {code} after SIGTERM:\n{self.tail()}"
        until(lambda: not self.living(), "no process is left", 5)
        return took

    def living(self) -> list[int]:
        """All its processes that live now, the supervisor first."""
        return sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and session_of(int(entry.name)) == self.process.pid)

    def pid_of(self, stage: str, worker: int = 0) -> int | None:
        """The process of a stage, while it lives; `jvm` is Spark's."""
        pattern = r"java .*SparkSubmit" if stage == "jvm" else rf"-m {stage} {worker}$"
        return next((pid for pid in self.living() if re.search(pattern, command_of(pid))), None)

    def signal(self, stage: str, name: str) -> None:
        """Send a signal to a stage's process, or to the JVM; AssertionError when it does not live."""
        pid = self.pid_of(stage)
        assert pid, f"{stage} does not live"
        kill(pid, signal.Signals[name])

    def kill_all(self) -> None:
        """SIGKILL to all its processes; returns when they are gone."""
        for pid in self.living():
            with contextlib.suppress(ProcessLookupError):
                kill(pid)
        self.process.wait()
        until(lambda: not self.living(), "no process is left", 10)

    def forget_all(self) -> None:
        """Delete everything that it had on disk; only the log is kept, elsewhere, for messages."""
        (self.folder / "log").rename(self.folder.parent / "log")
        shutil.rmtree(self.folder)
        self.folder = self.folder.parent

    def ask(self, path: str) -> tuple[int, str]:
        """GET from the service's port: status and body; (0, "") when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.environment['REO_METRICS_PORT']}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        found = 0.0
        for line in self.ask("/metrics")[1].splitlines():
            sample = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if sample and sample[1] == name and dict(re.findall(r'(\w+)="([^"]*)"', sample[2] or "")).items() >= labels.items():
                found += float(sample[3])
        return found

    def tail(self) -> str:
        """The end of the log, for messages."""
        return self.log[-4000:]


def settings(clusters: Clusters, topic: str, more: Mapping[str, str]) -> dict[str, str]:
    """The environment of a service: names without prefix become REO_…"""
    given = {
        "REO_SOURCE_BOOTSTRAP_SERVERS": clusters.source.address, "REO_DESTINATION_BOOTSTRAP_SERVERS": clusters.destination.address,
        "REO_SOURCE_TOPIC": topic, "REO_INSTANCE": "test", "REO_CONNECT_TIMEOUT_S": "20", "REO_METRICS_PORT": str(free_port()),
    }
    return given | {f"REO_{name.upper()}": value for name, value in more.items()}
