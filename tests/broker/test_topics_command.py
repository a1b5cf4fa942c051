"""`reo topics` on real brokers: on demand the copy's topics are made, and what has changed at the
source since then goes over.
"""

from __future__ import annotations

import json

from confluent_kafka.admin import NewPartitions

from tests.conftest import Start
from tests.harness.copy_judge import Record
from tests.harness.kafka import Cluster, Clusters, until
from tests.harness.service import STOP_S, stopped
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate
from tests.harness.topic_configs import change, read_own_configs, reo_topics


def change_both_sides(clusters: Clusters, topic: str) -> None:
    """Configurations of the source topic and a partition of it, and configurations of the copy's
    topics alone.
    """
    source, destination = clusters.source, clusters.destination
    change(
        source,
        topic,
        retention_ms="86400000",
        cleanup_policy="compact",
        max_message_bytes="1000000",
        min_insync_replicas="1",
    )
    change(destination, topic, segment_ms="3600000")
    change(destination, f"{topic}-proxy", retention_ms="60000")
    source.admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    until(lambda: source.partitions(topic) == 3, "the source has the new partition")


def wait_for_changes(
    destination: Cluster, topic: str, copy: dict[str, str], intermediate: dict[str, str]
) -> None:
    """Until the copy's topics have what they had before and what goes over."""
    until(
        lambda: (
            read_own_configs(destination, topic)
            == copy
            | {
                "retention.ms": "86400000",
                "cleanup.policy": "compact",
            }
        ),
        "the broker has the configuration",
    )
    until(
        lambda: (
            read_own_configs(destination, f"{topic}-proxy") == intermediate | {"retention.ms": "-1"}
        ),
        "of the intermediate topic too",
    )
    until(
        lambda: destination.partitions(topic) == destination.partitions(f"{topic}-proxy") == 3,
        "and the partitions",
    )


def test_changes_of_the_source_topic_on_demand(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Without --apply nothing changes; with it the copy follows, and what is set on it alone stays,
    as does a higher limit. Then nothing is left to do.
    """
    source, destination = clusters.source, clusters.destination
    source.create(topic, 2, max_message_bytes="2000000")
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, 2)
    service.stop()
    assert (
        "destination and intermediate topics are configured as the source topics ask"
        in reo_topics(clusters, topic).stdout
    )
    change_both_sides(clusters, topic)
    before = read_own_configs(destination, topic), read_own_configs(destination, f"{topic}-proxy")

    said = reo_topics(clusters, topic)
    assert said.returncode == 0
    for words in (
        f"{topic}: retention.ms: -1 → 86400000 (as the source topic)",
        f"{topic}: cleanup.policy: delete → compact",
        f"{topic}: partitions: 2 → 3",
        f"{topic}: max.message.bytes: stays 2000000 (the source has 1000000 now",
        f"{topic}: segment.ms: stays 3600000 (set here only)",
        f"{topic}: min.insync.replicas: stays 1",
        f"{topic}-proxy: retention.ms: 60000 → -1",
        f"{topic}-proxy: partitions: 2 → 3",
        "nothing was changed; `reo topics --apply` changes it",
    ):
        assert words in said.stdout, words
    assert (
        read_own_configs(destination, topic),
        read_own_configs(destination, f"{topic}-proxy"),
    ) == before
    assert destination.partitions(topic) == 2

    assert reo_topics(clusters, topic, "--apply").stdout.endswith("changed\n")
    wait_for_changes(destination, topic, *before)
    left = json.loads(reo_topics(clusters, topic, "--json").stdout)
    assert [row for row in left["rows"] if row["then"] is not None] == []
    assert {row["what"] for row in left["rows"]} == {
        "max.message.bytes",
        "segment.ms",
        "min.insync.replicas",
    }


def test_larger_records_are_allowed_for_on_demand(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The source's limit is raised: the service stops rather than stall, and says what to do; done,
    a record of the new size is copied.
    """
    clusters.source.create(topic, 1)
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, 1)
    service.stop()
    change(clusters.source, topic, max_message_bytes="3000000")
    stopped(
        start(topic, "deduplicator"), 13, "TopicsUnfit", f"{topic}-proxy", "`reo topics --apply`"
    )
    assert reo_topics(clusters, topic, "--apply").returncode == 0
    again = start(topic, "deduplicator")
    wait_for_frontiers(again, 1)
    large = Record(b"k", b"x" * 2_500_000, (), 1_700_000_000_000)
    clusters.source.write(topic, [(0, large)])
    write_intermediate(clusters, topic, topic, wrap_records(clusters, topic, [(0, 0, large)]))
    clusters.wait_for_copy(topic, 1, STOP_S)
    again.stop()


def test_topics_are_made_on_demand(clusters: Clusters, topic: str) -> None:
    """Before the first start: what would be made, then made; a missing source topic is one
    error.
    """
    assert reo_topics(clusters, topic).returncode == 11
    clusters.source.create(topic, 2)
    assert f"{topic}: topic: none → 2 partitions" in reo_topics(clusters, topic).stdout
    assert clusters.destination.partitions(topic) == 0
    assert reo_topics(clusters, topic, "--apply").returncode == 0
    until(
        lambda: (
            clusters.destination.partitions(topic)
            == clusters.destination.partitions(f"{topic}-proxy")
            == 2
        ),
        "both topics exist",
    )
