"""`reo check` before a copy, on real brokers: what would be done is said, what is wrong is an error
with the service's own exit code, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.commands import as_json, everything, reo
from tests.harness.findings import list_findings
from tests.harness.kafka import Clusters, make_records
from tests.harness.recovery import FIRST_RECORDS, PARTITIONS
from tests.harness.service import deaf_address
from tests.harness.topic_configs import change

Setup = Callable[[Clusters, str], dict[str, str]]


def test_a_new_copy(clusters: Clusters, topic: str) -> None:
    """Nothing is wrong; what would be made, and where the copy would begin, is said. Nothing is
    made.
    """
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, make_records(range(FIRST_RECORDS), PARTITIONS))
    before = [everything(cluster, topic) for cluster in (clusters.source, clusters.destination)]
    said = as_json(clusters, topic, "check")
    assert [
        everything(cluster, topic) for cluster in (clusters.source, clusters.destination)
    ] == before
    assert (
        said["exit_code"],
        said["errors"],
        list_findings(said, "error"),
        list_findings(said, "warning"),
    ) == (
        0,
        0,
        [],
        [],
    )
    made = list_findings(said, "ok", "topic ")
    assert len(made) == 2
    assert all(
        text.startswith(f"does not exist: it would be created with {PARTITIONS} partitions")
        and "retention.ms=-1" in text
        for text in made
    )
    assert "partitions, the brokers' default number of replicas and" in made[0]
    assert "partitions, 1 replica and" in made[1], "there is one broker"
    assert "min.insync.replicas=1" in made[1]
    (begin,) = list_findings(said, "ok", "frontier")
    assert begin.endswith(
        f"would begin at source offsets 0=0, 1=0; {FIRST_RECORDS} offsets to copy"
    )
    assert (
        len(list_findings(said, "ok", "source cluster"))
        == len(list_findings(said, "ok", "destination cluster"))
        == 1
    )
    assert "at least Kafka 2.5" in list_findings(said, "ok", "destination brokers")[0]
    assert list_findings(said, "ok", "stage two") == ["the compiled path is used"]
    later = as_json(clusters, topic, "check", source_start="0=7", deduplicator_compiled="no")
    assert list_findings(later, "ok", "stage two") == [
        "Python does all the work: deduplicator.compiled is no"
    ]
    assert f"0=7, 1=0; {FIRST_RECORDS - 7} offsets" in list_findings(later, "ok", "frontier")[0]


def test_what_deletes_records_is_said_before_it_does(clusters: Clusters, topic: str) -> None:
    """By age and by size, of a copy that would be created and of one that is there. A limit in
    bytes counts what is written: uncompressed, it deletes more than at the source.
    """
    clusters.source.create(topic, 1, retention_bytes="4000000")

    def check(level: str, **more: str) -> list[str]:
        return list_findings(as_json(clusters, topic, "check", **more), level, "retention of")

    (said,) = check("warning")
    assert said.startswith("records before the last 4000000 bytes of a partition are deleted, and")
    assert check("ok") == ["records are never deleted for their age"]
    assert check("warning", producer_compression_type="gzip") == []
    change(clusters.source, topic, retention_bytes=None, retention_ms=None)
    (said,) = check("ok")
    assert said.startswith("retention.ms is the destination cluster's default (at the source")
    assert "; retention.bytes is the destination cluster's default (at the source" in said
    clusters.destination.create(topic, 1, retention_bytes="3000000")
    (said,) = check("warning")
    assert said == (
        "records before the last 3000000 bytes of a partition are deleted, soon after they arrive;"
        " at the source records are never deleted for their size"
    )


def unreachable(clusters: Clusters, topic: str) -> dict[str, str]:
    """Nobody listens there."""
    clusters.source.create(topic, PARTITIONS)
    return {"destination_bootstrap_servers": deaf_address(), "connect_timeout_s": "2"}


def leave_source_missing(clusters: Clusters, topic: str) -> dict[str, str]:
    """Nobody has made the source topic."""
    return {}


def fewer_partitions(clusters: Clusters, topic: str) -> dict[str, str]:
    """The destination has one."""
    clusters.source.create(topic, PARTITIONS)
    clusters.destination.create(topic, 1)
    return {}


def other_timestamps(clusters: Clusters, topic: str) -> dict[str, str]:
    """The destination replaces them."""
    clusters.source.create(topic, PARTITIONS)
    clusters.destination.create(topic, PARTITIONS, message_timestamp_type="LogAppendTime")
    return {}


def small_intermediate(clusters: Clusters, topic: str) -> dict[str, str]:
    """What the source takes does not fit between the stages."""
    clusters.source.create(topic, PARTITIONS)
    clusters.destination.create(f"{topic}-proxy", PARTITIONS, max_message_bytes="1000")
    return {}


def compacted_intermediate(clusters: Clusters, topic: str) -> dict[str, str]:
    """Envelopes have no key."""
    clusters.source.create(topic, PARTITIONS)
    clusters.destination.create(f"{topic}-proxy", PARTITIONS, cleanup_policy="compact")
    return {}


def too_many_replicas(clusters: Clusters, topic: str) -> dict[str, str]:
    """One broker cannot hold three."""
    clusters.source.create(topic, PARTITIONS)
    return {"topics_replication_factor": "3"}


def never_in_sync(clusters: Clusters, topic: str) -> dict[str, str]:
    """Two of one replica."""
    clusters.source.create(topic, PARTITIONS)
    clusters.destination.create(topic, PARTITIONS, min_insync_replicas="2")
    return {}


def cycle(clusters: Clusters, topic: str) -> dict[str, str]:
    """One topic under two spellings of one cluster."""
    clusters.source.create(topic, PARTITIONS)
    return {
        "destination_bootstrap_servers": clusters.source.address.replace("127.0.0.1", "localhost")
    }


def brief_session(clusters: Clusters, topic: str) -> dict[str, str]:
    """Brokers take no less than six seconds."""
    clusters.source.create(topic, PARTITIONS)
    return {"deduplicator_session_timeout_ms": "1000"}


def fill_destination(clusters: Clusters, topic: str) -> dict[str, str]:
    """Somebody else's records."""
    clusters.source.create(topic, PARTITIONS)
    clusters.destination.create(topic, PARTITIONS)
    clusters.destination.create(f"{topic}-proxy", PARTITIONS, max_message_bytes="2000000")
    clusters.destination.write(topic, make_records(range(5), 1))
    return {}


