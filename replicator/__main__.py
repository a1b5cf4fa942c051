"""`python -m replicator`: the process of stage one, with the settings of the environment."""

import sys

from common import process
from replicator import stage

sys.exit(process.run("replicator", stage.work))
