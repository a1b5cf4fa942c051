"""The copy of everything that is hard to copy: one service run over one topic, in which each case
has a partition of its own.

Each test compares its partition with what was written by hand, and with what the judge reads at the
source.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import pytest

from common.envelope import EnvelopeRecord, Head
from reo.version import VERSION
from tests.conftest import Start, make_topic_name
from tests.harness.copy_judge import Partitions, Record, compare_partitions
from tests.harness.kafka import Cluster, Clusters, make_record
from tests.harness.producing import produce_records
from tools.envelope_encoder import encode

YEAR_2013_MS = 1_357_034_400_000
YEAR_2100_MS = 4_102_444_800_000
Write = Callable[[Cluster, str, int], list[Record]]
"""Writes a case to a partition and returns what a read_committed reader has to see there."""


def each(*records: Record, **options: str) -> Write:
    """A case of which every record is visible; a record without a timestamp gets one of its own."""
    dated = [
        record if record.timestamp_ms else record._replace(timestamp_ms=YEAR_2013_MS + place)
        for place, record in enumerate(records)
    ]

    def write(source: Cluster, topic: str, partition: int) -> list[Record]:
        source.write(topic, [(partition, record) for record in dated], **options)
        return dated

    return write


def transactions(*outcomes: tuple[bool, int]) -> Write:
    """A case of transactions: whether each is committed, and how many records it has."""

    def write(source: Cluster, topic: str, partition: int) -> list[Record]:
        producer = source.producer(transactional_id=f"{topic}-{partition}")
        producer.init_transactions(30)
        visible: list[Record] = []
        for place, (committed, size) in enumerate(outcomes):
            records = [make_record(1000 * place + number) for number in range(size)]
            producer.begin_transaction()
            produce_records(producer, topic, [(partition, record) for record in records])
            # an aborted record has to be in the log, or the case is none
            assert producer.flush(30) == 0
            if committed:
                producer.commit_transaction(30)
                visible += records
            else:
                producer.abort_transaction(30)
        return visible

    return write


def headers(*pairs: tuple[str, bytes | None]) -> Record:
    """A record with these headers."""
    return Record(b"k", b"v", pairs)


AN_ENVELOPE = encode(
    Head("0123456789abcdef", 99999999999999, 0, 6, 7), [EnvelopeRecord(7, 1, 0, b"k", b"v")]
)
NOTHING: Write = lambda _cluster, _topic, _partition: []  # noqa: E731  (a case like the others)
CASES: dict[str, Write] = {
    "first record of a partition": each(Record(b"k", b"the record at offset 0")),
    "a partition without records": NOTHING,
    "null and empty keys and values": each(
        *(Record(key, value) for key in (None, b"", b"k") for value in (None, b"", b"v"))
    ),
    "tombstones": each(
        Record(b"a", b"1"),
        Record(b"a", None),
        Record(b"a", None, (("why", b"gone"),)),
        Record(None, None),
    ),
    "all bytes": each(
        Record(bytes(range(256)), bytes(range(255, -1, -1)), (("bytes", bytes(range(256))),)),
        Record(b"\xff\xfe", b"\x00"),
    ),
    "repeated headers": each(
        headers(("a", b"1"), ("b", b"2"), ("a", b"1"), ("a", b"0")),
        headers(("a", b"0"), ("a", b"1")),
    ),
    "null-valued and empty headers": each(
        headers(("n", None)), headers(("n", b"")), headers(("n", None), ("n", b""), ("n", None))
    ),
    "empty-named headers": each(
        headers(("", b"x")), headers(("", None)), headers(("a", b"1"), ("", b""))
    ),
    "non-ASCII headers": each(
        headers(
            ("größe", "groß".encode()),
            ("鍵", "値".encode()),
            ("🔑", b"\xff\x00"),
            ("é", b"two code points"),
        )
    ),
    "many headers": each(headers(*((f"h{number}", b"%d" % number) for number in range(500)))),
    "user records that look like intermediate records": each(
        Record(None, AN_ENVELOPE),
        Record(AN_ENVELOPE, AN_ENVELOPE, (("envelope", AN_ENVELOPE),)),
        headers(("__origin", b"mine"), ("a", b"1")),
        headers(("a", b"1"), ("__origin", b"mine")),
        headers(("__read_up_to", None)),
        headers(("__origin", b""), ("__origin", AN_ENVELOPE)),
    ),
    "old and future timestamps": each(
        *(
            Record(b"k", b"v", (), stamp)
            for stamp in (YEAR_2013_MS, 1, YEAR_2100_MS, 999, YEAR_2013_MS - 1, 1_000_000_007)
        )
    ),
    "records without a timestamp": each(
        Record(b"k", b"none", (), -1),
        Record(b"k", b"some", (), 5),
        Record(b"k", b"none again", (), -1),
    ),
    "codec none": each(*map(make_record, range(500)), compression_type="none"),
    "codec gzip": each(*map(make_record, range(500)), compression_type="gzip"),
    "codec snappy": each(*map(make_record, range(500)), compression_type="snappy"),
    "codec lz4": each(*map(make_record, range(500)), compression_type="lz4"),
    "codec zstd": each(*map(make_record, range(500)), compression_type="zstd"),
    "a record of 900 kB": each(
        make_record(0),
        Record(b"large", Random(1).randbytes(900_000), (("h", b"1"),)),
        make_record(1),
        Record(Random(2).randbytes(450_000), Random(3).randbytes(450_000)),
    ),
    "more records than transactions hold": each(*map(make_record, range(3000))),
    "a committed transaction at the end": transactions((True, 5), (True, 3)),
    "an aborted transaction at the beginning": transactions((False, 4), (True, 5)),
    "an aborted transaction in the middle": transactions((True, 5), (False, 7), (True, 3)),
    "an aborted transaction at the end": transactions((True, 5), (False, 3)),
    "aborted transactions only": transactions((False, 3), (False, 1)),
    "many small transactions": transactions(
        *((number % 3 > 0, 1 + number % 4) for number in range(60))
    ),
}
VISIBLE = [
    case
    for case in CASES
    if case not in ("a partition without records", "aborted transactions only")
]


def write_cases(source: Cluster) -> tuple[str, dict[str, list[Record]]]:
    """Write every case to a partition of its own of a new topic; returns the topic, and the records
    that its readers see.
    """
    topic = source.create(
        make_topic_name("hard"), len(CASES), message_timestamp_after_max_ms=str(2**63 - 1)
    )
    return topic, {
        case: write(source, topic, partition)
        for partition, (case, write) in enumerate(CASES.items())
    }


class Copied(NamedTuple):
    """One finished run over all cases."""

    topic: str
    written: dict[str, list[Record]]
    source: Partitions
    copy: Partitions


@pytest.fixture(
    scope="module",
    params=["yes", pytest.param("no", marks=pytest.mark.long)],
    ids=["compiled", "by Python"],
)
def copied(request: pytest.FixtureRequest, clusters: Clusters, start_for_module: Start) -> Copied:
    """All cases written, and copied by one run of the service."""
    topic, written = write_cases(clusters.source)
    service = start_for_module(
        topic,
        "--stop-at-end",
        deduplicator_transaction_records="700",
        deduplicator_compiled=request.param,
    )
    assert service.wait_for_exit() == 0, service.read_log_tail()
    return Copied(topic, written, clusters.source.read(topic), clusters.destination.read(topic))


@pytest.mark.parametrize("case", CASES)
def test_the_copy_is_exact(copied: Copied, case: str) -> None:
    """The destination's partition holds what was written (and nothing that was aborted), in order:
    key, value, headers, timestamp.
    """
    partition = list(CASES).index(case)
    assert copied.source[partition] == copied.written[case], (
        "the corpus itself is not what it should be"
    )
    assert (
        compare_partitions({partition: copied.written[case]}, {partition: copied.copy[partition]})
        == []
    )


def test_no_partition_lacks_its_first_record(copied: Copied) -> None:
    """The first visible record of every partition, at offset 0 for all but the partition that
    begins with an aborted transaction, is first in the copy.
    """
    firsts = {case: copied.copy[partition][:1] for partition, case in enumerate(CASES)}
    assert {case: firsts[case] for case in VISIBLE} == {
        case: copied.written[case][:1] for case in VISIBLE
    }


def test_the_codecs_were_really_used(clusters: Clusters, copied: Copied) -> None:
    """The compressible records of each codec's partition take less than half of what they take
    uncompressed: the cases are what they claim.
    """
    folder = clusters.source.broker.folder / "data"
    sizes = {
        case: sum(
            file.stat().st_size for file in (folder / f"{copied.topic}-{partition}").glob("*.log")
        )
        for partition, case in enumerate(CASES)
        if case.startswith("codec")
    }
    assert all(
        size < sizes["codec none"] / 2 for case, size in sizes.items() if case != "codec none"
    ), sizes


def test_aborted_records_are_in_the_source_log(clusters: Clusters, copied: Copied) -> None:
    """The partition of aborted transactions is not empty for a read_uncommitted reader: there was
    something to keep out.
    """
    partition = list(CASES).index("aborted transactions only")
    assert clusters.source.end_offsets(copied.topic)[partition] == 3 + 1 + 2


def test_the_topics_are_made_like_the_source(clusters: Clusters, copied: Copied) -> None:
    """Destination and intermediate topic have the source's partitions, and keep what is old,
    although this destination's default is a minute.
    """
    for topic in (copied.topic, f"{copied.topic}-proxy"):
        assert clusters.destination.partitions(topic) == len(CASES)
        assert clusters.destination.config(topic)["retention.ms"] == "-1"
    assert clusters.destination.config(copied.topic)["message.timestamp.type"] == "CreateTime"


def test_a_second_run_changes_nothing(clusters: Clusters, copied: Copied, start: Start) -> None:
    """A service that starts where everything is copied already ends with 0 and has written nothing
    to the destination, not even a record that nobody sees. Its log says what it is, what it copies
    from where to where, and what it has done.
    """
    before = clusters.destination.end_offsets(copied.topic)
    service = start(copied.topic, "--stop-at-end")
    assert service.wait_for_exit() == 0, service.read_log_tail()
    assert clusters.destination.end_offsets(copied.topic) == before
    assert clusters.differences(copied.topic) == []
    first = service.log.splitlines()[0]
    assert f"reo {VERSION} copies {copied.topic} from {clusters.source.address} to" in first
    assert f"to {clusters.destination.address}; application reo-{copied.topic}, instance" in first
    assert "everything that existed at the start is copied: 0 records by this" in service.log
