"""A transaction that hangs, on a real broker: the service names it, `reo recover` names the command
that ends it, and then all goes on.
"""

from __future__ import annotations

import re

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conftest import Start
from tests.harness.commands import reo
from tests.harness.kafka import COPY_S, Cluster, Clusters, make_records, until
from tests.harness.recovery import (
    FIRST_RECORDS,
    PARTITIONS,
    STOP_S,
    copy_and_stop,
    resume_copy,
    run_recover,
    wait_for_empty_group,
)
from tests.harness.service import stopped


def open_transaction(cluster: Cluster, topic: str, group: str) -> Producer:
    """Offsets of the group, sent in a transaction that nobody ends but the one who gets it."""
    hanging = cluster.producer(transactional_id=f"{topic}-hanging", transaction_timeout_ms=900_000)
    hanging.init_transactions(30)
    hanging.begin_transaction()
    plain_consumer = Consumer({"bootstrap.servers": cluster.address, "group.id": group})
    hanging.send_offsets_to_transaction(
        [TopicPartition(f"{topic}-proxy", 0, 1, "pending")],
        plain_consumer.consumer_group_metadata(),
        30,
    )
    return hanging


def find_undecided_offsets(cluster: Cluster) -> dict[int, int]:
    """Where the open transactions begin on partitions of __consumer_offsets."""
    ends = cluster.end_offsets("__consumer_offsets")
    stable_ends = cluster.end_offsets("__consumer_offsets", stable=True)
    return {
        partition: offset for partition, offset in stable_ends.items() if offset < ends[partition]
    }


def find_abort_command(text: str) -> re.Match[str]:
    """The command that ends a transaction over offsets: its partition and its first offset."""
    command = re.search(
        r"abort --topic __consumer_offsets --partition (\d+) --start-offset (\d+)", text
    )
    assert command, text
    return command


def test_undecided_offsets_and_records_name_the_command(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """A transaction that stays open over the group's offsets: the service ends with 28 and names
    `reo recover`, which names the command that aborts it.

    Its `--start-offset` is where that transaction begins on the group's partition of
    __consumer_offsets. When it is aborted, all goes on.
    """
    records = make_records(range(2 * FIRST_RECORDS), PARTITIONS)
    copy_and_stop(clusters, topic, start, records)
    group = wait_for_empty_group(clusters.destination, topic)
    until(
        lambda: clusters.destination.has_no_open_transaction(topic),
        "what tests before this one left open is decided",
    )
    hanging = open_transaction(clusters.destination, topic, group)
    short = {
        "deduplicator_transaction_timeout_ms": "6000",
        "deduplicator_session_timeout_ms": "6000",
    }
    assert "kafka-transactions.sh" in reo(clusters, topic, "check", exit_code=28, **short).stdout
    assert reo(clusters, topic, "lag").stdout.splitlines()[-1].startswith("total"), (
        "frontiers as they were before the transaction"
    )
    refused = run_recover(clusters, topic, "--apply", **short)
    assert refused.returncode == 28
    command = find_abort_command(refused.stderr)
    until(
        lambda: find_undecided_offsets(clusters.destination) == {int(command[1]): int(command[2])},
        "that and nothing else is undecided",
        STOP_S,
    )
    stopped(
        start(topic, "deduplicator", **short),
        28,
        "HangingTransaction",
        "reo recover",
        command[0],
        timeout_s=COPY_S,
    )
    hanging.abort_transaction(30)
    hanging.begin_transaction()
    hanging.produce(topic, b"undecided", partition=1)
    hanging.flush(30)
    wait_for_empty_group(clusters.destination, topic)
    refused = run_recover(clusters, topic)
    assert refused.returncode == 28
    assert (
        f"abort --topic {topic} --partition 1 --start-offset"
        f" {clusters.destination.end_offsets(topic)[1] - 1}" in refused.stderr
    )
    hanging.abort_transaction(30)
    until(lambda: clusters.destination.has_no_open_transaction(topic), "it is aborted")
    assert "nothing to recover" in run_recover(clusters, topic).stdout
    resume_copy(clusters, topic, start, records)
