"""What a system knows of one of the service's processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reo.service.restarts import Restarts
from tools.simulator.schedule import Process

if TYPE_CHECKING:
    from tools.simulator.spark_query import Engine


@dataclass(eq=False)
class Child:
    """One process of the service, with all its restarts."""

    name: str
    create_main: Callable[[Child], Callable[[], object]]
    """Returns the main function of a new process."""
    host: int
    process: Process | None = None
    restarts: Restarts = field(default_factory=Restarts)
    started: float = 0.0
    """Unix time."""
    is_enabled: bool = True
    engine: Engine | None = None
    """The JVM of stage one."""
    is_stop_requested: bool = False
    complete_at: float | None = None
    """Of a process of stage one that has ended: what `Stage.run` has returned."""

    @property
    def metric_labels(self) -> tuple[str, str]:
        """The labels `stage` and `worker` of its metrics."""
        if self.name.startswith("stage one"):
            return "replicator", "0"
        return "deduplicator", self.name.split()[1]
