"""Stage one on a standalone cluster of Spark: the same exact copy, also when executors die or stand
still.

The driver is the service's own JVM; the tasks run in executors of two workers. Each fault is one of
an executor that was at work: it had tasks of the copy, and the copy went on in its absence or had
to wait for it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from tests.conftest import Start
from tests.harness.kafka import COPY_S, Clusters, make_records, until
from tests.harness.service import Service
from tests.harness.spark_cluster import HERE, SparkCluster, freeze, jar_names, state_of, thaw
from tools.faults.load import Load

PARTITIONS = 4
FOR_BOTH = 6
"""More than the cores of one worker: the run waits for both executors."""
RECORDS_PER_S = 500
FROZEN_S = 8.0
HEAL_S = 100
ON_CLUSTER = {"replicator_memory_mb": "512"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers; the last test takes one away."""
    with SparkCluster(tmp_path_factory.mktemp("spark") / "cluster") as running:
        yield running


@pytest.fixture(autouse=True)
def driver_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors find the driver by this machine's loopback address, whatever its name resolves
    to.
    """
    for name, value in HERE.items():
        monkeypatch.setenv(name, value)


def count_runs(service: Service) -> int:
    """How many runs stage one has begun."""
    return len(re.findall(r"begins at \{", service.log))


def find_executors(cluster: SparkCluster) -> dict[int, int]:
    """The executor of each living worker, by the worker's number, when each has one."""
    found = {worker.pid: cluster.executors(worker) for worker in cluster.alive}
    return (
        {worker: executors[0] for worker, executors in found.items()}
        if all(len(executors) == 1 for executors in found.values())
        else {}
    )


@pytest.mark.long
def test_executors_copy_exactly(
    clusters: Clusters, topic: str, start: Start, cluster: SparkCluster
) -> None:
    """In Real-Time Mode, on two workers: records from before and after the start, by executors that
    were given the connector's jars and the sink.
    """
    clusters.source.create(topic, FOR_BOTH)
    clusters.source.write(topic, make_records(range(4000), FOR_BOTH))
    service = start(topic, replicator_master=cluster.url, **ON_CLUSTER)
    clusters.wait_for_copy(topic, 4000)
    assert len(find_executors(cluster)) == 2, "both workers have an executor"
    clusters.source.write(topic, make_records(range(4000, 6000), FOR_BOTH))
    clusters.wait_for_copy(topic, 6000)  # in the same batch: no boundary is due for minutes
    until(
        lambda: all(cluster.partitions_read(number, topic) for number in range(2)),
        "each worker says that it has read some, in Real-Time Mode",
    )
    until(
        lambda: (
            set.union(*(cluster.partitions_read(number, topic) for number in range(2)))
            == set(range(FOR_BOTH))
        ),
        "and both together all",
    )
    assert {"spark-sql-kafka", "kafka-clients", "reo-sink"} <= jar_names(cluster.folder), (
        "the driver has shipped the connector and the sink"
    )
    service.stop()
    until(
        lambda: not any(cluster.executors(worker) for worker in cluster.alive),
        "executors end with their driver",
    )


@pytest.mark.long  # an executor that dies: tests/e2e/test_executor.py too
def test_a_dead_and_a_frozen_executor_are_healed(
    clusters: Clusters, topic: str, start: Start, cluster: SparkCluster
) -> None:
    """Under a steady load a worker dies with its executor; then the other's executor stands still
    for seconds: exact in the end, by itself.
    """
    clusters.source.create(topic, PARTITIONS)
    service = start(topic, replicator_master=cluster.url, **ON_CLUSTER)
    with Load(clusters.source, topic, PARTITIONS, RECORDS_PER_S) as load:
        until(
            lambda: clusters.destination.count_offsets(topic) > RECORDS_PER_S,
            "the copy has begun",
            COPY_S,
        )
        kill_a_worker_at_work(clusters, topic, service, cluster)
        freeze_the_executor_at_work(clusters, topic, service, cluster)
        load.stop()
        assert load.aborted > 0
    visible = sum(map(len, clusters.source.read(topic).values()))
    clusters.wait_for_copy(topic, visible)
    assert service.process.poll() is None
    service.stop()


def kill_a_worker_at_work(
    clusters: Clusters, topic: str, service: Service, cluster: SparkCluster
) -> None:
    """A worker whose executor reads partitions dies with it: the other one takes over all."""
    before = until(lambda: find_executors(cluster), "both workers have an executor")
    doomed = until(
        lambda: [number for number in range(2) if cluster.partitions_read(number, topic)],
        "an executor reads partitions of the source",
    )[0]
    victim = cluster.alive[doomed]
    killed = cluster.kill_worker(victim)
    died = time.monotonic()
    assert before[victim.pid] in killed
    ends = clusters.destination.end_offsets(topic)
    until(
        lambda: all(
            end > ends[partition] + RECORDS_PER_S
            for partition, end in clusters.destination.end_offsets(topic).items()
        ),
        "the other worker copies every partition alone",
        HEAL_S,
        [service.read_log_tail()],
    )
    repeated = service.metric("reo_records_dropped_total", reason="duplicate") + service.metric(
        "reo_records_dropped_total", reason="stale"
    )
    print(
        f"measured: {time.monotonic() - died:.1f} s from the kill until every partition went"
        f" on; runs: {count_runs(service)}, repeated: {repeated}"
    )
    assert cluster.alive[0].pid != victim.pid
    until(
        lambda: cluster.partitions_read(1 - doomed, topic) == set(range(PARTITIONS)),
        "the living worker has taken over what the dead one read",
    )


def freeze_the_executor_at_work(
    clusters: Clusters, topic: str, service: Service, cluster: SparkCluster
) -> None:
    """The executor of the only living worker stands still: nothing is copied meanwhile, and the
    copy goes on with it.
    """
    frozen = until(lambda: find_executors(cluster), "it has an executor")[cluster.alive[0].pid]
    freeze(frozen)
    stood = time.monotonic()
    until(
        lambda: has_stopped_writing(clusters, topic), "nothing is written to the intermediate topic"
    )
    still = clusters.destination.count_offsets(f"{topic}-proxy")
    until(
        lambda: time.monotonic() > stood + FROZEN_S,
        "the executor has stood still for some seconds",
    )
    assert clusters.destination.count_offsets(f"{topic}-proxy") == still, (
        "the frozen executor was the one that copies"
    )
    assert state_of(frozen) == "T"
    thaw(frozen)
    moved = time.monotonic()
    until(
        lambda: clusters.destination.count_offsets(f"{topic}-proxy") > still,
        "the copy goes on",
        COPY_S,
    )
    print(
        f"measured: {time.monotonic() - moved:.1f} s from SIGCONT to the next record, runs:"
        f" {count_runs(service)}"
    )


def has_stopped_writing(clusters: Clusters, topic: str) -> bool:
    """Whether the intermediate topic does not grow for a second, while the source does."""
    before = (
        clusters.destination.count_offsets(f"{topic}-proxy"),
        clusters.source.count_offsets(topic),
    )
    time.sleep(1)
    return (
        clusters.destination.count_offsets(f"{topic}-proxy") == before[0]
        and clusters.source.count_offsets(topic) > before[1]
    )
