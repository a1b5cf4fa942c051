"""Topics kept alike: what is set on the source topic goes over when reo creates the copy's topics,
and on demand; what cannot go over is named.
"""

from __future__ import annotations

import json
import subprocess

import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from common.errors import TopicsUnfit
from common.kafka import topic_creation
from common.kafka.clients import admin
from common.settings import load
from tests.conftest import Start
from tests.harness.commands import LONG_COMMAND_S, reo
from tests.harness.judge import Record
from tests.harness.kafka import Cluster, Clusters, make_records, until
from tests.harness.service import STOP_S, build_environment, stopped
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate
from tests.unit.test_client_options import refusal
from tests.unit.test_settings import GOOD

GOES = {
    "retention.ms": "-1",
    "cleanup.policy": "compact,delete",
    "segment.bytes": "10485760",
    "compression.type": "zstd",
    "max.compaction.lag.ms": "86400000",
    "message.timestamp.after.max.ms": "7200000",
}
STAYS = {
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "true",
    "leader.replication.throttled.replicas": "0:1",
    "message.timestamp.before.max.ms": "3600000",
    "message.timestamp.type": "LogAppendTime",
}
INTERMEDIATE = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "LogAppendTime",
}


def own(cluster: Cluster, topic: str) -> dict[str, str]:
    """What is set on the topic itself."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = cluster.admin.describe_configs([resource])[resource].result()
    return {
        name: entry.value
        for name, entry in entries.items()
        if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    }


def change(cluster: Cluster, topic: str, **config: str | None) -> None:
    """Set configurations of a topic, or take them off."""
    entries = [
        ConfigEntry(
            name.replace("_", "."),
            value,
            incremental_operation=(
                AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
            ),
        )
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    cluster.admin.incremental_alter_configs([resource])[resource].result()
    until(
        lambda: all(own(cluster, topic).get(entry.name) == entry.value for entry in entries),
        "the broker has the configuration",
    )


def reo_topics(
    clusters: Clusters, topic: str, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the command as an operator does."""
    return reo(
        clusters, topic, "topics", *arguments, exit_code=None, timeout_s=LONG_COMMAND_S, **more
    )


def test_what_is_set_on_the_source_topic_goes_over(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """All that can, exactly; what cannot is named with its reason; the intermediate topic has its
    own.
    """
    clusters.source.create(
        topic, 2, **{name.replace(".", "_"): value for name, value in {**GOES, **STAYS}.items()}
    )
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, 2)
    limit = clusters.source.config(topic)["max.message.bytes"]
    assert own(clusters.destination, topic) == GOES | {
        "max.message.bytes": limit,
        "message.timestamp.type": "CreateTime",
    }
    assert own(clusters.destination, f"{topic}-proxy") == INTERMEDIATE | {
        "max.message.bytes": str(int(limit) + 4096)
    }
    for name in STAYS:
        assert f"{name} of the source topic {topic} is not copied" in service.log
    service.stop()


def test_what_the_clusters_decide_is_left_to_them(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """A topic that has nothing set gives a copy that has nothing set, but the limit on a record,
    which the source's broker may have set higher.
    """
    clusters.source.create(topic, 1)
    change(clusters.source, topic, retention_ms=None)
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, 1)
    assert own(clusters.destination, topic) == {
        "max.message.bytes": clusters.source.config(topic)["max.message.bytes"],
        "message.timestamp.type": "CreateTime",
    }
    service.stop()


