"""`python -m reo`, and the command `reo`.

What takes long to import is imported inside `main`, so that Ctrl-C during a slow start ends as it
does later.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from reo.interrupt import OUTPUT_CLOSED, is_output_closed, report_interrupt

INVALID = 2
"""As for an invalid setting."""


def find_hidden_package() -> str:
    """What is wrong when another module of the same name hides one of reo's packages, or an empty
    string. The path decides: PYTHONPATH stands before what is installed.
    """
    for name in ("common", "deduplicator", "replicator"):
        spec = importlib.util.find_spec(name)
        found = Path((spec and spec.origin) or name)
        if found.parent.parent != Path(__file__).parent.parent:
            return (
                f"{found} hides reo's package `{name}`: rename that module, or take its folder out"
                " of PYTHONPATH"
            )
    return ""


def main() -> int:
    """Run one command; returns the exit code."""
    try:
        return _run()
    finally:
        _drop_unwritten_errors()


def _drop_unwritten_errors() -> None:
    """Where the log's disk is full, or its reader is gone: Python would end with 120 when it cannot
    write what standard error still holds, and a stop's own code would be lost.
    """
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _run() -> int:
    try:
        if hidden := find_hidden_package():
            print(f"reo: {hidden}", file=sys.stderr)
            return INVALID
        from reo import cli

        exit_code = cli.main()
        sys.stdout.flush()
    except KeyboardInterrupt:  # before the command has its own handler
        return report_interrupt()
    except BrokenPipeError:
        if not is_output_closed():
            raise
        # what is left is flushed at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OUTPUT_CLOSED
    return exit_code


if __name__ == "__main__":  # the processes of `reo verify` import this module too
    sys.exit(main())
