"""Stage one on a standalone cluster of two Spark workers: one dies with its executor, the other's
executor is stopped.
"""

from __future__ import annotations

import os
import time
from unittest.mock import patch

from tests.harness.kafka import until
from tests.harness.spark_cluster import HERE, SparkCluster, freeze, thaw
from tools.faults.run import HEAL_S, Run, Story

MEMORY_MB = "512"


def kill_and_freeze_executors(run: Run) -> None:
    """The other worker takes over the partitions of the dead one; when its executor resumes, the
    copy continues. The Spark cluster ends with the story, so the story waits for the copy.
    """
    with patch.dict(os.environ, HERE), SparkCluster(run.folder / "spark") as cluster:
        service = run.start(replicator_master=cluster.url, replicator_memory_mb=MEMORY_MB)
        run.wait_for_progress()
        killed_worker = cluster.alive[run.rng.randrange(2)]
        until(lambda: cluster.executors(killed_worker), "the worker has an executor")
        cluster.kill_worker(killed_worker)
        run.record_fault("SIGKILL of a worker with its executor")
        run.wait_for_progress()
        frozen = until(lambda: cluster.executors(cluster.alive[0]), "the other worker has one")[0]
        freeze(frozen)
        run.record_fault("SIGSTOP of an executor")
        time.sleep(run.rng.uniform(2, 12))  # the duration is the fault
        thaw(frozen)
        run.wait_for_progress()
        run.load.stop()
        run.clusters.wait_for_copy(run.topic, sum(map(len, run.read_source().values())), HEAL_S)
        run.stop(service)


STORIES = (Story("Spark executor lost, another frozen", kill_and_freeze_executors),)
