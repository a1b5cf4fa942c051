"""`reo check` on real brokers: what would be done is said, what is wrong is an error with the
service's own exit code, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from common.kafka.consumer_group import Commit
from tests.conftest import Start, make_topic_name
from tests.harness.commands import ESCAPE, as_json, everything, on_a_terminal, reo
from tests.harness.kafka import Clusters, make_records
from tests.harness.recovery import (
    CONSUMER_PROTOCOL,
    FIRST_RECORDS,
    PARTITIONS,
    alter_offsets,
    copy_and_stop,
    read_commits,
    wait_for_empty_group,
)
from tests.harness.service import build_environment, deaf_address
from tests.harness.stage_one import wait_for_frontiers
from tests.harness.topic_configs import change

Setup = Callable[[Clusters, str], dict[str, str]]


def found(said: dict[str, Any], level: str, about: str = "") -> list[str]:
    """What was seen at this level, of things whose name begins so."""
    return [
        finding["seen"]
        for finding in said["findings"]
        if finding["level"] == level and finding["about"].startswith(about)
    ]


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
    assert (said["exit_code"], said["errors"], found(said, "error"), found(said, "warning")) == (
        0,
        0,
        [],
        [],
    )
    made = found(said, "ok", "topic ")
    assert len(made) == 2
    assert all(
        text.startswith(f"does not exist: it would be created with {PARTITIONS} partitions")
        and "retention.ms=-1" in text
        for text in made
    )
    (begin,) = found(said, "ok", "frontier")
    assert begin.endswith(
        f"would begin at source offsets 0=0, 1=0; {FIRST_RECORDS} offsets to copy"
    )
    assert (
        len(found(said, "ok", "source cluster"))
        == len(found(said, "ok", "destination cluster"))
        == 1
    )
    assert "at least Kafka 2.5" in found(said, "ok", "destination brokers")[0]
    later = as_json(clusters, topic, "check", source_start="0=7")
    assert f"0=7, 1=0; {FIRST_RECORDS - 7} offsets" in found(later, "ok", "frontier")[0]


def unreachable(clusters: Clusters, topic: str) -> dict[str, str]:
    """Nobody listens there."""
    clusters.source.create(topic, PARTITIONS)
    return {"destination_bootstrap_servers": deaf_address(), "connect_timeout_s": "2"}


def missing(clusters: Clusters, topic: str) -> dict[str, str]:
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
    """Records could vanish between the stages."""
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


def filled(clusters: Clusters, topic: str) -> dict[str, str]:
    """Somebody else's records."""
    clusters.source.create(topic, PARTITIONS)
    clusters.destination.create(topic, PARTITIONS)
    clusters.destination.create(f"{topic}-proxy", PARTITIONS, max_message_bytes="2000000")
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
        (missing, 11, "TopicMissing", "does not exist"),
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
        (filled, 22, "FrontierLost", "has no frontier"),
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


