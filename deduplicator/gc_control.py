"""No automatic garbage collection inside the loop.

A batch creates hundreds of thousands of small objects that reference counting frees; the cyclic
collector would traverse them again and again (measured: a third of stage two's time). So it is
disabled, and the youngest generations are collected once a second instead, which limits the garbage
in reference cycles.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def pause_gc() -> Iterator[Callable[[], None]]:
    """Disable automatic collection for the block; yields a function that collects now."""
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield lambda: (gc.collect(1), None)[1]
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
