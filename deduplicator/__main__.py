"""`python -m deduplicator [worker]`: one process of stage two, with the settings of the
environment.
"""

import sys

from common import stage_process
from common.kafka import client_watch
from common.settings import Settings
from common.stage_process import Stopping
from deduplicator import same_name_worker, worker

NUMBER = int(sys.argv[1]) if len(sys.argv) > 1 else 0


def run(settings: Settings, stopping: Stopping) -> None:
    """Stage two."""
    with same_name_worker.explain_fenced(settings, NUMBER):
        worker.run(settings, NUMBER, stopping)


client_watch.start()
sys.exit(stage_process.run(f"deduplicator-{NUMBER}", run))
