"""What a process asks of the kernel so that nothing it started outlives it.

A supervisor that is killed cannot stop its children any more. Linux can: PR_SET_PDEATHSIG (prctl(2)) sends a signal to the
child when the thread that started it ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends. For `preexec_fn`."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def children_of(process_id: int) -> list[int]:
    """The processes that any thread of this one has started and that still live (proc(5))."""
    try:
        threads = list(Path(f"/proc/{process_id}/task").iterdir())
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return []


def kill_children() -> None:
    """SIGKILL to every child of this process."""
    for child in children_of(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
