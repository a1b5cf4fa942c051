"""The frontier is torn from its records, lost, or set back by an operator; what is refused is repaired by `reo recover`, as documented."""

from __future__ import annotations

import subprocess
import sys

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition

from common.errors import ForeignWriter, FrontierLost, FrontierUnreadable
from faults.run import PARTITIONS, Run, Story
from tests.judge import Record
from tests.kafka import ROOT, until
from tests.service import build_environment


def stopped(run: Run) -> None:
    """Copy for a while, stop, and hold the load with records left to copy."""
    service = run.start()
    run.flows()
    run.stop(service)
    left = run.load.handed
    until(lambda: run.load.handed > left + 3000, "there is something left to copy")
    run.load.pause()


def torn_records(run: Run) -> int:
    """Write what comes next to the destination, past the service: just what a transaction leaves whose offsets were aborted."""
    source, copy = run.source_now(), run.clusters.destination.read(run.topic)
    parts = {partition: records[len(copy[partition]):][:run.chance.randint(1, 400)] for partition, records in source.items()}
    run.clusters.destination.write(run.topic, [(partition, record) for partition, records in parts.items() for record in records])
    number = sum(map(len, parts.values()))
    assert number
    run.hit("torn records", number)
    return number


def torn(run: Run) -> None:
    """The output is there, the frontier is not: found at the start, counted, and not written twice."""
    stopped(run)
    number = torn_records(run)
    run.load.go_on()
    service = run.start()
    until(lambda: service.metric("reo_torn_records_total") == number, "the torn records are counted")
    run.flows()


def torn_and_foreign(run: Run) -> None:
    """Behind the torn records stands one that is not ours: a named stop, and nothing is written behind it."""
    stopped(run)
    torn_records(run)
    foreign = Record(b"not", b"ours", (), 1_700_000_000_000)
    run.clusters.destination.write(run.topic, [(partition, foreign) for partition in range(PARTITIONS)])
    run.hit("foreign records", PARTITIONS)
    before = run.clusters.destination.read(run.topic)
    service = run.start()
    run.stops(service, ForeignWriter)
    assert run.clusters.destination.read(run.topic) == before, "something was written behind the foreign records"
    run.stopped = f"stopped as it has to: {ForeignWriter.__name__}, exit code {ForeignWriter.exit_code}"


def group_of(run: Run) -> str:
    """The consumer group, once it has no members."""
    group, admin = f"reo-{run.topic}", run.clusters.destination.admin
    until(lambda: admin.describe_consumer_groups([group])[group].result().state == ConsumerGroupState.EMPTY, "the static member is forgotten")
    return group


def recovered(run: Run) -> None:
    """`reo recover` finds the frontier from the data, and the copy goes on."""
    done = subprocess.run([sys.executable, "-m", "reo", "recover", "--apply"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
                          env={"PATH": "/usr/bin:/bin"} | build_environment(run.clusters, run.topic, {}))
    assert done.returncode == 0, f"reo recover ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    run.hit("reo recover")
    run.load.go_on()
    run.start()
    run.flows()


def deleted(run: Run) -> None:
    """The group was deleted, or its offsets expired: refused, and found again from the data."""
    stopped(run)
    group = group_of(run)
    run.clusters.destination.admin.delete_consumer_groups([group])[group].result()
    run.hit("frontier deleted")
    run.stops(run.start(), FrontierLost)
    group_of(run)
    recovered(run)


def reset(run: Run) -> None:
    """An operator set the group's offsets with Kafka's own tool, which knows nothing of the frontier: refused, and found again."""
    stopped(run)
    places = [TopicPartition(f"{run.topic}-proxy", partition, 0) for partition in range(PARTITIONS)]
    request = ConsumerGroupTopicPartitions(group_of(run), places)
    run.clusters.destination.admin.alter_consumer_group_offsets([request])[request.group_id].result()
    run.hit("frontier reset")
    run.stops(run.start(), FrontierUnreadable)
    group_of(run)
    recovered(run)


def set_back(run: Run) -> None:
    """An older commit of ours was put back, metadata and all: the data says how far the copy is, nothing is written twice."""
    service = run.start()
    run.flows()
    request = ConsumerGroupTopicPartitions(f"reo-{run.topic}", [TopicPartition(f"{run.topic}-proxy", partition) for partition in range(PARTITIONS)])
    asked = run.clusters.destination.admin.list_consumer_group_offsets([request])
    old = asked[request.group_id].result().topic_partitions
    run.flows()
    run.stop(service)
    older = ConsumerGroupTopicPartitions(group_of(run), [TopicPartition(place.topic, place.partition, place.offset, place.metadata) for place in old])
    run.clusters.destination.admin.alter_consumer_group_offsets([older])[older.group_id].result()
    run.hit("frontier set back")
    again = run.start()
    until(lambda: again.metric("reo_torn_records_total") > 0, "the start finds what is there already")
    run.flows()


STORIES = (
    Story("torn transaction", torn),
    Story("torn transaction, a foreign record behind", torn_and_foreign),
    Story("frontier deleted", deleted),
    Story("frontier reset by an operator", reset),
    Story("frontier set back to an older one", set_back),
)
