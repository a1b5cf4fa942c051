"""Topics kept in sync: what is set on the source topic is set on the copy's topics when reo creates
them, and at each start where that is asked for; what cannot go over is named.
"""

from __future__ import annotations

import pytest
from confluent_kafka.admin import NewTopic

from common.errors import TopicsUnfit
from common.kafka import topic_creation
from common.kafka.clients import create_admin_client
from common.settings import load
from reo.migration.config_drift import ConfigDrift, Difference
from tests.conftest import Start
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.service import STOP_S, build_environment
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate
from tests.harness.topic_configs import change, read_own_configs, reo_topics

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
    "min.insync.replicas": "1",
}


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
    assert read_own_configs(clusters.destination, topic) == GOES | {
        "max.message.bytes": limit,
        "message.timestamp.type": "CreateTime",
    }
    assert read_own_configs(clusters.destination, f"{topic}-proxy") == INTERMEDIATE | {
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
    assert read_own_configs(clusters.destination, topic) == {
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


@pytest.mark.parametrize(
    ("suffix", "config", "reason"),
    [
        ("", {"segment.bytes": "1"}, r"segment\.bytes.* Create or change the topic as the cluster"),
        ("_x", {}, r"collides with existing topics?: .*\. Name another one"),
    ],
    ids=["configuration", "name"],
)
def test_a_topic_that_the_cluster_does_not_want_is_named(
    clusters: Clusters, topic: str, suffix: str, config: dict[str, str], reason: str
) -> None:
    """What a broker refuses when the topic is made (a configuration because of its version or
    policy, a name that differs from another in dots and underscores only): a stop with its reason
    and what to do, not a restart for ever.
    """
    loaded = load(build_environment(clusters, topic, {}))
    cluster = loaded.destination_cluster
    clusters.destination.create(f"{topic}.x", 1)
    with pytest.raises(
        TopicsUnfit,
        match=rf"creating topic {topic}{suffix} with 2 partitions on the destination cluster: .*"
        + reason,
    ):
        topic_creation.TopicCreator(
            cluster, create_admin_client(cluster, loaded), loaded.connect_timeout_s
        ).create_or_extend(None, NewTopic(f"{topic}{suffix}", 2, -1, config=config))


def test_a_refused_change_holds_up_no_other_topic(clusters: Clusters, topic: str) -> None:
    """`reo topics --apply` for several topics: brokers refuse the change of one. The others are
    changed, and the refusal is a stop (13) with its reason.
    """
    names = [f"{topic}-{letter}" for letter in "abc"]
    for name in names:
        for cluster in (clusters.source, clusters.destination):
            cluster.create(name, 1)
    several = {"topics": ",".join(names), "source_topic": "", "application": topic}
    drift = ConfigDrift(load(build_environment(clusters, topic, several)))
    with pytest.raises(TopicsUnfit, match=rf"of topic {names[1]} of the destination .*retention"):
        drift.alter_configs(
            Difference(name, "retention.ms", "-1", "-2" if name == names[1] else "7", "")
            for name in names
        )
    assert [clusters.destination.config(name)["retention.ms"] for name in names] == ["7", "-1", "7"]


def test_what_is_kept_in_sync_is_changed_at_each_start_and_interval(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """What `topics.sync` names has the value that is in effect at the source, also its broker's
    default; the rest stays. What would stop the copy is left. With an interval the service takes
    over a later change without a restart.
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
    synced_configs = "retention.ms, cleanup.policy,max.message.bytes,min.insync.replicas"
    service = start(topic, "deduplicator", topics_sync=synced_configs, topics_sync_interval_s="1")
    wait_for_frontiers(service, 1)
    assert read_own_configs(clusters.destination, topic) == {
        "retention.ms": clusters.source.config(topic)["retention.ms"],
        "cleanup.policy": "compact",
        "segment.ms": "3600000",
        "max.message.bytes": "3000000",
    }
    assert (
        f"changed {topic}: cleanup.policy: delete → compact (kept alike (topics.sync))"
        in service.log
    )
    stage_two = service.find_pid("deduplicator")
    change(clusters.source, topic, cleanup_policy="delete")
    until(
        lambda: read_own_configs(clusters.destination, topic)["cleanup.policy"] == "delete",
        "the change is taken over",
    )
    assert service.find_pid("deduplicator") == stage_two, "without a restart"
    service.stop()
    default = clusters.source.config(topic)["retention.ms"]
    change(clusters.source, topic, retention_ms="1000000")
    said = reo_topics(clusters, topic, topics_sync=synced_configs).stdout
    assert f"{topic}: retention.ms: {default} → 1000000 (kept alike (topics.sync))" in said
    assert (
        f"{topic}: min.insync.replicas: stays 1 (the source has 3; with 1 replicas nothing could be"
        " written here)" in said
    )
    reo_topics(clusters, topic, "--apply", topics_sync="retention.ms")
    until(
        lambda: read_own_configs(clusters.destination, topic)["retention.ms"] == "1000000",
        "the broker has the configuration",
    )
