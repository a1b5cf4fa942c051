"""A program that uses reo as a library: the one in docs/reference.md."""

from __future__ import annotations

LIBRARY = """
import os
import threading
from common.settings import load
from deduplicator import worker
from replicator import stage

settings = load(os.environ)
copied = threading.Event()
two = threading.Thread(target=worker.run, args=(settings, 0, copied.is_set))
two.start()
stage.run_stage(settings, lambda: False)
copied.set()
two.join()
"""
"""Both stages called from Python, in one process."""
