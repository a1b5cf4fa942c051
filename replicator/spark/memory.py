"""The heap of stage one's JVMs, and how much of it fetched records may take.

Every partition has a task and a consumer of its own, and each consumer holds one or two fetch
responses, and the metadata of every partition of its topic. With 4 MB for each response and a heap
of 512 MB, 64 partitions left nothing, and the garbage collector took two thirds of stage one's
time: 12 µs a record instead of 4 (docs/performance.md shows how the cost grows now).
"""

from __future__ import annotations

from common.settings import Settings

FETCH_MIN, FETCH_MAX = 64 * 2**10, 4 * 2**20
FETCHED_SHARE = 32
"""One fetch response of every partition, together, takes at most this fraction (1/n) of the
heap.
"""
HEAP_MB, FOR_TASKS = 512, 16
"""A heap, and for how many tasks it is enough."""
FIRST_TASKS, FIRST_MB, FURTHER_MB = 48, 8, 2
"""What the next tasks take, each, and all others. With 2 MB for the first ones, 64 partitions cost
a third more processor time a record.
"""
METADATA_KB = 1
"""What a task takes for each partition, whoever reads that one: its consumer has the metadata of
the whole topic. Of such a heap, about a third is live (`make bench ONLY=^partitions`).
"""


def compute_heap_mb(settings: Settings, tasks: int, partitions: int) -> int:
    """`replicator.memory_mb`, or the heap of a JVM that runs so many tasks at once, of so many
    partitions.
    """
    further = max(0, tasks - FOR_TASKS)
    tasks_mb = FIRST_MB * min(further, FIRST_TASKS) + FURTHER_MB * max(0, further - FIRST_TASKS)
    metadata_mb = further * partitions * METADATA_KB // 1024
    return settings.replicator.memory_mb or HEAP_MB + tasks_mb + metadata_mb


def compute_fetch_bytes(settings: Settings, tasks: int, partitions: int) -> int:
    """max.partition.fetch.bytes of each partition's consumer. A larger batch is returned all the
    same, alone (KIP-74).
    """
    heap_bytes = compute_heap_mb(settings, tasks, partitions) * 2**20
    return max(FETCH_MIN, min(FETCH_MAX, heap_bytes // FETCHED_SHARE // tasks))
