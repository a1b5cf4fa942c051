"""Stage one's heap, and how much of it fetched records may take.

Every partition has a task and a consumer of its own, and each consumer holds one or two fetch
responses. With 4 MB each and a heap of 512 MB, 64 partitions left nothing, and the garbage
collector took two thirds of stage one's time: 12 µs a record instead of 4 (docs/performance.md
shows how the cost grows now).
"""

from __future__ import annotations

from common.settings import Settings

FETCH_MIN, FETCH_MAX = 64 * 2**10, 4 * 2**20
FETCHED_SHARE = 32
"""One fetch response of every partition, together, takes at most this fraction (1/n) of the
heap.
"""
HEAP_MB, FOR_PARTITIONS, MB_A_PARTITION = 512, 16, 8


def compute_heap_mb(settings: Settings, partitions: int) -> int:
    """`replicator.memory_mb`, or the heap that this number of partitions needs."""
    return settings.replicator.memory_mb or HEAP_MB + MB_A_PARTITION * max(
        0, partitions - FOR_PARTITIONS
    )


def compute_fetch_bytes(settings: Settings, partitions: int) -> int:
    """max.partition.fetch.bytes of each partition's consumer. A larger batch is returned all the
    same, alone (KIP-74).
    """
    return max(
        FETCH_MIN,
        min(
            FETCH_MAX, compute_heap_mb(settings, partitions) * 2**20 // FETCHED_SHARE // partitions
        ),
    )
