"""The runtime that processes use (`common.runtime`): another one can take its place, for clocks
that were handed out before, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from common import runtime
from common.background_probe import Probe


class Still(runtime.SystemRuntime):
    """A runtime whose clock stands where it is put."""

    now = 5.0

    def monotonic(self) -> float:
        """Where it was put."""
        return self.now


@pytest.fixture
def still() -> Iterator[Still]:
    """In the place of the real one, for one test."""
    replaced = Still()
    before = runtime.use_runtime(replaced)
    yield replaced
    runtime.use_runtime(before)


def test_a_clock_that_is_a_default_is_the_one_in_use(still: Still) -> None:
    """`clock=runtime.monotonic` asks the runtime in use at each call; nothing is bound when a
    module is imported.
    """
    probe = Probe[int](lambda: 1, 0, patience_s=3.0)
    assert probe.has_answered
    still.now += 4.0
    assert not probe.has_answered


def test_the_real_runtime_is_the_interpreters() -> None:
    """Its clocks are the kernel's, and work for several arguments at once is answered in their
    order, or with the error of one.
    """
    for clock, kernels in ((runtime.time, time.time), (runtime.monotonic, time.monotonic)):
        before = kernels()
        assert before <= clock() <= kernels()
    assert 0 <= runtime.get_random_bits(7) < 128
    assert runtime.run_parallel(str, [3, 1, 2]) == ["3", "1", "2"]
    assert runtime.run_parallel(str, []) == []
    with pytest.raises(ValueError, match="'x'"):
        runtime.run_parallel(int, ["1", cast(Any, "x")])
    worked = runtime.create_event()
    runtime.start_thread(worked.set, "test")
    assert worked.wait(30)