def test_records_that_were_young_at_the_source_are_copied_when_they_are_old(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The source takes records of the last hour only; those of years ago were written in their
    hour, and the copy is exact.
    """
    clusters.source.create(topic, 1)
    records = [(0, record) for _, record in make_records(range(100), 1)]
    clusters.source.write(topic, records)
    change(clusters.source, topic, message_timestamp_before_max_ms="3600000")
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, 1)
    write_intermediate(
        clusters,
        topic,
        topic,
        wrap_records(
            clusters, topic, [(0, offset, record) for offset, (_, record) in enumerate(records)]
        ),
    )
    clusters.wait_for_copy(topic, 100, STOP_S)
    service.stop()


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
    before = own(destination, topic), own(destination, f"{topic}-proxy")

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
    assert (own(destination, topic), own(destination, f"{topic}-proxy")) == before
    assert destination.partitions(topic) == 2

    assert reo_topics(clusters, topic, "--apply").stdout.endswith("changed\n")
    until(
        lambda: (
            own(destination, topic)
            == before[0]
            | {
                "retention.ms": "86400000",
                "cleanup.policy": "compact",
            }
        ),
        "the broker has the configuration",
    )
    until(
        lambda: own(destination, f"{topic}-proxy") == before[1] | {"retention.ms": "-1"},
        "of the intermediate topic too",
    )
    until(
        lambda: destination.partitions(topic) == destination.partitions(f"{topic}-proxy") == 3,
        "and the partitions",
    )
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
    stopped(start(topic, "deduplicator"), 13, "TopicsUnfit", f"{topic}-proxy", "`reo topics`")
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
    assert (
        clusters.destination.partitions(topic)
        == clusters.destination.partitions(f"{topic}-proxy")
        == 2
    )


def test_a_topic_that_the_cluster_does_not_want_is_named(clusters: Clusters, topic: str) -> None:
    """A configuration that a broker refuses when the topic is made, because of its version or
    policy: a stop with its reason, not a restart for ever.
    """
    loaded = load(build_environment(clusters, topic, {}))
    cluster = loaded.destination_cluster
    with pytest.raises(
        TopicsUnfit,
        match=(
            rf"creating topic {topic} on the destination cluster: .*segment.bytes.*with 2"
            r" partitions"
        ),
    ):
        topic_creation.create_or_extend(
            admin(cluster, loaded),
            cluster,
            None,
            NewTopic(topic, 2, -1, config={"segment.bytes": "1"}),
        )


def test_what_is_kept_alike_is_changed_at_each_start(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """What `topics.sync` names has the value that is in effect at the source, also its broker's
    default; the rest stays. What would stop the copy is left.
    """
    clusters.source.create(topic, 1, min_insync_replicas="1", max_message_bytes="2000000")
    clusters.destination.create(
        topic, 1, segment_ms="3600000", retention_ms="7200000", max_message_bytes="3000000"
    )
    change(
        clusters.source,
        topic,
        retention_ms=None,
        cleanup_policy="compact",
        segment_ms="7200000",
        min_insync_replicas="3",
    )
    kept_alike = "retention.ms, cleanup.policy,max.message.bytes,min.insync.replicas"
    service = start(topic, "deduplicator", topics_sync=kept_alike)
    wait_for_frontiers(service, 1)
    assert own(clusters.destination, topic) == {
        "retention.ms": clusters.source.config(topic)["retention.ms"],
        "cleanup.policy": "compact",
        "segment.ms": "3600000",
        "max.message.bytes": "3000000",
    }
    assert (
        f"changed {topic}: cleanup.policy: delete → compact (kept alike (topics.sync))"
        in service.log
    )
    service.stop()
    default = clusters.source.config(topic)["retention.ms"]
    change(clusters.source, topic, retention_ms="1000000")
    said = reo_topics(clusters, topic, topics_sync=kept_alike).stdout
    assert f"{topic}: retention.ms: {default} → 1000000 (kept alike (topics.sync))" in said
    assert (
        f"{topic}: min.insync.replicas: stays 1 (the source has 3; with 1 replicas nothing could be"
        " written here)" in said
    )
    reo_topics(clusters, topic, "--apply", topics_sync="retention.ms")
    assert own(clusters.destination, topic)["retention.ms"] == "1000000"


@pytest.mark.parametrize(
    ("names", "part"),
    [
        (
            "retention.ms,unclean.leader.election.enable",
            (
                "'unclean.leader.election.enable' cannot be kept alike (an unclean election at the"
                " destination would"
            ),
        ),
        (
            "retention.m",
            "REO_TOPICS_SYNC: 'retention.m' cannot be kept alike. It takes cleanup.policy, ",
        ),
    ],
)
def test_what_cannot_be_kept_alike_is_refused(names: str, part: str) -> None:
    """At the start, with what can."""
    assert part in refusal(GOOD | {"REO_TOPICS_SYNC": names})
