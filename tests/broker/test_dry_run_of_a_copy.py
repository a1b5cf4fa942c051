"""`reo check` of a copy that stands, on real brokers: where it would go on, what the service would
stop with, and what is only a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from common.kafka.consumer_group import Commit
from tests.conftest import Start, make_topic_name
from tests.harness.commands import ESCAPE, as_json, everything, on_a_terminal, reo
from tests.harness.findings import list_findings
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.recovery import (
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


def truncate_source(clusters: Clusters, topic: str) -> None:
    """The source deletes what was not copied."""
    clusters.source.write(topic, make_records(range(FIRST_RECORDS, 2 * FIRST_RECORDS), PARTITIONS))
    for answer in clusters.source.admin.delete_records(
        [TopicPartition(topic, 0, FIRST_RECORDS // PARTITIONS + 5)]
    ).values():
        answer.result()


def recreate_source(clusters: Clusters, topic: str) -> None:
    """Another topic of the same name."""
    clusters.source.delete(topic)
    clusters.source.create(topic, PARTITIONS)


def reset_offsets(clusters: Clusters, topic: str) -> None:
    """An operator has set the group's offsets."""
    wait_for_empty_group(clusters.destination, topic)
    alter_offsets(
        clusters.destination, topic, {partition: Commit(0, "") for partition in range(PARTITIONS)}
    )


def write_foreign_records(clusters: Clusters, topic: str) -> None:
    """Another producer writes to the destination, and the source has records to copy."""
    more = make_records(range(FIRST_RECORDS, FIRST_RECORDS + 4 * PARTITIONS), PARTITIONS)
    clusters.source.write(topic, more)
    clusters.destination.write(topic, more[:1] + more[2 * PARTITIONS :])