def truncated(clusters: Clusters, topic: str) -> None:
    """The source deletes what was not copied."""
    clusters.source.write(topic, make_records(range(FIRST_RECORDS, 2 * FIRST_RECORDS), PARTITIONS))
    for answer in clusters.source.admin.delete_records(
        [TopicPartition(topic, 0, FIRST_RECORDS // PARTITIONS + 5)]
    ).values():
        answer.result()


def recreated(clusters: Clusters, topic: str) -> None:
    """Another topic of the same name."""
    clusters.source.delete(topic)
    clusters.source.create(topic, PARTITIONS)


def reset(clusters: Clusters, topic: str) -> None:
    """An operator has set the group's offsets."""
    wait_for_empty_group(clusters.destination, topic)
    alter_offsets(
        clusters.destination, topic, {partition: Commit(0, "") for partition in range(PARTITIONS)}
    )


@pytest.mark.parametrize(
    ("harm", "exit_code", "error", "words"),
    [
        (
            truncated,
            20,
            "SourceTruncated",
            "offsets were deleted at the source before they were copied",
        ),
        (recreated, 21, "SourceRecreated", "is not the one that was copied"),
        (reset, 23, "FrontierUnreadable", "carries no frontier"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_each_error_of_a_copy_that_stands(
    clusters: Clusters,
    topic: str,
    start: Start,
    harm: Callable[[Clusters, str], None],
    exit_code: int,
    error: str,
    words: str,
) -> None:
    """Before the harm all is well and the copy would go on where it is; after it the error is the
    one that the service would stop with.
    """
    copy_and_stop(
        clusters, topic, start, make_records(range(FIRST_RECORDS), PARTITIONS), **CONSUMER_PROTOCOL
    )
    wait_for_empty_group(clusters.destination, topic)
    before = everything(clusters.destination, topic)
    well = as_json(clusters, topic, "check")
    assert everything(clusters.destination, topic) == before
    each = FIRST_RECORDS // PARTITIONS
    assert found(well, "ok", "frontier")[0].endswith(
        f"would continue at source offsets 0={each}, 1={each}; 0 offsets to copy"
    )
    assert found(well, "ok", "consumer group")[0].endswith("stage two does not run")
    assert found(well, "ok", "source after")
    harm(clusters, topic)
    said = as_json(clusters, topic, "check", exit_code=exit_code)
    assert [finding["error"] for finding in said["findings"] if finding["level"] == "error"] == [
        error
    ]
    assert words in found(said, "error")[0]
    assert read_commits(clusters.destination, topic).keys() == {0, 1}


def test_warnings_do_not_end_it(clusters: Clusters, topic: str) -> None:
    """Smaller records, a shorter retention, other cleanup, narrower timestamps, an intermediate
    topic that is not as reo makes it: each is a warning with what to do, exit code 0.
    """
    clusters.source.create(topic, PARTITIONS, max_message_bytes="2000000")
    clusters.destination.create(
        topic, PARTITIONS, max_message_bytes="1000000", message_timestamp_before_max_ms="3600000"
    )
    change(clusters.destination, topic, retention_ms="60000", cleanup_policy="compact,delete")
    clusters.destination.create(
        f"{topic}-proxy", PARTITIONS, max_message_bytes="2000001", retention_ms="3600000"
    )
    change(clusters.source, topic, cleanup_policy="delete")
    said = as_json(clusters, topic, "check", destination_producer_options_message_max_bytes="1000")
    warned = [finding for finding in said["findings"] if finding["level"] == "warning"]
    assert (said["errors"], said["warnings"]) == (0, len(warned))
    for words in (
        "of up to 1000000: a larger record stops the copy",
        "message.max.bytes=1000, and the source takes",
        "records older than 60 s are deleted",
        "message.timestamp.before.max.ms=3600000",
        "cleanup.policy=compact,delete, and delete is expected",
        "retention.ms=3600000, and -1 is expected",
        "max.message.bytes=2000001, and 2004096 is expected",
    ):
        assert [finding["to_do"] for finding in warned if words in finding["seen"]], words
    assert all(finding["to_do"] for finding in warned)


@pytest.fixture(scope="module")
def standing(clusters: Clusters, start_for_module: Start) -> str:
    """The topic of a copy whose service has stopped."""
    topic = make_topic_name("standing")
    copy_and_stop(
        clusters,
        topic,
        start_for_module,
        make_records(range(FIRST_RECORDS), PARTITIONS),
        **CONSUMER_PROTOCOL,
    )
    wait_for_empty_group(clusters.destination, topic)
    return topic


def test_while_the_service_runs(clusters: Clusters, standing: str, start: Start) -> None:
    """Its members are named, its frontiers read, and nothing is called wrong; in words, one line
    each, coloured on a terminal only.
    """
    service = start(standing, "deduplicator", **CONSUMER_PROTOCOL)
    wait_for_frontiers(service, PARTITIONS)
    said = reo(clusters, standing, "check").stdout.splitlines()
    service.stop()
    assert {line.split()[0] for line in said[:-1]} == {"ok"}
    assert said[-1] == "0 errors, 0 warnings: the service can run; nothing was changed"
    assert [
        line for line in said if "consumer group: " in line and line.endswith("the service runs")
    ]
    assert ESCAPE in on_a_terminal(build_environment(clusters, standing, {}), "check")


def test_candidates_are_looked_at_one_by_one(clusters: Clusters, standing: str) -> None:
    """One has the copy's records, one does not answer: a warning, since the copy can go on. When
    none answers it is an error.
    """
    deaf, there = deaf_address(), clusters.source.address
    brief = {
        "source_mode": "failover",
        "connect_timeout_s": "2",
        "source_request_timeout_ms": "1000",
    }
    said = as_json(clusters, standing, "check", source_bootstrap_servers=f"{deaf};{there}", **brief)
    assert (
        found(said, "ok", f"source candidate {there}")[1]
        == f"has the copy's last records ({FIRST_RECORDS} compared)"
    )
    assert [f"source candidate {deaf}"] * 2 == [
        finding["about"] for finding in said["findings"] if finding["level"] == "warning"
    ]
    said = as_json(
        clusters,
        standing,
        "check",
        exit_code=10,
        source_bootstrap_servers=f"{deaf};{deaf_address()}",
        **brief,
    )
    assert [finding["error"] for finding in said["findings"] if finding["level"] == "error"] == [
        "ClusterUnreachable"
    ]
