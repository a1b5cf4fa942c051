"""What every stage process does around its work: settings from the environment, logs, signals, exit
code.

A process ends with 0 when its work is done, with the exit code of the `ReoError` that ended it, or
with 1 for any unexpected error. It leaves the error's text in a file; with `--stop-at-end`, stage
one also leaves COMPLETE_FILE. The supervisor reads nothing else.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from common import clock, logs, settings
from common.errors import ReoError, SettingsInvalid
from common.settings import Settings

log = logging.getLogger(__name__)
Stopping = Callable[[], bool]
COMPLETE_FILE = "complete"
"""In the service's folder: when stage one began its last plan, in monotonic seconds."""


def run(
    stage: str, work: Callable[[Settings, Stopping], int | None], loaded: Settings | None = None
) -> int:
    """Do the work until it is done or SIGTERM or SIGINT asks for the end; returns the exit code."""
    faulthandler.enable()  # a crash in a library leaves the stack of every thread on stderr
    stop = clock.create_event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        loaded = loaded or settings.load(os.environ)
    except SettingsInvalid as error:  # how a log line looks is a setting too
        logs.report_settings_error(stage, error, error.exit_code)
        return error.exit_code
    try:
        logs.configure_logging(loaded, stage)
        for line in loaded.list_warnings():
            log.warning(line)
        return work(loaded, stop.is_set) or 0
    except ReoError as error:
        leave_error(f"{type(error).__name__}: {error}")
        log.error(
            "%s: %s",
            type(error).__name__,
            error,
            extra={"facts": {"error": type(error).__name__, "exit_code": error.exit_code}},
        )
        return error.exit_code
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"  # the stack trace follows
        leave_error(reason)
        log.exception(
            "%s: unexpected, a defect of reo or of a library; the supervisor starts this process"
            " again",
            reason,
        )
        return 1


def leave_error(text: str) -> None:
    """What ends this process, for the supervisor, if it has one: in the service's folder, which has
    the folder of the metrics.
    """
    metrics = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if metrics:
        with suppress(OSError):
            _name_error_file(Path(metrics).parent, os.getpid()).write_text(
                text, encoding="utf-8", errors="backslashreplace"
            )


def take_error(folder: Path, process_id: int) -> str:
    """What a process has left that has ended; empty if nothing, as after a signal."""
    file = _name_error_file(folder, process_id)
    with suppress(OSError):
        text = file.read_text(encoding="utf-8", errors="replace")
        file.unlink()
        return text
    return ""


def _name_error_file(folder: Path, process_id: int) -> Path:
    return folder / f"error-{process_id}"
