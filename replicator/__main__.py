"""`python -m replicator`: the process of stage one, with the settings from the environment.

It keeps the state that a restarted process needs beside the service's metrics, in a folder that is
deleted when the service ends (`reo.service.supervisor`).
"""

import os
import sys
from pathlib import Path

from common import stage_process
from common.kafka import client_watch
from common.settings import Settings
from common.stage_process import Stopping
from replicator import stage

METRICS = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
FOLDER = Path(METRICS).parent if METRICS else None


def run(settings: Settings, stopping: Stopping) -> None:
    """Stage one; leaves `COMPLETE_FILE` for the supervisor when everything is copied."""
    complete_at = stage.run_stage(settings, stopping, state_file=FOLDER and FOLDER / "source")
    if FOLDER and complete_at is not None:
        (FOLDER / stage_process.COMPLETE_FILE).write_text(repr(complete_at), encoding="utf-8")


client_watch.start()
sys.exit(stage_process.run("replicator", run))
