"""Where `reo verify` begins, on real brokers: retention took the beginning of one side, or the copy
began later.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from tests.harness.commands import as_json, reo
from tests.harness.compared_sides import PARTITIONS, RECORDS, both_sides, read_first_partition
from tests.harness.kafka import Cluster, Clusters, make_record, make_records


def delete_first_records(cluster: Cluster, topic: str, before: int) -> None:
    """Retention, by hand: partition 1 begins at this offset from now on."""
    tp = TopicPartition(topic, 1, before)
    assert cluster.admin.delete_records([tp])[tp].result().low_watermark == before


CUT = {
    "the copy's": (0, 12, (10, 13)),
    "the source's": (9, 0, (9, 11)),
    "both, the copy's further": (4, 12, (10, 13)),
    "both, the source's further": (20, 3, (20, 25)),
    "all of the source's": (30, 0, (30, 39)),
}
"""Up to where either side's records of partition 1 were deleted, and the offsets of the first that
both have. The copy has a marker behind every 7 records of both partitions together, so behind every
3 or 4 of this one.
"""


@pytest.mark.parametrize("cut", CUT)
def test_what_retention_took_from_one_side_is_no_difference(
    clusters: Clusters, topic: str, cut: str, tmp_path: Path
) -> None:
    """The comparison begins with the first records that both have, and says so; what differs behind
    that is found, also when it is the second record.
    """
    records = make_records(range(RECORDS), PARTITIONS)
    both_sides(clusters, topic, records, records)
    at_source, at_copy, begun = CUT[cut]
    for cluster, before in ((clusters.source, at_source), (clusters.destination, at_copy)):
        if before:
            delete_first_records(cluster, topic, before)
    found = as_json(clusters, topic, "verify")
    zero, one = found["partitions"]
    assert [(unseen["what"], unseen["partition"]) for unseen in found["not_compared"]] == [
        ("beginning", 1)
    ]
    assert (zero["equal"], zero["source_begin"], zero["destination_begin"]) == (30, None, None)
    assert (one["source_begin"], one["destination_begin"]) == begun, read_first_partition(
        clusters, topic
    )
    assert one["equal"] == 30 - begun[0]
    file = str(tmp_path / "verified.json")
    for _ in range(2):  # what an earlier comparison has not seen was not seen
        text = reo(clusters, topic, "verify", "--resume", file).stdout
        assert (
            f"from source offset {begun[0]} and destination offset {begun[1]} on, before which one"
            " side has no records" in text
        )
        assert (
            f"    {topic}-1: the records before source offset {begun[0]} and destination offset"
            f" {begun[1]}\n" in text
        )
        assert text.endswith(": exact in what was compared\n")


def test_a_difference_behind_the_beginning_that_retention_left(
    clusters: Clusters, topic: str
) -> None:
    """A record is missing just behind the first one that the copy has left: the place is found, and
    so is the difference.
    """
    records = make_records(range(RECORDS), PARTITIONS)
    both_sides(clusters, topic, records, [*records[:25], *records[26:]])
    delete_first_records(
        clusters.destination,
        topic,
        {record: offset for offset, record in read_first_partition(clusters, topic)}[
            records[23][1]
        ],
    )
    row = as_json(clusters, topic, "verify", exit_code=30)["partitions"][1]
    assert (row["source_begin"], row["equal"], row["source_offset"]) == (11, 1, 12)


def test_equal_records_do_not_mislead_where_retention_was(clusters: Clusters, topic: str) -> None:
    """The first record that the copy has left stands at the source three times; only at the third
    place it is followed by what follows it in the copy.
    """
    records = [(1, make_record(ord(letter))) for letter in "ABABACDEF"]
    both_sides(clusters, topic, records, records)
    delete_first_records(clusters.destination, topic, 4)
    row = as_json(clusters, topic, "verify")["partitions"][1]
    assert (row["source_begin"], row["destination_begin"], row["equal"]) == (4, 4, 5)


def test_a_copy_that_began_later(clusters: Clusters, topic: str) -> None:
    """With the setting that made it begin there it is exact; with another one the first records are
    missing.
    """
    records = make_records(range(RECORDS), PARTITIONS)
    both_sides(
        clusters,
        topic,
        records,
        [row for number, row in enumerate(records) if row[0] == 0 or number > 19],
    )
    one = as_json(clusters, topic, "verify", source_start="1=10")["partitions"][1]
    assert (one["source_begin"], one["equal"], one["difference"]) == (10, 20, None)
    row = as_json(clusters, topic, "verify", exit_code=30)["partitions"][1]
    assert (row["source_offset"], row["equal"], row["source_begin"]) == (0, 0, None)
