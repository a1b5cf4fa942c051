"""What becomes of a command's words where they cannot be written: on a full disk, on a stream that
is closed (`>&-`), in a locale without these characters.

Standard output is the result: what it does not take ends the command. What standard error does not
take is lost: the exit code says how the command has ended. Both are UTF-8, as the files that reo
reads: what `reo config init` prints becomes one.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TextIO


class OutputUnwritable(OSError):
    """Standard output takes nothing more."""


class Output(io.FileIO):
    """Standard output: its error is told from all others."""

    def write(self, content: object, /) -> int:
        """As a file's. A pipe that nobody reads is another error."""
        try:
            return super().write(content)  # type: ignore[arg-type]
        except BrokenPipeError:
            raise
        except OSError as failed:
            raise OutputUnwritable(failed.errno, failed.strerror) from None


class Errors(io.FileIO):
    """Standard error, which is never full."""

    def write(self, content: object, /) -> int:
        """As a file's."""
        with suppress(OSError):
            return super().write(content)  # type: ignore[arg-type]
        return len(memoryview(content).cast("B"))  # type: ignore[arg-type]


def open_streams() -> None:
    """In place of Python's own, of which one that is closed is None."""
    # a file opened later would have the number of a closed stream; reading ends, writing fails
    flags = (os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)
    for stream, flag in zip((sys.stdin, sys.stdout, sys.stderr), flags, strict=True):
        if stream is None:
            os.set_inheritable(os.open(os.devnull, flag), True)  # the lowest number that is free
    sys.stdout = _open(Output(1, "w", closefd=False), sys.stdout)
    sys.stderr = _open(Errors(2, "w", closefd=False), sys.stderr)


def _open(file: io.FileIO, before: TextIO | None) -> io.TextIOWrapper:
    """Buffered as before."""
    is_unbuffered = getattr(before, "write_through", False)
    return io.TextIOWrapper(
        file if is_unbuffered else io.BufferedWriter(file),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=getattr(before, "line_buffering", True),
        write_through=is_unbuffered,
    )
