"""How `reo verify` compares, on real brokers: the places of a difference, going on where it was,
compacted topics, several processes, a bar on terminals only.

Both sides are written by hand: what a copy lacks, has twice or has changed is planted. What
compaction leaves is written as it leaves it.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from hypothesis import given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

from common import settings as reo_settings
from common.routes import Place
from reo.compare import compacted, comparison, parallel
from reo.compare.comparison import Comparison
from reo.verify import verify
from tests.broker.test_offsets import placed as with_offsets
from tests.harness.commands import ESCAPE, as_json, on_a_terminal, reo
from tests.harness.judge import Record
from tests.harness.kafka import Cluster, Clusters, make_record, make_records
from tests.harness.producing import produce_records
from tests.harness.service import build_environment
from tests.unit.test_alignment import Message

PARTITIONS = 2
RECORDS = 60


def both_sides(
    clusters: Clusters,
    topic: str,
    source: Sequence[tuple[int, Record]],
    destination: Sequence[tuple[int, Record]],
    **config: str,
) -> None:
    """A topic and its copy; the copy's offsets are others, because it is written in
    transactions.
    """
    clusters.source.create(topic, PARTITIONS, **config)
    clusters.destination.create(topic, PARTITIONS, **config)
    clusters.source.write(topic, source)
    producer = clusters.destination.producer(transactional_id=f"{topic}-copy")
    producer.init_transactions(30)
    for begin in range(0, len(destination), 7):
        producer.begin_transaction()
        produce_records(producer, topic, destination[begin : begin + 7])
        producer.commit_transaction(30)


def changed(record: Record) -> Record:
    """With another header."""
    return record._replace(headers=(("other", b"1"),))


def placed(clusters: Clusters, topic: str) -> list[tuple[int, Record]]:
    """The copy's records of partition 1 with their offsets, as any reader sees them."""
    return with_offsets(clusters.destination, topic, begins=dict.fromkeys(range(PARTITIONS), 0))[1]


def test_the_places_of_a_difference_are_those_of_the_records(
    clusters: Clusters, topic: str
) -> None:
    """The offsets lead to the two records that differ, though markers make the copy's offsets
    others.
    """
    records = make_records(range(RECORDS), PARTITIONS)
    both_sides(
        clusters, topic, records, [*records[:41], (1, changed(records[41][1])), *records[42:]]
    )
    row = as_json(clusters, topic, "verify", exit_code=30)["partitions"][1]
    assert dict(placed(clusters, topic))[row["destination_offset"]] == changed(records[41][1])
    assert (row["source_offset"], row["equal"]) == (20, 20)
    assert row["destination_offset"] > 20


def test_going_on_where_it_was(clusters: Clusters, topic: str, tmp_path: Path) -> None:
    """What was found equal is not read again, what came since is; a difference stays one. A file of
    another copy is refused (2), and no other file is taken.
    """
    file = tmp_path / "verified.json"
    records = make_records(range(2 * RECORDS), PARTITIONS)
    both_sides(clusters, topic, records[:RECORDS], records[:RECORDS])
    first = as_json(clusters, topic, "verify", "--resume", str(file))
    assert (first["records"], first["compared_before"]) == (RECORDS, 0)
    again = as_json(clusters, topic, "verify", "--resume", str(file))
    assert (again["records"], again["compared_before"]) == (RECORDS, RECORDS)
    clusters.source.write(topic, records[RECORDS:])
    clusters.destination.write(topic, records[RECORDS:-1])
    for _ in range(2):
        lacking = as_json(clusters, topic, "verify", "--resume", str(file), exit_code=30)
        assert lacking["partitions"][1]["source_offset"] == RECORDS - 1
    assert (lacking["compared_before"], lacking["records"]) == (2 * RECORDS - 1, 2 * RECORDS - 1)
    clusters.destination.write(topic, records[-1:])
    text = reo(clusters, topic, "verify", "--resume", str(file)).stdout
    assert "1 records compared in " in text
    assert f"({2 * RECORDS - 1} more were compared before): exact" in text
    clusters.destination.delete(topic)
    clusters.destination.create(topic, PARTITIONS)
    assert (
        "or its copy was recreated"
        in reo(clusters, topic, "verify", "--resume", str(file), exit_code=2).stderr
    )
    file.write_text("[]")
    assert (
        "is not a file that reo verify has written"
        in reo(clusters, topic, "verify", "--resume", str(file), exit_code=2).stderr
    )


