"""Stage one's heap, and how much of it what was fetched may take.

Every partition has a task and a consumer of its own, and all of them hold an answer or two. With 4 MB each and a heap of 512 MB, 64 partitions left
nothing, and the garbage collector took two thirds of stage one's time: 12 µs a record instead of 4 (docs/performance.md has how cost grows now).
"""

from __future__ import annotations

from common.settings import Settings

FETCH_MIN, FETCH_MAX = 64 * 2**10, 4 * 2**20
FETCHED_SHARE = 32
"""One in so many bytes of the heap is for what one answer each brings."""
HEAP_MB, FOR_PARTITIONS, MB_A_PARTITION = 512, 16, 8


def heap_mb(settings: Settings, partitions: int) -> int:
    """`replicator.memory_mb`, or what so many partitions need."""
    given = settings.text("replicator.memory_mb")
    return int(given) if given else HEAP_MB + MB_A_PARTITION * max(0, partitions - FOR_PARTITIONS)


def fetch_bytes(settings: Settings, partitions: int) -> int:
    """What one partition's consumer fetches at a time (max.partition.fetch.bytes). A batch that is larger comes all the same, alone (KIP-74)."""
    return max(FETCH_MIN, min(FETCH_MAX, heap_mb(settings, partitions) * 2**20 // FETCHED_SHARE // partitions))
