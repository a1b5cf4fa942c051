"""`python -m deduplicator [worker]`: one process of stage two, with the settings of the
environment.
"""

import sys

from common import stage_process
from common.kafka import client_watch
from deduplicator import worker

NUMBER = int(sys.argv[1]) if len(sys.argv) > 1 else 0
client_watch.start()
sys.exit(
    stage_process.run(
        f"deduplicator-{NUMBER}", lambda settings, stopping: worker.run(settings, NUMBER, stopping)
    )
)
