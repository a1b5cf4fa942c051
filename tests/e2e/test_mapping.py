"""Mappings and shared destinations: each record once, at the place that the mapping says, in its
source partition's order, even if any process is killed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence

import pytest

from common.partition_mapping import SourceRecord
from tests.conftest import Start
from tests.harness import mappings
from tests.harness.java import partitions_of
from tests.harness.judge import Record, compare_records
from tests.harness.kafka import ROOT, Clusters, make_record, until
from tests.harness.merged_topics import (
    build_topics_environment,
    compare_merged,
    compare_merged_topics,
)
from tests.harness.recovery import add_source_offsets
from tests.harness.service import Service, send_signal, stopped
from tests.harness.stage_one import create_epoch, wrap_records

SOURCES = ("a", "b", "c")
PARTITIONS = 2
EACH = 20_000
SMALL = {"deduplicator_transaction_records": "200", "deduplicator_group_protocol": "classic"}
STOP_S = 60


def own_records(place: int, records: int = EACH) -> list[tuple[int, Record]]:
    """Records that no other source has."""
    return [
        (number % PARTITIONS, make_record(place * 1_000_000 + number)) for number in range(records)
    ]


def filled(clusters: Clusters, topic: str, names: Sequence[str], records: int = EACH) -> list[str]:
    """Sources with records of their own."""
    topics = [clusters.source.create(f"{topic}-{name}", PARTITIONS) for name in names]
    for place, name in enumerate(topics):
        clusters.source.write(
            name,
            own_records(SOURCES.index(names[place]) if names[place] in SOURCES else 9, records),
        )
    return topics


def fed(
    clusters: Clusters, source: str, intermediate: str, place: int, records: int = EACH
) -> None:
    """Write what stage one would write, and some of it twice."""
    batch = wrap_records(
        clusters, source, add_source_offsets(own_records(place, records)), create_epoch()
    )
    clusters.destination.write(intermediate, [*batch, *batch[-100:]])


def frontiers_of(service: Service, sources: Sequence[str]) -> None:
    """Wait until every partition of these sources has a frontier."""

    def made() -> bool:
        said = service.http_get("/metrics")[1]
        return all(
            re.search(
                rf'reo_frontier_offset{{(partition="{partition}",topic="{source}"|topic="{source}",partition="{partition}")',
                said,
            )
            for source in sources
            for partition in range(PARTITIONS)
        )

    until(made, "every partition has a frontier")


def test_three_sources_to_one_partition_while_stage_two_is_killed(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Two workers write three topics into one partition and are killed again and again: each record
    is there once, each source partition in its order.
    """
    sources = filled(clusters, topic, SOURCES)
    rules = ",".join(f"{source}={topic}-all:1" for source in sources)
    service = start(
        topic,
        "deduplicator",
        environment=build_topics_environment(
            clusters, topic, rules, deduplicator_workers="2", **SMALL
        ),
    )
    frontiers_of(service, sources)
    for place, source in enumerate(sources):
        before = clusters.destination.count_offsets(f"{topic}-all")
        fed(clusters, source, f"{topic}-all-{source}-proxy", place)
        for worker, more in ((0, 2000), (1, 4000)):
            until(
                lambda wanted=before + more: (
                    clusters.destination.count_offsets(f"{topic}-all") > wanted
                ),
                "records flow",
            )  # type: ignore[misc]
            send_signal(
                until(
                    lambda worker=worker: service.find_pid("deduplicator", worker),
                    "the worker lives",
                )
            )  # type: ignore[misc]
    until(
        lambda: (
            clusters.destination.count_offsets(f"{topic}-all") >= 3 * EACH
            and not compare_merged_topics(clusters, sources, f"{topic}-all", lambda *_: 1)
        ),
        "all is there",
    )

    def frontiers() -> float:
        return sum(service.metric("reo_frontier_offset", topic=source) for source in sources)

    # A killed worker's gauges are gone with it, and are there again when its successor has its
    # partitions; a counter of restarts moves when one is seen.
    until(
        lambda: service.metric("reo_stage_restarts_total", stage="deduplicator") == 6,
        "the last kill is seen",
    )
    until(lambda: frontiers() == 3 * (EACH - PARTITIONS), "every frontier is at its source's end")
    service.stop()
    assert compare_merged_topics(clusters, sources, f"{topic}-all", lambda *_: 1) == []
    assert clusters.destination.partitions(f"{topic}-all") == 2


