"""`python -m replicator.check_filter_sql`: start Spark, let it check `filter.sql`, and end.
`reo check` runs it.

Exit code 0: a start of stage one would take the condition; else that of the error, whose message is
printed.
"""

from __future__ import annotations

import logging
import os
import sys

from common import settings
from common.errors import ReoError
from common.parent_death_signal import kill_children
from replicator.spark import session


def main() -> int:
    """Returns the exit code."""
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        session.start_session(settings.load(os.environ), partitions=1)
    except ReoError as error:
        print(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    kill_children()  # the JVM
    os._exit(exit_code)
