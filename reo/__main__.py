"""`python -m reo`, and the command `reo`.

What takes long to import is imported inside `main`, so that Ctrl-C during a slow start ends as it
does later.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from reo.interrupt import OUTPUT_CLOSED, is_output_closed, print_last_words, report_interrupt
from reo.standard_streams import OutputUnwritable, open_streams

INVALID = 2
"""As for an invalid setting."""
OUTPUT_UNWRITABLE = 1
"""Where the command itself has ended with 0."""


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
    open_streams()
    exit_code = None
    try:
        if hidden := find_hidden_package():
            print(f"reo: {hidden}", file=sys.stderr)
            return INVALID
        from reo import cli

        try:
            exit_code = cli.main()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:  # before the command has its own handler
        return report_interrupt()
    except BrokenPipeError:
        if not is_output_closed():
            raise
        exit_code = OUTPUT_CLOSED
    except OutputUnwritable as failed:
        print(f"reo: standard output cannot be written: {failed.strerror}", file=sys.stderr)
        if exit_code is None:
            print_last_words()
        exit_code = exit_code or OUTPUT_UNWRITABLE
    else:
        return exit_code
    # what is left is flushed at the end
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_code


if __name__ == "__main__":  # the processes of `reo verify` import this module too
    sys.exit(main())
