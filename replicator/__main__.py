"""`python -m replicator`: the process of stage one, with the settings of the environment.

What it has to know when it is started again it keeps beside the metrics of the service, in a folder that ends with it (`reo.supervisor`).
"""

import os
import sys
from pathlib import Path

from common import process
from replicator import stage

METRICS = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
STATE_FILE = Path(METRICS).parent / "source" if METRICS else None
sys.exit(process.run("replicator", lambda settings, stopping: stage.run_stage(settings, stopping, state_file=STATE_FILE)))