def test_each_mapping_through_the_whole_service(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """By key as the Java producer does it, to a number, and by a function: with Spark, to the end,
    with two topics that share a destination.
    """
    sources = filled(clusters, topic, ("a", "b", "c", "d"), 2000)
    keys = [
        b"",
        b"\0",
        "größe".encode(),
        *(b"k%d" % number * (number % 7 + 1) for number in range(3000)),
    ]
    keyed = clusters.source.create(f"{topic}-keyed", 3)
    records = [
        Record(None if number % 10 == 9 else key, b"%d" % number, (), 1000 + number)
        for number, key in enumerate(keys)
    ]
    clusters.source.write(keyed, [(number % 3, record) for number, record in enumerate(records)])
    by_key = clusters.destination.create(f"{topic}-by-key", 7, message_timestamp_type="CreateTime")
    rules = (
        f"{keyed}={by_key}:key,{sources[0]}={topic}-x:2,{sources[1]}={topic}-x,"
        f"{sources[2]}={topic}-f:tests.harness.mappings:by_last_digit,{sources[3]}"
    )
    environment = build_topics_environment(clusters, topic, rules)
    service = start(topic, "--stop-at-end", environment=environment)
    assert service.wait_for_exit() == 0, service.read_log_tail()
    java = partitions_of(keys, 7)
    assert (
        compare_merged_topics(
            clusters,
            [keyed],
            by_key,
            lambda number, record: number % 7 if record.key is None else java[record.key],
        )
        == []
    )
    assert (
        compare_merged_topics(
            clusters,
            sources[:2],
            f"{topic}-x",
            lambda number, record: 2 if make_record(0).value[:4] == record.value[:4] else number,
        )
        == []
    )  # type: ignore[index]
    assert (
        compare_merged_topics(
            clusters,
            sources[2:3],
            f"{topic}-f",
            lambda _, record: int((record.value or b"")[:10]) % 10 % PARTITIONS,
        )
        == []
    )
    assert clusters.differences(sources[3]) == []
    assert (
        clusters.destination.partitions(f"{topic}-x"),
        clusters.destination.partitions(f"{topic}-f"),
    ) == (3, 2)
    verified = subprocess.run(
        [sys.executable, "-m", "reo", "verify"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert verified.returncode == 31, verified.stdout + verified.stderr
    assert verified.stderr.count("cannot be compared with its source") == 4
    assert "2000 records compared" in verified.stdout
    recovered = subprocess.run(
        [sys.executable, "-m", "reo", "recover"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert recovered.returncode == 31, recovered.stdout + recovered.stderr
    assert "the data confirms" in recovered.stdout


def test_a_source_that_joins_a_shared_destination(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Another source of a filled destination is new, and is copied; a route that is alone with what
    others have filled is not: exit code 22.
    """
    copy, rules = f"{topic}-all", [f"{topic}-{name}={topic}-all" for name in SOURCES]
    sources = filled(clusters, topic, SOURCES, 100)
    for number in (2, 3):
        service = start(
            topic,
            "deduplicator",
            environment=build_topics_environment(clusters, topic, ",".join(rules[:number])),
        )
        frontiers_of(service, sources[:number])
        for place in range(number) if number == 2 else [2]:
            fed(clusters, sources[place], f"{copy}-{sources[place]}-proxy", place, 100)
        until(
            lambda number=number: (
                clusters.destination.count_offsets(copy) >= 100 * number  # type: ignore[misc]
                and not compare_merged_topics(
                    clusters, sources[:number], copy, lambda partition, _: partition
                )
            ),
            f"{number} sources are copied",
            STOP_S,
        )
        service.stop()
    nobody_is_in_group(clusters, topic)
    again = start(
        topic, "deduplicator", environment=build_topics_environment(clusters, topic, rules[0])
    )
    stopped(again, 22, "FrontierLost", f"no frontier for {copy}-proxy-", "reo recover")
    assert compare_merged_topics(clusters, sources, copy, lambda partition, _: partition) == []


def test_a_destination_that_gets_company_is_not_begun_again(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """A source that was copied alone would get another intermediate topic beside a second source:
    it is not taken for a new one, exit code 22.
    """
    sources, copy = filled(clusters, topic, SOURCES[:2], 100), f"{topic}-all"
    service = start(
        topic,
        "deduplicator",
        environment=build_topics_environment(clusters, topic, f"{sources[0]}={copy}"),
    )
    frontiers_of(service, sources[:1])
    fed(clusters, sources[0], f"{copy}-proxy", 0, 100)
    until(
        lambda: (
            clusters.destination.count_offsets(copy) >= 100
            and not clusters.differences(sources[0], copy)
        ),
        "it is copied",
        STOP_S,
    )
    service.stop()
    nobody_is_in_group(clusters, topic)
    both = start(
        topic,
        "deduplicator",
        environment=build_topics_environment(
            clusters, topic, ",".join(f"{source}={copy}" for source in sources)
        ),
    )
    stopped(both, 22, "FrontierLost", f"no frontier for {copy}-{sources[0]}-proxy-")
    assert clusters.differences(sources[0], copy) == []


def test_a_lost_frontier_of_a_shared_destination_is_a_stop(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """One source of three has no frontier though its intermediate topic was written to, then all
    have none: nothing tells how far they were, a stop.
    """
    everything, copy = filled(clusters, topic, SOURCES, 100), f"{topic}-all"
    sources, third = everything[:2], everything[2]
    environment = build_topics_environment(
        clusters, topic, ",".join(f"{source}={copy}:0" for source in sources)
    )
    service = start(topic, "deduplicator", environment=environment)
    frontiers_of(service, sources)
    for place, source in enumerate(sources):
        fed(clusters, source, f"{copy}-{source}-proxy", place, 100)
    until(
        lambda: (
            clusters.destination.count_offsets(copy) >= 200
            and not compare_merged_topics(clusters, sources, copy, lambda *_: 0)
        ),
        "both are copied",
        STOP_S,
    )
    service.stop()
    group = nobody_is_in_group(clusters, topic)
    fed(clusters, third, clusters.destination.create(f"{copy}-{third}-proxy", PARTITIONS), 2, 100)
    with_third = build_topics_environment(
        clusters, topic, ",".join(f"{source}={copy}:0" for source in everything)
    )
    stopped(
        start(topic, "deduplicator", environment=with_third),
        22,
        "FrontierLost",
        f"no frontier for {copy}-{third}-proxy-",
    )
    nobody_is_in_group(clusters, topic)
    clusters.destination.admin.delete_consumer_groups([group])[group].result()
    stopped(
        start(topic, "deduplicator", environment=environment),
        22,
        "FrontierLost",
        f"{copy}-0 has records",
        "Copy to a new topic",
    )
    assert compare_merged_topics(clusters, sources, copy, lambda *_: 0) == []


@pytest.mark.parametrize(
    ("function", "part"),
    [
        ("out_of_range", "it returned 2, the destination topic has the partitions 0 to 1"),
        pytest.param("raises", "KeyError", marks=pytest.mark.long),
    ],
)
def test_a_function_that_finds_no_place_is_named(
    clusters: Clusters, topic: str, start: Start, function: str, part: str
) -> None:
    """Nothing is written, and the record is named: exit code 2."""
    source = filled(clusters, topic, ["a"], 10)[0]
    service = start(
        topic,
        "deduplicator",
        environment=build_topics_environment(
            clusters, topic, f"{source}={topic}-f:tests.harness.mappings:{function}"
        ),
    )
    frontiers_of(service, [source])
    fed(clusters, source, f"{topic}-f-proxy", 0, 10)
    assert service.wait_for_exit(STOP_S) == 2, service.read_log_tail()
    assert part in service.log
    assert f"cannot place a record of {source}-" in service.log
    assert {
        partition: records
        for partition, records in clusters.destination.read(f"{topic}-f").items()
        if records
    } == {}


def nobody_is_in_group(clusters: Clusters, group: str) -> str:
    """Wait until the service's group has no members."""
    cluster = clusters.destination
    until(
        lambda: not cluster.admin.describe_consumer_groups([group])[group].result().members,
        "the group is empty",
        STOP_S,
    )
    return group


def test_the_judge_of_merged_topics_sees_each_anomaly() -> None:
    """Missing, twice, changed order, in the wrong partition, of nobody."""
    one, two = (
        [make_record(number) for number in numbers] for numbers in (range(5), range(10, 15))
    )
    sources = {"one": {0: one}, "two": {0: two}}
    good = [*one[:2], *two, *one[2:]]
    assert compare_merged(sources, {0: good}, lambda *_: 0) == []
    for wrong in (
        good[1:],
        [*good, good[0]],
        [good[1], good[0], *good[2:]],
        [*good, make_record(99)],
    ):
        assert compare_merged(sources, {0: wrong}, lambda *_: 0)
    assert compare_merged(sources, {0: good[:-1], 1: good[-1:]}, lambda *_: 0)
    assert compare_merged(sources, {0: good}, lambda *_: 1)
    assert not compare_records(one, one)


def test_what_a_function_is_told() -> None:
    """A record as the source has it, and where it was."""
    record = SourceRecord("orders", 1, b"k", b"0000000017", [("h", None)], 5)
    assert mappings.by_last_digit(record, 5) == 2
