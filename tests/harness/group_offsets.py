"""What consumer groups have committed, and `reo offsets translate` as an operator gives it."""

from __future__ import annotations

import subprocess
import sys

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from demo import fair_share
from tests.harness.commands import COMMAND_S
from tests.harness.kafka import ROOT, Cluster, Clusters
from tests.harness.service import build_environment
from tests.harness.transactional_copy import PARTITIONS


def commit(cluster: Cluster, topic: str, group: str, offsets: dict[int, int]) -> None:
    """What a consumer of the group commits."""
    topic_partitions = [
        TopicPartition(topic, partition, offset) for partition, offset in offsets.items()
    ]
    for answer in (
        cluster.admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, topic_partitions)]
        )[group]
        .result()
        .topic_partitions
    ):
        assert answer.error is None


def committed(cluster: Cluster, topic: str, group: str) -> dict[int, int]:
    """What the group has committed."""
    asked = ConsumerGroupTopicPartitions(
        group, [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    )
    answers = cluster.admin.list_consumer_group_offsets([asked])[group].result().topic_partitions
    return {answer.partition: answer.offset for answer in answers if answer.offset >= 0}


def translate(
    clusters: Clusters, topic: str, group: str, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """The command as an operator gives it."""
    done = fair_share.run(
        [sys.executable, "-m", "reo", "offsets", "translate", "--group", group, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"} | build_environment(clusters, topic, more),
        timeout_s=COMMAND_S,
        check=False,
    )
    print(
        f"--- reo offsets translate {' '.join(arguments)}:"
        f" {done.returncode}\n{done.stdout}{done.stderr}"
    )
    assert "Traceback" not in done.stderr
    return done
