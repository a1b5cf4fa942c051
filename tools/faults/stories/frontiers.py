"""The frontier does not match its records, is lost, or is altered by an operator; when reo refuses
to start, `reo recover` repairs it, as documented.
"""

from __future__ import annotations

import subprocess
import sys

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition

from common.errors import ForeignWriter, FrontierLost, FrontierUnreadable
from tests.harness.copy_judge import Record
from tests.harness.kafka import ROOT, until
from tests.harness.service import build_environment
from tools.faults.run import PARTITIONS, Run, Story


def copy_and_stop(run: Run) -> None:
    """Copy for a while, stop, and pause the load with records left to copy."""
    service = run.start()
    run.wait_for_progress()
    run.stop(service)
    produced_before = run.load.produced
    until(lambda: run.load.produced > produced_before + 3000, "there are records left to copy")
    run.load.pause()


def write_torn_records(run: Run) -> int:
    """Write the next records to the destination, without the service: as after a transaction whose
    records are committed and whose offsets are aborted.
    """
    source, copy = run.read_source(), run.clusters.destination.read(run.topic)
    parts = {
        partition: records[len(copy[partition]) :][: run.rng.randint(1, 400)]
        for partition, records in source.items()
    }
    run.clusters.destination.write(
        run.topic,
        [(partition, record) for partition, records in parts.items() for record in records],
    )
    number = sum(map(len, parts.values()))
    assert number
    run.record_fault("torn records", number)
    return number


def tear_transaction(run: Run) -> None:
    """The records are at the destination, the frontier is not: the start finds the records, counts
    them, and does not write them twice.
    """
    copy_and_stop(run)
    number = write_torn_records(run)
    run.load.resume()
    service = run.start()
    until(
        lambda: service.metric("reo_torn_records_total") == number, "the torn records are counted"
    )
    run.wait_for_progress()


def tear_and_add_foreign(run: Run) -> None:
    """A foreign record follows the torn records: the service stops with the named error and writes
    nothing after it.
    """
    copy_and_stop(run)
    write_torn_records(run)
    foreign = Record(b"not", b"ours", (), 1_700_000_000_000)
    run.clusters.destination.write(
        run.topic, [(partition, foreign) for partition in range(PARTITIONS)]
    )
    run.record_fault("foreign records", PARTITIONS)
    before = run.clusters.destination.read(run.topic)
    service = run.start()
    run.expect_stop(service, ForeignWriter)
    assert run.clusters.destination.read(run.topic) == before, (
        "the service wrote records after the foreign ones"
    )
    run.expected_stop = (
        f"stopped as expected: {ForeignWriter.__name__}, exit code {ForeignWriter.exit_code}"
    )


def wait_for_empty_group(run: Run) -> str:
    """Wait until the consumer group has no members; return its id."""
    group, admin = f"reo-{run.topic}", run.clusters.destination.admin
    until(
        lambda: (
            admin.describe_consumer_groups([group])[group].result().state
            == ConsumerGroupState.EMPTY
        ),
        "the static member has left the group",
    )
    return group


def recover_and_resume(run: Run) -> None:
    """`reo recover` computes the frontier from the data, and the copy continues."""
    process = subprocess.run(
        [sys.executable, "-m", "reo", "recover", "--apply"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PATH": "/usr/bin:/bin"} | build_environment(run.clusters, run.topic, {}),
    )
    assert process.returncode == 0, (
        f"reo recover ended with {process.returncode}:\n{process.stdout}{process.stderr}"
    )
    run.record_fault("reo recover")
    run.load.resume()
    run.start()
    run.wait_for_progress()


def delete_frontier(run: Run) -> None:
    """The group was deleted, or its offsets expired: the service refuses to start, and `reo
    recover` restores the frontier from the data.
    """
    copy_and_stop(run)
    group = wait_for_empty_group(run)
    run.clusters.destination.admin.delete_consumer_groups([group])[group].result()
    run.record_fault("frontier deleted")
    run.expect_stop(run.start(), FrontierLost)
    wait_for_empty_group(run)
    recover_and_resume(run)


def reset_frontier(run: Run) -> None:
    """An operator set the group's offsets with Kafka's own tool, which writes no frontier: the
    service refuses to start, and `reo recover` restores it.
    """
    copy_and_stop(run)
    offsets = [
        TopicPartition(f"{run.topic}-proxy", partition, 0) for partition in range(PARTITIONS)
    ]
    request = ConsumerGroupTopicPartitions(wait_for_empty_group(run), offsets)
    run.clusters.destination.admin.alter_consumer_group_offsets([request])[
        request.group_id
    ].result()
    run.record_fault("frontier reset")
    run.expect_stop(run.start(), FrontierUnreadable)
    wait_for_empty_group(run)
    recover_and_resume(run)


def restore_older_frontier(run: Run) -> None:
    """An older commit of reo was restored with its metadata: the data shows how far the copy is,
    and no record is written twice.
    """
    service = run.start()
    run.wait_for_progress()
    request = ConsumerGroupTopicPartitions(
        f"reo-{run.topic}",
        [TopicPartition(f"{run.topic}-proxy", partition) for partition in range(PARTITIONS)],
    )
    answers = run.clusters.destination.admin.list_consumer_group_offsets([request])
    old = answers[request.group_id].result().topic_partitions
    run.wait_for_progress()
    run.stop(service)
    older_commits = [
        TopicPartition(commit.topic, commit.partition, commit.offset, commit.metadata)
        for commit in old
    ]
    older = ConsumerGroupTopicPartitions(wait_for_empty_group(run), older_commits)
    run.clusters.destination.admin.alter_consumer_group_offsets([older])[older.group_id].result()
    run.record_fault("frontier set back")
    restarted = run.start()
    until(
        lambda: restarted.metric("reo_torn_records_total") > 0,
        "the start finds the records that are already copied",
    )
    run.wait_for_progress()


STORIES = (
    Story("torn transaction", tear_transaction),
    Story("torn transaction, a foreign record behind", tear_and_add_foreign),
    Story("frontier deleted", delete_frontier),
    Story("frontier reset by an operator", reset_frontier),
    Story("frontier set back to an older one", restore_older_frontier),
)
