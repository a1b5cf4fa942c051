"""`reo recover` on real brokers: a frontier that is gone, was reset or is undecided is found from
the data, shown, committed on request, and is right.

Most tests begin with a copy of FIRST_RECORDS records that stage two made alone from envelopes
written by hand, and end with the rest copied behind it and the judge's verdict.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from common import settings as reo_settings
from common.errors import ServiceRuns
from common.frontier import decode
from common.kafka.consumer_group import Commit, Group
from common.routes import TopicPartition
from tests.conftest import Start
from tests.harness.copy_judge import Record
from tests.harness.kafka import Clusters, make_record, make_records, until
from tests.harness.recovery import (
    FIRST_RECORDS,
    PARTITIONS,
    STOP_S,
    add_source_offsets,
    alter_offsets,
    copy_and_stop,
    copy_more,
    delete_group,
    read_commits,
    read_frontiers,
    resume_copy,
    run_recover,
    wait_for_commits,
    wait_for_empty_group,
)
from tests.harness.service import build_environment, stopped
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate


@pytest.mark.long
def test_among_equal_records(clusters: Clusters, topic: str, start: Start) -> None:
    """All records of the topic are the same one, timestamp included: only counting in step can
    tell, and it does.
    """
    records = [(number % PARTITIONS, make_record(7)) for number in range(2 * FIRST_RECORDS)]
    copy_and_stop(clusters, topic, start, records)
    delete_group(clusters.destination, topic)
    clusters.source.write(topic, records[FIRST_RECORDS : FIRST_RECORDS + 20])
    assert run_recover(clusters, topic, "--apply").returncode == 0
    assert read_frontiers(clusters.destination, topic) == dict.fromkeys(
        range(PARTITIONS), FIRST_RECORDS // PARTITIONS - 1
    )
    resume_copy(clusters, topic, start, records, FIRST_RECORDS + 20)


@pytest.mark.parametrize(
    "to", [0, pytest.param(10_000, marks=pytest.mark.long)], ids=["back", "forth"]
)
def test_plain_offsets_of_an_operator(
    clusters: Clusters, topic: str, start: Start, to: int
) -> None:
    """Offsets reset by hand carry no frontier: exit code 23 names `reo recover`, which says what it
    found there and puts it right.

    The epoch is the highest of the topic. A run that began elsewhere leaves a gap, and nothing of
    it is written.
    """
    records = make_records(range(2 * FIRST_RECORDS), PARTITIONS)
    copy_and_stop(clusters, topic, start, records)
    wait_for_empty_group(clusters.destination, topic)
    alter_offsets(clusters.destination, topic, {1: Commit(to)})
    stopped(start(topic, "deduplicator"), 23, "FrontierUnreadable", "reo recover")
    wait_for_empty_group(clusters.destination, topic)
    before = read_commits(clusters.destination, topic)
    shown = run_recover(clusters, topic)
    assert f"offset {to} without a frontier (the commit has no metadata)" in shown.stdout
    assert read_commits(clusters.destination, topic) == before
    assert run_recover(clusters, topic, "--apply").returncode == 0
    after = read_commits(clusters.destination, topic)
    assert after[0] == before[0], "a frontier that the data confirms was written anew"
    assert decode(after[1].metadata).source_offset == 49
    epoch = decode(after[0].metadata).epoch
    assert decode(after[1].metadata).epoch == epoch > 0
    planned_before = [
        (partition, offset, record)
        for partition, offset, record in add_source_offsets(records, 150)
        if partition == 1
    ]
    # from a frontier that was never true: it leaves 50-74 out
    current_run = wrap_records(clusters, topic, planned_before, epoch)
    write_intermediate(clusters, topic, topic, current_run)
    resume_copy(clusters, topic, start, records)


@pytest.mark.parametrize(
    "healed_by", [pytest.param("the service", marks=pytest.mark.long), "recover"]
)
def test_an_older_metadata_string_of_ours(
    clusters: Clusters, topic: str, start: Start, healed_by: str
) -> None:
    """Set back to a frontier of before: the check at the start takes what follows for a torn
    transaction and moves over it. `recover` sees it too.
    """
    records = make_records(range(2 * FIRST_RECORDS), PARTITIONS)
    clusters.source.create(topic, PARTITIONS)
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, PARTITIONS)
    copy_more(clusters, topic, service, records[:40], 0)
    clusters.wait_for_copy(topic, 40, STOP_S)
    older = until(
        lambda: (
            read_commits(clusters.destination, topic)
            if read_frontiers(clusters.destination, topic) == {0: 19, 1: 19}
            else None
        ),
        "40 are committed",
    )
    copy_more(clusters, topic, service, records[:FIRST_RECORDS], 40)
    clusters.wait_for_copy(topic, FIRST_RECORDS, STOP_S)
    service.stop()
    wait_for_empty_group(clusters.destination, topic)
    alter_offsets(clusters.destination, topic, older)
    if healed_by == "recover":
        assert (
            "source offset 49 (50 of 50 records compared)  source offset 49, epoch"
            in run_recover(clusters, topic).stdout
        )
        assert run_recover(clusters, topic, "--apply").returncode == 0
        resume_copy(clusters, topic, start, records)
        return
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, PARTITIONS)
    write_intermediate(
        clusters,
        topic,
        topic,  # stage one begins at the older frontier
        wrap_records(clusters, topic, add_source_offsets(records[:FIRST_RECORDS], 40)),
    )
    until(
        lambda: service.metric("reo_torn_records_total") == FIRST_RECORDS - 40,
        "what is there already was moved over",
    )
    service.stop()
    resume_copy(clusters, topic, start, records)


def test_a_destination_that_lost_its_newest_records(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The frontier counts five records more than are there: the service stops with 26, `recover`
    finds what is left, and the lost ones are written again.
    """
    records = make_records(range(2 * FIRST_RECORDS), PARTITIONS)
    copy_and_stop(clusters, topic, start, records)
    wait_for_empty_group(clusters.destination, topic)
    commit = read_commits(clusters.destination, topic)[0]
    ahead = decode(commit.metadata)
    assert ahead.last_record
    last = ahead.last_record._replace(source_offset=ahead.source_offset + 5)
    ahead = replace(
        ahead,
        source_offset=ahead.source_offset + 5,
        sent=ahead.sent + 5,
        last_record=last,
    )
    alter_offsets(clusters.destination, topic, {0: Commit(commit.offset, ahead.encode())})
    clusters.source.write(topic, records[FIRST_RECORDS:])
    stopped(
        start(topic, "deduplicator"),
        26,
        "DestinationTruncated",
        f"{topic}-0",
        "lacks records that were committed",
    )
    wait_for_empty_group(clusters.destination, topic)
    assert (
        "source offset 49 (50 of 50 records compared)"
        in run_recover(clusters, topic, "--apply").stdout
    )
    resume_copy(clusters, topic, start, records, source_has=2 * FIRST_RECORDS)


