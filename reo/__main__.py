"""`python -m reo`, and the command `reo`.

What takes long to import is imported inside `main`, so that Ctrl-C during a slow start ends as it
does later.
"""

from __future__ import annotations

import os
import sys

from reo.interrupt import OUTPUT_CLOSED, is_output_closed, report_interrupt


def main() -> int:
    """Run one command; returns the exit code."""
    try:
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
