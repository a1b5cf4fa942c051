"""`reo inspect` on a real broker: records of stage one, what the source has nothing of, and what
somebody else wrote.
"""

from __future__ import annotations

import json

from common.read_up_to_record import HEADER, ReadUpTo, encode
from tests.harness.commands import reo
from tests.harness.judge import Record
from tests.harness.kafka import Clusters, make_records
from tests.harness.recovery import add_source_offsets
from tests.harness.stage_one import wrap_records

PARTITIONS = 2
SAID = ReadUpTo(1, 40, 9, 77, "1d" * 8)


def test_records_of_the_intermediate_topic_are_printed(clusters: Clusters, topic: str) -> None:
    """Each record with its origin, as text and as JSON; a foreign one with the reason; from an
    offset on, of one partition, so many; nothing is changed.
    """
    clusters.source.create(topic, PARTITIONS)
    assert (
        "there is no intermediate topic yet" in reo(clusters, topic, "inspect", exit_code=11).stderr
    )
    clusters.destination.create(f"{topic}-proxy", PARTITIONS)
    assert reo(clusters, topic, "inspect", "--json").stdout.strip() == ""
    records = make_records(range(20), PARTITIONS)
    clusters.destination.write(
        f"{topic}-proxy",
        wrap_records(clusters, topic, add_source_offsets(records), epoch=77, attempt=5),
    )
    clusters.destination.write(
        f"{topic}-proxy",
        [(1, Record(None, None, ((HEADER, encode(SAID)),))), (1, Record(b"whose", b"is this", ()))],
    )
    before = clusters.destination.end_offsets(f"{topic}-proxy")

    rows = [
        json.loads(line)
        for line in reo(clusters, topic, "inspect", "--json", "--count", "100").stdout.splitlines()
    ]
    assert [(row["partition"], row["offset"]) for row in rows] == [
        (0, offset) for offset in range(10)
    ] + [(1, offset) for offset in range(12)]
    origins = [row["origin"] for row in rows if "origin" in row]
    assert [
        (
            found["source_partition"],
            found["source_offset"],
            found["epoch"],
            found["attempt"],
            found["sequence"],
        )
        for found in origins
    ] == [
        (partition, offset, 77, 5, offset)
        for partition in range(PARTITIONS)
        for offset in range(10)
    ]
    assert [row["key"] for row in rows[:10]] == [
        record.key.decode() for partition, record in records if partition == 0
    ]
    assert (rows[-2]["read_up_to"]["source_offset"], rows[-2]["read_up_to"]["follows"]) == (40, 9)
    assert "Stage one did not write it" in rows[-1]["foreign"]

    text = reo(
        clusters, topic, "inspect", "--partition", "1", "--from", "8", "--count", "3"
    ).stdout.splitlines()
    assert [line.split()[1] for line in text[1:]] == ["8", "9", "10"]
    assert "nothing to copy after 9" in text[-1]
    (last,) = reo(
        clusters, topic, "inspect", "--partition", "1", "--count", "1"
    ).stdout.splitlines()[1:]
    assert "not reo's" in last
    assert clusters.destination.end_offsets(f"{topic}-proxy") == before
