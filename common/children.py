"""What a process asks of the kernel so that nothing it started outlives it.

A supervisor that is killed cannot stop its children any more. Linux can: PR_SET_PDEATHSIG (prctl(2)) sends a signal to the
child when the thread that started it ends.
"""

from __future__ import annotations

import ctypes
import signal

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends. For `preexec_fn`."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
