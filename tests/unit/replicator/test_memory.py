"""The heap of stage one's JVMs by tasks and partitions, and what each task may fetch
(`replicator.spark.memory`).
"""

from __future__ import annotations

import pytest

from common.settings import load
from replicator.spark.memory import compute_fetch_bytes, compute_heap_mb
from tests.unit.common.settings.test_settings import GOOD


@pytest.mark.parametrize(
    ("tasks", "partitions", "given", "heap", "fetched"),
    [
        (0, 5000, "", 512, None),
        (1, 1, "", 512, 4 * 2**20),
        (16, 16, "", 512, 2**20),
        (64, 64, "", 899, 460_288),
        (64, 64, "512", 512, 256 * 2**10),
        (200, 5000, "", 2066, 338_493),
        (2000, 2000, "", 8643, 141_606),
        (2000, 2000, "1024", 1024, 64 * 2**10),
    ],
)
def test_the_heap_follows_the_tasks(
    tasks: int, partitions: int, given: str, heap: int, fetched: int | None
) -> None:
    """By default it grows beyond 16 tasks, by what each task and the metadata of all partitions
    take; a heap that is given is kept, and the tasks share it. A driver of executors has no task.
    """
    settings = load(GOOD | ({"REO_REPLICATOR_MEMORY_MB": given} if given else {}))
    assert compute_heap_mb(settings, tasks, partitions) == heap
    if fetched is not None:
        assert compute_fetch_bytes(settings, tasks, partitions) == fetched
