"""`python -m reo`."""

import sys

from reo.cli import main

sys.exit(main())
