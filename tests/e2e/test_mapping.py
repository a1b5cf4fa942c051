"""Mappings: each record once, at the place that the mapping says, in its source partition's
order. `tests/e2e/test_shared_destination.py` has several sources in one topic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.conftest import Start
from tests.harness.commands import LONG_COMMAND_S, reo_with
from tests.harness.copy_judge import Record
from tests.harness.java import partitions_of
from tests.harness.kafka import Clusters, make_record
from tests.harness.merged_topics import build_topics_environment, compare_merged_topics
from tests.harness.service import STOP_S
from tests.harness.several_sources import (
    PARTITIONS,
    create_filled_sources,
    wait_for_source_frontiers,
    write_stage_one_records,
)


def write_keyed(clusters: Clusters, topic: str) -> dict[bytes, int]:
    """Write records with keys of many lengths, and some without a key, to three partitions; where
    the Java client would put each key among seven.
    """
    keys = [
        b"",
        b"\0",
        "größe".encode(),
        *(b"k%d" % number * (number % 7 + 1) for number in range(3000)),
    ]
    clusters.source.create(topic, 3)
    records = [
        Record(None if number % 10 == 9 else key, b"%d" % number, (), 1000 + number)
        for number, key in enumerate(keys)
    ]
    clusters.source.write(topic, [(number % 3, record) for number, record in enumerate(records)])
    return partitions_of(keys, 7)


def assert_each_is_placed(
    clusters: Clusters, topic: str, sources: Sequence[str], java: Mapping[bytes, int]
) -> None:
    """By key, two topics in one destination, by a function, and as it is."""
    assert (
        compare_merged_topics(
            clusters,
            [f"{topic}-keyed"],
            f"{topic}-by-key",
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
    )
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


def test_each_mapping_through_the_whole_service(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """By key as the Java producer does it, to a number, and by a function: with Spark, to the end,
    with two topics that share a destination.
    """
    sources = create_filled_sources(clusters, topic, ("a", "b", "c", "d"), 2000)
    java = write_keyed(clusters, f"{topic}-keyed")
    clusters.destination.create(f"{topic}-by-key", 7, message_timestamp_type="CreateTime")
    rules = (
        f"{topic}-keyed={topic}-by-key:key,{sources[0]}={topic}-x:2,{sources[1]}={topic}-x,"
        f"{sources[2]}={topic}-f:tests.harness.mappings:by_last_digit,{sources[3]}"
    )
    environment = build_topics_environment(clusters, topic, rules)
    service = start(topic, "--stop-at-end", environment=environment)
    assert service.wait_for_exit() == 0, service.read_log_tail()
    assert_each_is_placed(clusters, topic, sources, java)
    verified = reo_with(environment, "verify", exit_code=31, timeout_s=LONG_COMMAND_S)
    assert verified.stderr.count("cannot be compared with its source") == 4
    assert "2000 records compared" in verified.stdout
    recovered = reo_with(environment, "recover", exit_code=31, timeout_s=LONG_COMMAND_S)
    assert "the data confirms" in recovered.stdout


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
    source = create_filled_sources(clusters, topic, ["a"], 10)[0]
    service = start(
        topic,
        "deduplicator",
        environment=build_topics_environment(
            clusters, topic, f"{source}={topic}-f:tests.harness.mappings:{function}"
        ),
    )
    wait_for_source_frontiers(service, [source])
    write_stage_one_records(clusters, source, f"{topic}-f-proxy", 0, 10)
    assert service.wait_for_exit(STOP_S) == 2, service.read_log_tail()
    assert part in service.log
    assert f"cannot place a record of {source}-" in service.log
    assert {
        partition: records
        for partition, records in clusters.destination.read(f"{topic}-f").items()
        if records
    } == {}
