"""One system: two clusters, the service's processes with what restarts them, and those who write to the source.

The processes run the service's own code; what follows an exit code is `reo.supervisor`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from common import settings as settings_module
from common.errors import ReoError
from common.routes import Place
from common.settings import Settings
from deduplicator import worker
from reo.supervisor import BACKOFF_FIRST_S, BACKOFF_MAX_S, ends_service
from replicator import stage
from simulator import filtered, logs, operator
from simulator.candidates import Fed, Source
from simulator.kafka import Cluster, Network
from simulator.plan import Plan
from simulator.query import Engine, Query
from simulator.schedule import START_UNIX_S, Process, Schedule

if TYPE_CHECKING:
    from simulator.faults import Faults

TOPIC, COPY, PROXY = "orders", "copy", "copy-proxy"
FILTERS = {"filter.sql": "true", "filter.function": "simulator.filtered:no_thirds"}
"""What the settings say; the simulated query leaves out what the function would."""
LOAD_S = 10.0
"""The source is written to for about so long."""


@dataclass(eq=False)
class Child:
    """One process of the service, through all its restarts."""

    name: str
    begin: Callable[[Child], Callable[[], object]]
    """What a new process of it does."""
    host: int
    process: Process | None = None
    backoff_s: float = BACKOFF_FIRST_S
    is_wanted: bool = True
    engine: Engine | None = None
    """Of stage one, its JVM."""
    is_told_to_stop: bool = False


class System:
    """All of it."""

    topic, copy, proxy = TOPIC, COPY, PROXY

    def __init__(self, plan: Plan, schedule: Schedule, tell: Callable[[str], None]) -> None:
        self.plan = plan
        self.schedule = schedule
        self.tell = tell
        self.network = Network(schedule)
        self.source = Cluster(schedule, "source", cluster_id="source-cluster")
        """The one that is copied; with several candidates what all of them are given, which no client reaches."""
        self.destination = Cluster(schedule, "destination", cluster_id="destination-cluster")
        self.destination.record_delay_s = plan.destination_slow_s
        self.candidates = [Cluster(schedule, f"source{number}") for number in range(plan.candidates)] if plan.candidates > 1 else []
        reached = {f"{cluster.name}:9092": cluster for cluster in self.candidates or [self.source]}
        self.network.clusters = reached | {"destination:9092": self.destination}
        self.given: Source
        self.queries: list[Query] = []
        """All that there were."""
        self.faults: Faults
        self.children: list[Child] = []
        self.ended: int | None = None
        """The exit code of the service."""
        self.recovers_from: set[int] = set()
        """Exit codes of the service after which an operator recovers the frontiers and starts it again."""
        self.is_stopped = False
        """Whether an operator is at work, and no process is started."""
        self.why = ""
        self.read_to: dict[Place, int] = {}
        """By source partition, how far any query has read."""
        self.loaded = 0
        self.ends_at_start: list[int] = []
        """By source partition, when the service was started."""
        self.is_written = False
        """Whether the writer has ended."""
        self.settings = self._settings()

    def _settings(self) -> Settings:
        environment = {
            "REO_SOURCE_BOOTSTRAP_SERVERS": "source:9092", "REO_DESTINATION_BOOTSTRAP_SERVERS": "destination:9092",
            "REO_SOURCE_TOPIC": TOPIC, "REO_DESTINATION_TOPIC": COPY, "REO_APPLICATION": "reo", "REO_INSTANCE": "host",
            "REO_SOURCE_START": self.plan.start, "REO_DEDUPLICATOR_GROUP_PROTOCOL": self.plan.protocol,
            "REO_STOP_AT_END": str(self.plan.stop_at_end).lower(), "REO_REPLICATOR_BATCH_S": "30",
            "REO_DEDUPLICATOR_TRANSACTION_TIMEOUT_MS": "20000", "REO_DEDUPLICATOR_TRANSACTION_RECORDS": "10", "REO_METRICS_PORT": "0",
        }
        if self.candidates:
            environment |= {"REO_SOURCE_BOOTSTRAP_SERVERS": ";".join(f"{cluster.name}:9092" for cluster in self.candidates),
                            "REO_SOURCE_MODE": "failover", "REO_SOURCE_OFFSET_LAG_THRESHOLD": "20"}
        if self.plan.filtered_by:
            environment["REO_" + self.plan.filtered_by.upper().replace(".", "_")] = FILTERS[self.plan.filtered_by]
        return settings_module.load(environment)

    def passes(self, content: logs.Content) -> bool:
        """Whether a record is to be copied."""
        return not self.plan.filtered_by or filtered.by_value(content[1])

    @property
    def is_loading(self) -> bool:
        """Whether a source is still written to."""
        return not (self.is_written and self.given.is_given)

    def begin(self) -> None:
        """Make the source topic and start everything."""
        is_compacted = any(fault.kind == "source compacted" for fault in self.plan.faults)
        for cluster in (self.source, *self.candidates):
            cluster.create_topic(TOPIC, self.plan.partitions, {"cleanup.policy": "compact"} if is_compacted else {})
        self.given = Source(self, self.candidates)
        writer = Process("writer")
        self.schedule.start(writer, self._write)
        if self.plan.stop_at_end:
            self.schedule.run(10 * LOAD_S, lambda: not self.is_loading)
        self.ends_at_start = [log.end for log in self.source.topics[TOPIC].logs]
        for number in range(self.plan.workers):
            self.add_worker(number)
        self.add_stage_one()

    def unix_ms(self) -> int:
        """The true time."""
        return int((START_UNIX_S + self.schedule.now) * 1000)

    def cluster_of(self, named: Any) -> Cluster:
        """The cluster that a setting names."""
        return self.network.clusters[named.bootstrap_servers]

    # ---- processes

    def add_worker(self, number: int) -> None:
        """One more process of stage two."""
        self._add(Child(f"worker {number}", lambda child: lambda: worker.run(self.settings, number, lambda: child.is_told_to_stop), number % 4))

    def add_stage_one(self) -> None:
        """A process of stage one; a second one is a mistake of an operator, or of a scheduler."""
        number = sum(child.name.startswith("stage one") for child in self.children)
        self._add(Child(f"stage one {number}", self._stage_one, 3 - number % 4))

    def _stage_one(self, child: Child) -> Callable[[], object]:
        def begun(_: Settings, __: int) -> Engine:
            assert child.process is not None
            child.engine = Engine(self, child.process)
            return child.engine
        return lambda: stage.run_stage(self.settings, lambda: child.is_told_to_stop, begun)

    def _add(self, child: Child) -> None:
        self.children.append(child)
        self.start(child)

    def start(self, child: Child) -> None:
        """A new process of it."""
        if self.ended is not None or self.is_stopped or not child.is_wanted or (child.process and child.process.is_alive):
            return
        child.is_told_to_stop = False
        child.process = Process(child.name, self.plan.clock_offsets_s[child.host])
        child.process.on_end = lambda raised: self._ended(child, raised)
        self.schedule.start(child.process, child.begin(child))

    def kill(self, child: Child) -> None:
        """SIGKILL; it is started again."""
        assert child.process is not None
        process = child.process
        self._restart_later(child)
        if child.engine:
            child.engine.driver_died()
            child.engine = None
        self.schedule.kill(process)

    def _ended(self, child: Child, raised: BaseException | None) -> None:
        code = 0 if raised is None else raised.exit_code if isinstance(raised, ReoError) else 1
        said = f"{type(raised).__name__}: {raised}" if raised else "done"
        self.tell(f"{child.name} ends: {said}")
        if child.engine:
            self.schedule.kill(child.engine.process)
            child.engine = None
        if raised is not None and not isinstance(raised, ReoError):
            self.faults.unexpected(child.name, raised)
        if code in self.recovers_from and not self.is_stopped:
            self.stop_for(operator.recover)
        elif not self.is_stopped and ends_service(code, self.plan.stop_at_end and not child.is_told_to_stop):
            self.end(code, said)
        else:
            self._restart_later(child)

    def stop_for(self, work: Callable[[System], None]) -> None:
        """An operator stops the service and does something; nothing is started meanwhile."""
        self.is_stopped = True
        self.stop()
        self.schedule.start(Process("operator"), lambda: work(self))

    def go_on(self) -> None:
        """The operator starts it again."""
        self.is_stopped = False
        for child in self.children:
            self.start(child)

    def end(self, code: int, why: str) -> None:
        """The service ends."""
        self.ended, self.why = code, why
        self.stop()

    def _restart_later(self, child: Child) -> None:
        self.schedule.after(child.backoff_s, lambda: self.start(child))
        child.backoff_s = min(BACKOFF_MAX_S, 2 * child.backoff_s)

    def stop(self) -> None:
        """SIGTERM to all."""
        for child in self.children:
            child.is_told_to_stop = True

    def child_of(self, process: Process | None) -> Child | None:
        """Whose process this is."""
        return next((child for child in self.children if child.process is process), None) if process else None

    # ---- the source's writers

    def _write(self) -> None:
        """Records for about `LOAD_S`, single ones and transactions; every third transaction is aborted."""
        chance = self.schedule.random
        number = 0
        while self.loaded < self.plan.records:
            self.schedule.sleep(chance.uniform(0, 2 * LOAD_S / self.plan.records))
            if self.source.is_down or not logs.partitions(self.source, TOPIC):  # deleted, and not yet recreated
                continue
            partition, count = chance.randrange(logs.partitions(self.source, TOPIC)), chance.randint(1, 4)
            records = [self._record(partition) for _ in range(count)]
            if chance.random() < self.plan.transactional:
                number += 1
                self.given.write(partial(Fed.begin, topic=TOPIC, partition=partition, records=records))
                self.schedule.sleep(chance.choice((0.0, 0.0, 0.5, 5.0)))
                self.given.write(partial(Fed.end, is_commit=number % 3 != 0))
            else:
                self.given.write(partial(Fed.append, topic=TOPIC, partition=partition, records=records))
        self.is_written = True

    def _record(self, partition: int) -> tuple[Any, ...]:
        self.loaded += 1
        key = None if self.loaded % 5 == 0 and not self.source.topics[TOPIC].overrides else b"key-%d" % (self.loaded % 7)
        value = None if self.loaded % 11 == 0 else b"%d-%d" % (partition, self.loaded)
        return key, value, (("n", b"%d" % self.loaded),), self.unix_ms() - self.loaded