def fill_without_intermediate(clusters: Clusters, topic: str) -> dict[str, str]:
    """As another replicator leaves a topic: the intermediate topic is not there yet."""
    clusters.source.create(topic, PARTITIONS)
    clusters.destination.create(topic, PARTITIONS)
    clusters.destination.write(topic, make_records(range(5), 1))
    return {}


def beyond_the_end(clusters: Clusters, topic: str) -> dict[str, str]:
    """There is no such offset to begin at."""
    clusters.source.create(topic, PARTITIONS)
    return {"source_start": "0=7"}


@pytest.mark.parametrize(
    ("harm", "exit_code", "error", "words"),
    [
        (unreachable, 10, "ClusterUnreachable", "the destination cluster at 127.0.0.1:"),
        (leave_source_missing, 11, "TopicMissing", "does not exist"),
        (fewer_partitions, 13, "TopicsUnfit", "has 1 partitions"),
        (other_timestamps, 13, "TopicsUnfit", "LogAppendTime"),
        (small_intermediate, 13, "TopicsUnfit", "takes batches of up to 1000 bytes"),
        (compacted_intermediate, 13, "TopicsUnfit", "has cleanup.policy=compact"),
        (too_many_replicas, 13, "TopicsUnfit", "topics.replication_factor"),
        (never_in_sync, 13, "TopicsUnfit", "min.insync.replicas=2 and 1 replicas"),
        (cycle, 14, "Cycle", "the same topic of the same cluster"),
        (
            brief_session,
            2,
            "SettingsInvalid",
            "deduplicator.session_timeout_ms is 1000, and the destination accepts 6000",
        ),
        (fill_destination, 22, "FrontierLost", "has no frontier"),
        (fill_without_intermediate, 22, "FrontierLost", "has no frontier"),
        (beyond_the_end, 2, "SettingsInvalid", "source.start asks for offset 7"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_each_error_before_a_copy(
    clusters: Clusters, topic: str, harm: Setup, exit_code: int, error: str, words: str
) -> None:
    """The error is named with the exit code that the service would end with, alone, and nothing is
    changed.
    """
    more = harm(clusters, topic)
    before = everything(clusters.destination, topic)
    said = as_json(clusters, topic, "check", exit_code=exit_code, **more)
    assert everything(clusters.destination, topic) == before
    errors = [finding for finding in said["findings"] if finding["level"] == "error"]
    assert {(finding["error"], finding["exit_code"]) for finding in errors} == {(error, exit_code)}
    assert any(words in finding["seen"] for finding in errors)
    assert all(finding["to_do"] for finding in errors)


def test_a_mistyped_topic_is_guessed(clusters: Clusters, topic: str) -> None:
    """The nearest of the topics that are there is named; what is like none of them is not
    guessed.
    """
    clusters.source.create(f"{topic}-orders", 1)
    said = reo(clusters, f"{topic}-ordres", "lag", exit_code=11).stderr
    assert (
        f"the source topic {topic}-ordres does not exist at {clusters.source.address} (did you mean"
        f" {topic}-orders?). Create it, or correct" in said
    )
    assert "did you mean" not in reo(clusters, "q", "lag", exit_code=11).stderr
