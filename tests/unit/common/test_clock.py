"""The clock (`common.clock`), and what stands in its place."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common import clock


def test_another_clock_takes_its_place_until_it_is_undone() -> None:
    """One that lacks a function is refused, and replaces nothing."""
    names = [function.__name__ for function in clock.FUNCTIONS]
    undo = clock.replace(SimpleNamespace(**dict.fromkeys(names, lambda *_: 7)))
    assert clock.monotonic() == clock.get_random_bits(1) == 7
    undo()
    before = clock.monotonic()
    assert before <= clock.monotonic() < before + 3600
    with pytest.raises(AttributeError, match="time"):
        clock.replace(SimpleNamespace(monotonic=lambda: 7))
    assert clock.monotonic() >= before


def test_the_clock_is_the_interpreters() -> None:
    """Its time is the kernel's, and work for several arguments at once is answered in their order,
    or with the error of one.
    """
    for asked, kernels in ((clock.time, time.time), (clock.monotonic, time.monotonic)):
        before = kernels()
        assert before <= asked() <= kernels()
    assert 0 <= clock.get_random_bits(7) < 128
    assert clock.run_parallel(str, [3, 1, 2]) == ["3", "1", "2"]
    assert clock.run_parallel(str, []) == []
    with pytest.raises(ValueError, match="'x'"):
        clock.run_parallel(int, ["1", cast(Any, "x")])
    worked = clock.create_event()
    clock.start_thread(worked.set, "test")
    assert worked.wait(30)