def test_what_was_compared_is_not_read_again(
    clusters: Clusters, topic: str, tmp_path: Path
) -> None:
    """A difference behind the place that the file names is not seen: so the file is what is gone on
    from.
    """
    records = make_records(range(RECORDS), PARTITIONS)
    both_sides(clusters, topic, records, [(0, changed(records[0][1])), *records[1:]])
    file = tmp_path / "verified.json"
    assert (
        as_json(clusters, topic, "verify", "--resume", str(file), exit_code=30)["partitions"][0][
            "source_offset"
        ]
        == 0
    )
    known = json.loads(file.read_text())
    known["partitions"][f"{topic}-0"] = [1, 1, 1]
    file.write_text(json.dumps(known))
    assert (
        as_json(clusters, topic, "verify", "--resume", str(file))["compared_before"]
        == 1 + RECORDS // PARTITIONS
    )


def test_compaction_on_one_side_is_no_difference(clusters: Clusters, topic: str) -> None:
    """The source has each key three times, the copy what compaction leaves of it: equal by key.
    Without a key's newest record it is not.
    """
    records = [
        (0, make_record(number)._replace(key=b"key-%d" % (number % 10))) for number in range(30)
    ]
    gone = (0, make_record(30)._replace(key=b"key-3", value=None))
    left = [*records[:2], *[row for row in records[20:] if row[1].key != b"key-3"]]
    both_sides(clusters, topic, [*records, gone], left, cleanup_policy="compact")
    found = as_json(clusters, topic, "verify")
    row = found["partitions"][0]
    assert (row["equal"], row["by_key"], row["difference"]) == (9, True, None)
    assert [(unseen["what"], unseen["partition"]) for unseen in found["not_compared"]] == [
        ("compaction", 0)
    ]
    clusters.destination.write(topic, [(0, changed(records[25][1]))])
    row = as_json(clusters, topic, "verify", exit_code=30)["partitions"][0]
    assert (
        "1 keys do not have the same newest record; of the first one the source has it at offset 25"
        in row["difference"]
    )
    assert (row["equal"], row["source_offset"]) == (8, 25)


def first_deleted(cluster: Cluster, topic: str, before: int) -> None:
    """Retention, by hand: partition 1 begins at this offset from now on."""
    place = TopicPartition(topic, 1, before)
    assert cluster.admin.delete_records([place])[place].result().low_watermark == before


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
            first_deleted(cluster, topic, before)
    found = as_json(clusters, topic, "verify")
    zero, one = found["partitions"]
    assert [(unseen["what"], unseen["partition"]) for unseen in found["not_compared"]] == [
        ("beginning", 1)
    ]
    assert (zero["equal"], zero["source_begin"], zero["destination_begin"]) == (30, None, None)
    assert (one["source_begin"], one["destination_begin"]) == begun, placed(clusters, topic)
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
    first_deleted(
        clusters.destination,
        topic,
        {record: offset for offset, record in placed(clusters, topic)}[records[23][1]],
    )
    row = as_json(clusters, topic, "verify", exit_code=30)["partitions"][1]
    assert (row["source_begin"], row["equal"], row["source_offset"]) == (11, 1, 12)


def test_equal_records_do_not_mislead_where_retention_was(clusters: Clusters, topic: str) -> None:
    """The first record that the copy has left stands at the source three times; only at the third
    place it is followed by what follows it in the copy.
    """
    records = [(1, make_record(ord(letter))) for letter in "ABABACDEF"]
    both_sides(clusters, topic, records, records)
    first_deleted(clusters.destination, topic, 4)
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