@pytest.mark.parametrize(
    ("harm", "exit_code", "error", "words"),
    [
        (
            truncate_source,
            20,
            "SourceTruncated",
            "offsets were deleted at the source before they were copied",
        ),
        (recreate_source, 21, "SourceRecreated", "is not the one that was copied"),
        (reset_offsets, 23, "FrontierUnreadable", "carries no frontier"),
        (write_foreign_records, 25, "ForeignWriter", "was not written by this copy"),
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
    copy_and_stop(clusters, topic, start, make_records(range(FIRST_RECORDS), PARTITIONS))
    wait_for_empty_group(clusters.destination, topic)
    before = everything(clusters.destination, topic)
    well = as_json(clusters, topic, "check")
    assert everything(clusters.destination, topic) == before
    each = FIRST_RECORDS // PARTITIONS
    assert list_findings(well, "ok", "frontier")[0].endswith(
        f"would continue at source offsets 0={each}, 1={each}; 0 offsets to copy"
    )
    assert list_findings(well, "ok", "consumer group")[0].endswith("stage two does not run")
    assert list_findings(well, "ok", "source after")
    harm(clusters, topic)
    said = as_json(clusters, topic, "check", exit_code=exit_code)
    assert [finding["error"] for finding in said["findings"] if finding["level"] == "error"] == [
        error
    ]
    assert words in list_findings(said, "error")[0]
    assert read_commits(clusters.destination, topic).keys() == {0, 1}


def test_a_destination_that_is_gone_is_said(clusters: Clusters, topic: str, start: Start) -> None:
    """Deleted, and recreated by hand: the copy would begin again, which is a warning; nothing is
    called copied, and a limit of the lag is exceeded also with 0 records.
    """
    copy_and_stop(clusters, topic, start, make_records(range(FIRST_RECORDS), PARTITIONS))
    wait_for_empty_group(clusters.destination, topic)
    for change_topic in (
        lambda: clusters.destination.delete(topic),
        lambda: clusters.destination.create(topic, PARTITIONS),
    ):
        change_topic()
        (said,) = list_findings(as_json(clusters, topic, "check"), "warning", "frontier")
        assert "a destination that is gone" in said
        assert f"begin again at source offsets 0=0, 1=0; {FIRST_RECORDS} offsets to copy" in said
        status = as_json(clusters, topic, "status")
        assert f"The copy begins again; {FIRST_RECORDS} records wait" in status["progress"]
        lag = as_json(clusters, topic, "lag", "--max-records", str(2 * FIRST_RECORDS), exit_code=26)
        assert lag["total"]["both"]["records"] == FIRST_RECORDS
        assert all(row["destination_gone"] for row in lag["partitions"])


def test_what_a_torn_transaction_left_is_a_warning(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Records after the frontier that are the source's next ones: the copy goes on over them."""
    copy_and_stop(clusters, topic, start, make_records(range(FIRST_RECORDS), PARTITIONS))
    wait_for_empty_group(clusters.destination, topic)
    more = make_records(range(FIRST_RECORDS, FIRST_RECORDS + 4 * PARTITIONS), PARTITIONS)
    clusters.source.write(topic, more)
    clusters.destination.write(topic, more[: 2 * PARTITIONS])
    said = as_json(clusters, topic, "check")
    assert list_findings(said, "warning", "frontier")[0].startswith(
        f"the destination has {2 * PARTITIONS} records after the frontier"
    )


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
def copied_topic(clusters: Clusters, start_for_module: Start) -> str:
    """The topic of a copy whose service has stopped."""
    topic = make_topic_name("copied")
    copy_and_stop(clusters, topic, start_for_module, make_records(range(FIRST_RECORDS), PARTITIONS))
    wait_for_empty_group(clusters.destination, topic)
    return topic


def test_while_the_service_runs(clusters: Clusters, copied_topic: str, start: Start) -> None:
    """Its members are named, its frontiers read, and nothing is called wrong; in words, one line
    each, coloured on a terminal only.
    """
    service = start(copied_topic, "deduplicator")
    wait_for_frontiers(service, PARTITIONS)
    said = reo(clusters, copied_topic, "check").stdout.splitlines()
    service.stop()
    assert {line.split()[0] for line in said[:-1]} == {"ok"}
    assert said[-1] == "0 errors, 0 warnings: the service can run; nothing was changed"
    assert [line for line in said if "consumer group: " in line and "the service runs" in line]
    assert ESCAPE in on_a_terminal(build_environment(clusters, copied_topic, {}), "check")


def test_candidates_are_looked_at_one_by_one(clusters: Clusters, copied_topic: str) -> None:
    """One has the copy's records, one does not answer: a warning, since the copy can go on. When
    none answers it is an error. With limits as short as these, any cluster can answer too late.
    """
    deaf, there = deaf_address(), clusters.source.address

    def check(other: str, exit_code: int | None) -> Any:
        return as_json(
            clusters,
            copied_topic,
            "check",
            exit_code=exit_code,
            source_bootstrap_servers=f"{deaf};{other}",
            source_mode="failover",
            connect_timeout_s="2",
            source_request_timeout_ms="1000",
        )

    def is_one_compared() -> bool:
        said = check(there, None)
        return list_findings(said, "ok", f"source candidate {there}")[1:] == [
            f"has the copy's last records ({FIRST_RECORDS} compared)"
        ] and [f"source candidate {deaf}"] * 2 == [
            finding["about"] for finding in said["findings"] if finding["level"] == "warning"
        ]

    def is_none_there() -> bool:
        return [
            finding["error"]
            for finding in check(deaf_address(), 10)["findings"]
            if finding["level"] == "error"
        ] == ["ClusterUnreachable"]

    until(is_one_compared, "one has the records, and one is warned of")
    until(is_none_there, "that none answers is the only error")


def test_another_copy_with_the_same_application_is_a_warning(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """It copies another topic: both would be in one group."""
    other = f"{topic}-other"
    clusters.source.create(topic, 1)
    clusters.source.create(other, 1)
    service = start(topic, "deduplicator")
    until(lambda: service.http_get("/readyz")[0] == 200, "it works")
    said = as_json(clusters, other, "check", application=f"reo-{topic}")
    (warning,) = list_findings(said, "warning", "application")
    assert f"the members of group reo-{topic} copy through {topic}-proxy," in warning
    assert not list_findings(as_json(clusters, topic, "check"), "warning", "application")
    service.stop()
