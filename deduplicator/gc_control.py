"""No garbage collection inside the hot loop.

A batch makes hundreds of thousands of small objects that all die by reference counting; the cyclic collector would walk them
again and again (measured: a third of stage two's time). It is switched off, and the youngest generations are collected once a
second instead, which bounds what cycles could pile up.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def pause_gc() -> Iterator[Callable[[], None]]:
    """Switch automatic collection off for the block; yields a function that collects now."""
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield lambda: (gc.collect(1), None)[1]
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
