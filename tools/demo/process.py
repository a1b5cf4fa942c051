"""A process beside this one: started with its log in a file, and killed for certain."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common.parent_death_signal import set_parent_death_signal


def start_process(
    command: Sequence[str | os.PathLike[str]], log: Path, **options: Any
) -> subprocess.Popen[bytes]:
    """Start it in a session of its own; its log goes on in this file. The kernel kills it when this
    process ends.
    """
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            preexec_fn=set_parent_death_signal,
            **options,
        )


def kill(process_id: int) -> bool:
    """SIGKILL; False when there was nothing to kill."""
    try:
        os.kill(process_id, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
