"""`python -m reo`."""

import sys

from reo.cli import main

if __name__ == "__main__":  # the processes of `reo verify` import this module too
    sys.exit(main())
