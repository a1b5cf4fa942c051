"""`python -m replicator`: the process of stage one, with the settings from the environment.

It keeps the state that a restarted process needs beside the service's metrics, in a folder that is
deleted when the service ends (`reo.service.supervisor`).
"""

import os
import sys
from pathlib import Path

from common import stage_process
from common.kafka import client_watch
from replicator import stage

METRICS = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
STATE_FILE = Path(METRICS).parent / "source" if METRICS else None
client_watch.start()
sys.exit(
    stage_process.run(
        "replicator",
        lambda settings, stopping: stage.run_stage(settings, stopping, state_file=STATE_FILE),
    )
)