def test_processes_beside_each_other(
    clusters: Clusters, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same results as in one process, and all progress is told."""
    monkeypatch.setattr(parallel, "PARALLEL_RECORDS_MIN", 0)
    records = make_records(range(RECORDS), PARTITIONS)
    both_sides(clusters, topic, records, records[:-1])
    told: list[int] = []
    results = verify(reo_settings.load(build_environment(clusters, topic, {})), told.append)
    assert [(result.place, result.equal, bool(result.difference)) for result in results] == [
        (Place(topic, 0), 30, False),
        (Place(topic, 1), 29, True),
    ]
    assert sum(told) == RECORDS - 1
    clusters.destination.delete(topic)
    with pytest.raises(Exception, match="does not exist or lacks partitions"):
        verify(reo_settings.load(build_environment(clusters, topic, {})))


def test_a_bar_on_a_terminal_only(clusters: Clusters, topic: str) -> None:
    """On a terminal there are escape codes of the bar; on a pipe, `tests.harness.commands.reo`
    looks for them in every test, there are none.
    """
    records = make_records(range(RECORDS), PARTITIONS)
    both_sides(clusters, topic, records, records)
    terminal = on_a_terminal(build_environment(clusters, topic, {}), "verify")
    assert ESCAPE in terminal
    assert f"{RECORDS} records compared" in terminal


# The comparison itself, without brokers


def batches(messages: Sequence[Message], sizes: Sequence[int]) -> Generator[list[Message]]:
    """The messages in lists of these sizes, again and again."""
    begin, number = 0, 0
    while begin < len(messages):
        size = sizes[number % len(sizes)]
        yield list(messages[begin : begin + size])
        begin, number = begin + size, number + 1


def messages(letters: str, gap: int) -> list[Message]:
    """Letters as records, offsets `gap` apart."""
    return [Message(letter, gap * number) for number, letter in enumerate(letters)]


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=3)


@of_hypothesis(max_examples=300, deadline=None)
@given(st.text("ab", max_size=12), st.text("ab", max_size=12), SIZES, SIZES)
def test_lists_of_any_size_are_compared_as_records_are(
    left: str, right: str, left_sizes: list[int], right_sizes: list[int]
) -> None:
    """The first place where the two differ, and whether they do, is that of the letters, however
    the readers cut them into lists.
    """
    result = Comparison(Place("t", 0), -2, -2)
    comparison.compare_in_step(
        batches(messages(left, 3), left_sizes),
        batches(messages(right, 2), right_sizes),
        result,
        0,
        lambda _: None,
    )  # type: ignore[arg-type]
    equal = next(
        (
            place
            for place, (one, other) in enumerate(zip(left, right, strict=False))
            if one != other
        ),
        min(len(left), len(right)),
    )
    assert (result.equal, bool(result.difference)) == (equal, left != right)
    assert result.source_offset == (3 * equal if left != right and equal < len(left) else None)
    assert result.destination_offset == (
        2 * equal if left != right and equal < len(right) else None
    )
    assert (result.source_next, result.destination_next) == (
        (3 * equal - 2, 2 * equal - 1) if equal else (-2, -2)
    )


def test_places_are_compared_where_a_row_has_one() -> None:
    """The same records in rows of other source offsets: a difference for a table, none for a
    topic.
    """
    for places_too, equal in ((False, 3), (True, 1)):
        result = Comparison(Place("t", 0), -2, -2)
        comparison.compare_in_step(
            batches(messages("aba", 3), [2]),
            batches(messages("aba", 2), [1]),
            result,
            0,
            lambda _: None,
            places_too,
        )  # type: ignore[arg-type]
        assert (result.equal, bool(result.difference)) == (equal, places_too)
    assert result.difference == "the record of source offset 3 is in the row of 2"


class Keyed(Message):
    """A message whose letter is its key; a capital is a tombstone of it."""

    def key(self) -> bytes:
        """The letter."""
        return self.content.lower().encode()

    def value(self) -> bytes | None:  # type: ignore[override]
        """Where it is, unless it is a tombstone."""
        return None if self.content.isupper() else b"%d" % self.time_ms


def keyed(letters: list[tuple[str, int]]) -> list[Keyed]:
    """(letter, value) each."""
    return [Keyed(letter, place, value) for place, (letter, value) in enumerate(letters)]


KEYED = st.lists(st.tuples(st.sampled_from("abcdABCD"), st.integers(1, 3)), max_size=12)


@of_hypothesis(max_examples=300, deadline=None)
@given(KEYED, KEYED, st.integers(1, 4))
def test_the_newest_of_each_key_with_any_memory(
    left: list[tuple[str, int]], right: list[tuple[str, int]], keys_max: int
) -> None:
    """Equal exactly when the last value of each key is, tombstones being none; in however small
    parts the keys are taken.
    """

    def naive(letters: list[tuple[str, int]]) -> dict[str, int]:
        last = {letter.lower(): (letter, value) for letter, value in letters}
        return {key: value for key, (letter, value) in last.items() if letter.islower()}

    result = Comparison(Place("t", 0), -2, -2)
    compacted.compare_newest(
        lambda: batches(keyed(left), [3]), lambda: batches(keyed(right), [2]), result, 0, keys_max
    )  # type: ignore[arg-type, return-value]
    assert bool(result.difference) == (naive(left) != naive(right))
    if not result.difference:
        assert result.equal == len(naive(left))
