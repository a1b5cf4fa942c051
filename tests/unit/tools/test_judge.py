"""The judge itself: every anomaly is planted and has to be found, under its own name, and nothing
else.
"""

from __future__ import annotations

from dataclasses import astuple
from random import Random

import pytest

from tests.harness.copy_judge import (
    Differences,
    Record,
    compare_counters,
    compare_partitions,
    compare_records,
)
from tests.harness.kafka import make_record
from tests.harness.merged_topics import compare_merged

SOURCE = [
    Record(b"key %d" % (number % 3), b"value %d" % number, (("h", b"1"),), 1_000 + number)
    for number in range(10)
]


def change_fifth_record(**fields: object) -> list[Record]:
    """The source with fields of its fifth record replaced."""
    return [*SOURCE[:4], SOURCE[4]._replace(**fields), *SOURCE[5:]]


PLANTED = {
    "nothing": (SOURCE, Differences()),
    "missing at the beginning": (SOURCE[1:], Differences(missing=[0])),
    "missing in the middle": ([*SOURCE[:4], *SOURCE[6:]], Differences(missing=[4, 5])),
    "missing at the end": (SOURCE[:-1], Differences(missing=[9])),
    "all missing": ([], Differences(missing=list(range(10)))),
    "duplicated beside itself": (
        [*SOURCE[:5], SOURCE[4], *SOURCE[5:]],
        Differences(duplicated=[5]),
    ),
    "duplicated later": ([*SOURCE, SOURCE[2], SOURCE[3]], Differences(duplicated=[10, 11])),
    "phantom": ([*SOURCE[:5], Record(b"x"), *SOURCE[5:]], Differences(phantom=[5])),
    "phantom at the end": ([*SOURCE, Record(b"x")], Differences(phantom=[10])),
    "reordered": ([*SOURCE[:4], SOURCE[5], SOURCE[4], *SOURCE[6:]], Differences(reordered=[4, 5])),
    "key changed": (change_fifth_record(key=b"other"), Differences(changed=[(4, 4)])),
    "null key made empty": (change_fifth_record(key=b""), Differences(changed=[(4, 4)])),
    "value changed": (change_fifth_record(value=b"other"), Differences(changed=[(4, 4)])),
    "value made a tombstone": (change_fifth_record(value=None), Differences(changed=[(4, 4)])),
    "header lost": (change_fifth_record(headers=()), Differences(changed=[(4, 4)])),
    "header value made null": (
        change_fifth_record(headers=(("h", None),)),
        Differences(changed=[(4, 4)]),
    ),
    "timestamp changed": (change_fifth_record(timestamp_ms=7), Differences(changed=[(4, 4)])),
    "one missing and a phantom elsewhere": (
        [*SOURCE[:2], *SOURCE[3:], Record(b"x")],
        Differences(missing=[2], phantom=[9]),
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_each_anomaly_is_found_under_its_name(planted: str) -> None:
    """One anomaly in an otherwise exact copy is reported as what it is, where it is, and as nothing
    else.
    """
    copy, expected = PLANTED[planted]
    assert compare_records(SOURCE, copy) == expected


def test_equal_records_are_counted() -> None:
    """Records that are equal byte for byte (tombstones of one key in the same millisecond) are not
    mistaken for one another's copies.
    """
    twin = Record(b"k", None, (), 5)
    assert not compare_records([twin, twin, twin], [twin, twin, twin])
    assert compare_records([twin, twin, twin], [twin, twin]).missing == [2]
    assert compare_records([twin, twin], [twin, twin, twin]).duplicated == [2]


def test_headers_are_compared_in_order() -> None:
    """Repeated header names in another order are another record."""
    here, there = (
        Record(headers=(("a", b"1"), ("a", b"2"))),
        Record(headers=(("a", b"2"), ("a", b"1"))),
    )
    assert compare_records([here], [there]).changed == [(0, 0)]


def test_a_partition_that_one_side_lacks_is_empty_there() -> None:
    """Records in a partition that the other side does not have are missing or phantom; an empty
    partition more is no difference.
    """
    assert compare_partitions({0: SOURCE, 1: SOURCE}, {0: SOURCE}) == [
        "partition 1: 10 missing (at 0, 1, 2 …)"
    ]
    assert compare_partitions({0: SOURCE}, {0: SOURCE, 1: SOURCE[:1]}) == [
        "partition 1: 1 phantom (at 0)"
    ]
    assert compare_partitions({0: SOURCE}, {0: SOURCE, 1: []}) == []


def test_a_record_in_another_partition_is_missing_and_phantom() -> None:
    """The right record in the wrong partition is not exact."""
    lines = compare_partitions({0: SOURCE, 1: []}, {0: SOURCE[:-1], 1: SOURCE[-1:]})
    assert lines == ["partition 0: 1 missing (at 9)", "partition 1: 1 phantom (at 0)"]


def test_exact_means_equal_whatever_is_mixed() -> None:
    """Over 3,000 random mixtures, no differences are reported if and only if the lists are equal,
    and the counts add up.
    """
    random = Random(7)
    for _ in range(3_000):
        source, copy = (
            [Record(b"%d" % random.randrange(4)) for _ in range(random.randrange(6))] for _ in "ab"
        )
        found = compare_records(source, copy)
        assert bool(found) == (source != copy)
        gone, more, other, phantom, _, _ = map(len, astuple(found))
        assert len(copy) == len(source) - gone + more + phantom
        assert other <= min(len(source), len(copy))


def test_an_aborted_record_that_is_visible_is_called_so() -> None:
    """What the source took back is told from what the source never had."""
    taken_back, stranger = Record(b"aborted"), Record(b"x")
    found = compare_records(SOURCE, [*SOURCE, taken_back, stranger], [taken_back])
    assert (found.aborted, found.phantom) == ([10], [11])
    assert compare_partitions({0: SOURCE}, {0: [*SOURCE, taken_back]}, {0: [taken_back]}) == [
        "partition 0: 1 aborted (at 10)"
    ]


@pytest.mark.parametrize(
    ("said", "unsure", "wrong"),
    [(10, 0, False), (9, 0, True), (9, 1, False), (8, 1, True), (11, 5, True)],
)
def test_a_service_that_miscounts_is_noticed(said: int, unsure: int, wrong: bool) -> None:
    """Too many is always wrong; too few is wrong beyond what a killed process could not tell any
    more.
    """
    assert bool(compare_counters({0: SOURCE}, said, unsure)) == wrong


def test_the_judge_of_merged_topics_sees_each_anomaly() -> None:
    """Missing, twice, changed order, in the wrong partition, from no source."""
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
