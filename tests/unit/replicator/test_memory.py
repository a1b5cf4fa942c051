"""Stage one's heap by partitions, and what each of them may fetch (`replicator.spark.memory`)."""

from __future__ import annotations

import pytest

from common.settings import load
from replicator.spark.memory import compute_fetch_bytes, compute_heap_mb
from tests.unit.common.settings.test_settings import GOOD


@pytest.mark.parametrize(
    ("partitions", "given", "heap", "fetched"),
    [
        (1, "", 512, 4 * 2**20),
        (16, "", 512, 2**20),
        (64, "", 896, 448 * 2**10),
        (64, "512", 512, 256 * 2**10),
        (1000, "512", 512, 64 * 2**10),
    ],
)
def test_the_heap_is_shared_out(partitions: int, given: str, heap: int, fetched: int) -> None:
    """By default it grows beyond 16 partitions; a heap that is given is kept, and the partitions
    share it.
    """
    settings = load(GOOD | ({"REO_REPLICATOR_MEMORY_MB": given} if given else {}))
    assert (compute_heap_mb(settings, partitions), compute_fetch_bytes(settings, partitions)) == (
        heap,
        fetched,
    )