def test_a_foreign_record_at_the_destination(clusters: Clusters, topic: str, start: Start) -> None:
    """Exit code 30, the record is shown, and nothing is committed for the other partition
    either.
    """
    copy_and_stop(clusters, topic, start, make_records(range(FIRST_RECORDS), PARTITIONS))
    delete_group(clusters.destination, topic)
    clusters.destination.write(topic, [(1, Record(b"not", b"ours", (), 1_700_000_000_000))])
    clusters.source.write(topic, make_records(range(FIRST_RECORDS, 2 * FIRST_RECORDS), PARTITIONS))
    refused = run_recover(clusters, topic, "--apply")
    assert refused.returncode == 30
    assert (
        "key, value, headers, timestamp differ between source offset 50 and destination offset"
        in refused.stderr
    )
    assert "b'not'" in refused.stderr
    assert "refused (CopyDiffers)" in refused.stdout
    assert read_commits(clusters.destination, topic) == {}
    said = json.loads(run_recover(clusters, topic, "--json").stdout)["partitions"]
    assert [row["refused"] and row["refused"]["exit_code"] for row in said] == [None, 30]


def test_it_refuses_while_the_service_runs(clusters: Clusters, topic: str, start: Start) -> None:
    """Exit code 29 and nothing is changed; should a member join after that look, the broker itself
    refuses the commit.
    """
    clusters.source.create(topic, PARTITIONS)
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, PARTITIONS)
    before = wait_for_commits(clusters.destination, topic)
    refused = run_recover(clusters, topic, "--apply")
    assert (refused.returncode, refused.stdout) == (29, "")
    assert "stop the service first" in refused.stderr
    loaded = reo_settings.load(build_environment(clusters, topic, {}))
    with pytest.raises(ServiceRuns, match="joined just now"):
        Group(loaded).commit({TopicPartition(f"{topic}-proxy", 0): Commit(0, "stolen")})
    assert read_commits(clusters.destination, topic) == before
    service.stop()
