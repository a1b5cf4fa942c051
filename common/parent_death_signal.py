"""Child processes: the kernel kills them when their parent dies.

A supervisor that is killed cannot stop its child processes. Linux can: PR_SET_PDEATHSIG (prctl(2))
sends a signal to the child when the thread that started it ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def set_parent_death_signal() -> None:
    """Tell the kernel to kill this process when its parent ends. For `preexec_fn`."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def list_children(process_id: int) -> list[int]:
    """The live children of this process, whichever thread started them (proc(5))."""
    try:
        threads = list(Path(f"/proc/{process_id}/task").iterdir())
        return [
            int(child)
            for thread in threads
            for child in (thread / "children").read_text(encoding="utf-8").split()
        ]
    except OSError:
        return []


def kill_children() -> None:
    """Send SIGKILL to every child of this process."""
    for child in list_children(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
