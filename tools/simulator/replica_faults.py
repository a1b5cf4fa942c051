"""Injects a broker that answers fetches and has fewer records than the one that answers
ListOffsets: a leader that was replaced and does not know it yet, a new leader whose high watermark
lags, or a follower (KIP-392).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tools.simulator.child import Child
from tools.simulator.fault_helpers import choose_partition
from tools.simulator.kafka.log import Log

if TYPE_CHECKING:
    from tools.simulator.fault_injector import FaultInjector

BEHIND_S = (1.0, 15.0)


def _let_source_replica_lag(
    injector: FaultInjector, generator: random.Random, _: Child | None
) -> str:
    """All consumers of a source partition see its present end for a while."""
    route, partition = choose_partition(injector, generator)
    tp = route.get_source(partition)
    log = injector.system.source.find_log(*tp)
    if log is None or log.fetch_end is not None:
        return ""
    seconds = generator.uniform(*BEHIND_S)
    log.fetch_end = log.end
    injector.schedule_end(seconds, lambda: _catch_up(log))
    return f"{tp} at {log.end} for {seconds:.1f} s"


def _catch_up(log: Log) -> None:
    log.fetch_end = None
    log.notify_watchers()


INJECTORS: dict[str, Callable[[FaultInjector, random.Random, Child | None], str]] = {
    "source replica behind": _let_source_replica_lag,
}
