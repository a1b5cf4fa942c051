"""`python -m reo`, and the command `reo`.

What takes long to import is imported inside `main`, so that Ctrl-C during a slow start ends as it does later.
"""

from __future__ import annotations

import sys

from reo.interrupt import report_interrupt


def main() -> int:
    """Run one command; returns the exit code."""
    try:
        from reo import cli

        return cli.main()
    except KeyboardInterrupt:  # before the command has its own handler
        return report_interrupt()


if __name__ == "__main__":  # the processes of `reo verify` import this module too
    sys.exit(main())
