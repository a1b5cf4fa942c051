"""`reo verify` on real brokers: whether two topics are equal, the first difference of each
partition, and an exit code that says so.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition

from common import settings as reo_settings
from common.frontier import decode
from common.routes import TopicPartition as Partition
from reo.compare.resume_file import ResumeFile
from reo.verify import Verification
from tests.conftest import Start
from tests.harness.commands import LONG_COMMAND_S, as_json, reo, reo_with
from tests.harness.compared_sides import wait_for_markers
from tests.harness.copy_judge import Record
from tests.harness.kafka import ROOT, Clusters, make_record, make_records, until
from tests.harness.merged_topics import build_topics_environment
from tests.harness.recovery import (
    FIRST_RECORDS,
    alter_offsets,
    copy_and_stop,
    read_commits,
    wait_for_empty_group,
)
from tests.harness.service import build_environment
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate
from tools.demo import fair_share

PARTITIONS = 2
RECORDS = 1000
Written = list[tuple[int, Record]]


def verify(clusters: Clusters, topic: str) -> subprocess.CompletedProcess[str]:
    """Run the command as an operator does."""
    return reo(clusters, topic, "verify", exit_code=None, timeout_s=LONG_COMMAND_S)


def write_both_topics(clusters: Clusters, topic: str, source: Written, copy: Written) -> None:
    """Both topics, by hand."""
    for cluster, records in ((clusters.source, source), (clusters.destination, copy)):
        cluster.create(topic, PARTITIONS)
        cluster.write(topic, records)


def test_a_live_copy_is_compared_up_to_where_the_source_was(clusters: Clusters, topic: str) -> None:
    """Producers go on writing while the copy follows: what both sides get later is left out. What
    is missing before is still a difference, and so is a record too many where the source has
    nothing after that offset.
    """
    records = make_records(range(100), 1)
    write_both_topics(clusters, topic, records, records[:90])
    settings = reo_settings.load(build_environment(clusters, topic, {}))

    def compare(end: int) -> tuple[int, str]:
        result = Verification(settings, ResumeFile(None), {Partition(topic, 0): end}).run()[0]
        return result.equal, result.difference

    assert compare(80) == (80, ""), "the destination has more, and so has the source"
    assert compare(90) == (90, ""), "the source has more"
    equal, difference = compare(95)
    assert equal == 90
    assert difference.startswith("5 records are missing, from source offset 90 on")
    clusters.destination.write(topic, [*records[90:], *records[:2]])
    equal, difference = compare(100)
    assert equal == 100
    assert difference.startswith("2 records too many, from destination offset 100 on")


def test_equal_topics_are_exact(clusters: Clusters, topic: str) -> None:
    """Exit code 0, and every record counted: an aborted transaction on one side is no difference,
    nor is what its markers do to the offsets.
    """
    records = make_records(range(RECORDS), PARTITIONS)
    write_both_topics(clusters, topic, records[:600], records)
    aborting = clusters.source.producer(transactional_id=topic)
    aborting.init_transactions(30)
    aborting.begin_transaction()
    aborting.produce(topic, b"nobody sees this", partition=0)
    assert aborting.flush(30) == 0
    aborting.abort_transaction(30)
    wait_for_markers(clusters.source, topic)
    clusters.source.write(topic, records[600:])
    done = verify(clusters, topic)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        f"{topic}-0: 500 records equal\n{topic}-1: 500 records equal\n{RECORDS} records"
        " compared in " in done.stdout
    )
    assert done.stdout.endswith("exact\n")


def test_it_waits_for_a_copy_that_runs(clusters: Clusters, topic: str, start: Start) -> None:
    """It says that it waits; when the copy has caught up, it compares, long before its time is
    over.
    """
    records = make_records(range(100), PARTITIONS)
    clusters.source.create(topic, PARTITIONS)
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, PARTITIONS)
    clusters.source.write(topic, records)
    with subprocess.Popen(
        [sys.executable, "-m", "reo", "verify", "--wait", "3600"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/bin:/bin"} | build_environment(clusters, topic, {}),
    ) as waiting:
        assert waiting.stderr
        assert waiting.stderr.readline() == "waiting up to 3600 s: 100 records are not copied yet\n"
        offsets = [
            (partition, number // PARTITIONS, record)
            for number, (partition, record) in enumerate(records)
        ]
        write_intermediate(clusters, topic, topic, wrap_records(clusters, topic, offsets))
        said, _ = fair_share.communicate(waiting, 120)
    assert waiting.returncode == 0, said
    assert "100 records compared in " in said
    service.stop()


def test_a_copy_that_is_behind_does_not_differ(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """What the source got since is not copied yet (36); what was copied and is missing differs."""
    records = make_records(range(2 * FIRST_RECORDS), PARTITIONS)
    copy_and_stop(clusters, topic, start, records)
    clusters.source.write(topic, records[FIRST_RECORDS:])
    said = reo(clusters, topic, "verify", exit_code=36, timeout_s=LONG_COMMAND_S).stdout
    each = FIRST_RECORDS // PARTITIONS
    line = f"{topic}-0: {each} records equal; {each} are not copied yet, from source offset {each}"
    assert f"{line} on\n" in said
    assert said.endswith(
        f": exact; {FIRST_RECORDS} records are not copied yet: let the copy catch up, or use --wait"
        " 60\n"
    )
    written = as_json(clusters, topic, "verify", exit_code=36)
    assert (written["verdict"], written["not_copied"]) == ("not copied yet", FIRST_RECORDS)
    reo(clusters, topic, "pause", topic)
    said = reo(clusters, topic, "verify", exit_code=36, timeout_s=LONG_COMMAND_S).stdout
    assert f"records are not copied yet: {topic} is paused since " in said
    assert said.endswith(f". To go on: reo resume {topic}\n")
    wait_for_empty_group(clusters.destination, topic)
    alter_offsets(
        clusters.destination,
        topic,
        {
            partition: commit._replace(
                metadata=replace(decode(commit.metadata), source_offset=each).encode()
            )
            for partition, commit in read_commits(clusters.destination, topic).items()
        },
    )
    said = reo(clusters, topic, "verify", exit_code=30, timeout_s=LONG_COMMAND_S).stdout
    assert f"{each} records are missing, from source offset {each} on" in said


def test_it_says_that_nothing_copies(clusters: Clusters, topic: str) -> None:
    """Not that the two sides differ: it has waited in vain, and stage two does not run."""
    write_both_topics(clusters, topic, make_records(range(100), PARTITIONS), [])
    clusters.destination.create(f"{topic}-proxy", PARTITIONS)
    said = reo(clusters, topic, "verify", "--wait", "1", exit_code=36)
    state = "100 records are not copied yet; stage two does not run"
    assert f"reo verify: not copied within 1 s: {state}. Nothing was compared" in said.stderr
    assert said.stdout == ""


def test_a_copy_that_was_deleted_holds_up_no_other(clusters: Clusters, topic: str) -> None:
    """The other topic is compared; what is missing is said, and decides, unless something
    differs.
    """
    kept, gone = f"{topic}-kept", f"{topic}-gone"
    records = make_records(range(100), PARTITIONS)
    write_both_topics(clusters, kept, records, records)
    write_both_topics(clusters, gone, records, records)
    clusters.destination.delete(gone)
    environment = build_topics_environment(clusters, topic, f"{kept},{gone}")
    done = reo_with(environment, "verify", exit_code=11)
    assert f"reo verify: the destination topic {gone} does not exist" in done.stderr
    assert f"{kept}-0: 50 records equal" in done.stdout
    assert done.stdout.endswith(": exact; 1 routes cannot be compared\n")
    clusters.source.write(kept, make_records(range(2), PARTITIONS))
    differs = reo_with(environment, "verify", exit_code=30)
    assert f"reo verify: the destination topic {gone} does not exist" in differs.stderr


DIFFERENT = {
    "missing": (lambda there: there[:-2], "2 records are missing, from source offset 498 on"),
    "missing in the middle": (
        lambda there: there[:100] + there[101:],
        "key, value, headers, timestamp differ between source offset 100",
    ),
    "twice": (
        lambda there: [*there, there[-1]],
        "1 records too many, from destination offset 500 on",
    ),
    "another value": (
        lambda there: [*there[:7], there[7]._replace(value=b"changed"), *there[8:]],
        "-1: 7 records equal; value differ between source offset 7",
    ),
    "another timestamp": (
        lambda there: [there[0]._replace(timestamp_ms=1), *there[1:]],
        "timestamp differ between source offset 0",
    ),
    "a header more": (
        lambda there: [*there[:-1], there[-1]._replace(headers=(*there[-1].headers, ("x", None)))],
        "headers differ between source offset 499",
    ),
}


@pytest.mark.parametrize("anomaly", DIFFERENT)
def test_the_first_difference_is_shown(clusters: Clusters, topic: str, anomaly: str) -> None:
    """Exit code 30, the partition and both places; the other partition is still compared to its
    end.
    """
    change, shown = DIFFERENT[anomaly]
    records = make_records(range(RECORDS), PARTITIONS)
    changed = change([record for partition, record in records if partition == 1])
    write_both_topics(
        clusters,
        topic,
        records,
        [(0, record) for partition, record in records if partition == 0]
        + [(1, record) for record in changed],
    )
    done = verify(clusters, topic)
    assert done.returncode == 30, done.stdout + done.stderr
    assert f"{topic}-0: 500 records equal\n" in done.stdout
    assert shown in done.stdout, done.stdout
    assert "1 of 2 partitions differ" in done.stdout


def test_nothing_compared_is_nothing_shown(clusters: Clusters, topic: str) -> None:
    """Exit code 37 and never the word "exact": for topics that never had a record, for a source
    that retention has emptied, for a pattern that fits nothing.
    """
    write_both_topics(clusters, topic, [], [])
    never = verify(clusters, topic)
    assert "there was no record to compare" in never.stderr
    for cluster in (clusters.source, clusters.destination):
        cluster.write(topic, make_records(range(10), PARTITIONS))
    assert verify(clusters, topic).returncode == 0
    clusters.source.admin.delete_records(
        [TopicPartition(topic, partition, 5) for partition in range(PARTITIONS)]
    )
    until(lambda: verify(clusters, topic).returncode != 0, "retention has emptied the source", 30)
    emptied = verify(clusters, topic)
    assert (
        f"{topic}-1: the records before source offset 5 and destination offset 5" in emptied.stdout
    )
    nowhere = reo_with(
        build_topics_environment(clusters, topic, f"^{topic}-nowhere.*"), "verify", exit_code=None
    )
    assert "no source topic matches" in nowhere.stderr
    for done in (never, emptied, nowhere):
        assert done.returncode == 37, done.stdout + done.stderr
        assert "0 records compared in " in done.stdout
        assert done.stdout.endswith("nothing is proved\n")
        assert "exact" not in done.stdout


def test_partitions_beyond_the_sources_are_not_compared(clusters: Clusters, topic: str) -> None:
    """The verdict says so, for people and for programs; what was compared is exact."""
    records = make_records(range(RECORDS), PARTITIONS)
    clusters.source.create(topic, PARTITIONS)
    clusters.destination.create(topic, PARTITIONS + 2)
    clusters.source.write(topic, records)
    clusters.destination.write(topic, [*records, (PARTITIONS, make_record(1))])
    done = verify(clusters, topic)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        f"not compared:\n    {topic}: partitions 2 to 3 of the destination: the source has 2\n"
        in done.stdout
    )
    assert done.stdout.endswith(": exact in what was compared\n")
    found = as_json(clusters, topic, "verify")
    assert found["verdict"] == "exact"
    assert [(row["what"], row["topic"], row["partition"]) for row in found["not_compared"]] == [
        ("partitions", topic, None)
    ]


def test_without_a_copy_it_says_so(clusters: Clusters, topic: str) -> None:
    """Exit code 11: nothing was copied yet."""
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, [(0, make_record(0))])
    done = verify(clusters, topic)
    assert done.returncode == 11
    assert "nothing was copied to it yet" in done.stderr
