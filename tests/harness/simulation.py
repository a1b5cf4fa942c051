"""A simulated cluster with one topic, and processes that use it, for tests of the simulated Kafka
alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.harness.kafka_scripts import ScriptContext
from tools.simulator.kafka import Cluster, Network, RequestOutcome, clients
from tools.simulator.schedule import START_UNIX_S, Process, Schedule

TOPIC = "topic"


class Simulation(Network):
    """One cluster with a topic; `outcomes` are those of the next requests of an API."""

    def __init__(self, seed: int = 1, partitions: int = 1) -> None:
        super().__init__(Schedule(seed))
        self.cluster = self.clusters["here"] = Cluster(self.schedule, "here")
        self.cluster.create_topic(TOPIC, partitions)
        self.outcomes: dict[str, list[RequestOutcome]] = {}
        self.raised: list[BaseException] = []
        self.story: list[tuple[float, str, Any]] = []

    def choose_outcome(self, cluster: Cluster, api: str, process: Process | None) -> RequestOutcome:
        """The next planned outcome."""
        planned = self.outcomes.get(api)
        return planned.pop(0) if planned else "ok"

    def start(self, name: str, work: Callable[[ScriptContext], object]) -> Process:
        """Start a process with clients of its own."""

        def on_end(raised: BaseException | None) -> None:
            if raised is not None:
                self.raised.append(raised)

        def live() -> None:
            work(
                ScriptContext(
                    clients(self),
                    "here",
                    TOPIC,
                    self.schedule.sleep,
                    lambda: (START_UNIX_S + self.schedule.now) * 1000,
                    lambda work: self.schedule.start(process, work),
                )
            )

        process = Process(name, on_end=on_end)
        self.schedule.start(process, live)
        return process

    def run(self, seconds: float = 300.0) -> None:
        """Run the schedule. Raises the exception of a process, if any."""
        self.schedule.run(self.schedule.now + seconds)
        for raised in self.raised:
            raise raised

    def note(self, who: str, what: Any) -> None:
        """Add a line to the story."""
        self.story.append((self.schedule.now, who, what))

    def values(self, committed: bool = True, partition: int = 0) -> list[bytes | None]:
        """The values that a consumer reads from the beginning."""
        log = self.cluster.log(TOPIC, partition)
        return [record.value for record in log.read(log.begin, 10_000, committed)[0]]
