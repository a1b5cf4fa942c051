"""What cannot be carried unchanged: names of headers (librdkafka cuts one at a NUL, Java reads what
is not UTF-8 as U+FFFD) and timestamps that Spark cannot hold, or changes. Such a record stops the
copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.conftest import Start
from tests.harness import java, librdkafka
from tests.harness.commands import reo
from tests.harness.copy_judge import Record
from tests.harness.first_copy import make_first_copy
from tests.harness.kafka import ROOT, Clusters
from tests.harness.service import stopped

Write = Callable[[Clusters, str], None]
NAMES = ("", "plain", "caf\u00e9", "\U0001f600 \u4e2d", "\x01\x7f\ufffe", "a" * 1000)
"""What is text, and no trouble."""
GOOD = [
    Record(
        b"k%d" % number, b"v", ((name, b"1"), ("x", None), (name, b"2")), 1_700_000_000_000 + number
    )
    for number, name in enumerate(NAMES)
]
STOP_AT_END = ["--stop-at-end"]
ALL = next(
    re.finditer(r"`(not exists\(headers.*?)`", (ROOT / "docs" / "how-to" / "stops.md").read_text())
)[1]
"""What the documentation has for all of them."""
FIRST_MS, LAST_MS = -12_219_292_800_000, 2**63 // 1000
"""1582-10-15, and the last millisecond that Spark's microseconds hold."""
OLD_MS = -2_500_000_000_000  # 1890-10-12
EDGES = [
    GOOD[0]._replace(timestamp_ms=timestamp_ms) for timestamp_ms in (FIRST_MS, LAST_MS, -1, OLD_MS)
]
AT = len(GOOD)
"""The offset of the record that is no good."""


def by_java(name: str) -> Write:
    """A record with such a name behind a good one, by Java's producer; in the second partition
    another one.
    """
    bad = Record(b"bad", b"bad", (("good", b"1"), (name, b"2")), 1_700_000_000_100)
    return lambda clusters, topic: java.write(
        clusters.source.address, topic, [(0, bad), (1, GOOD[0])]
    )


def by_bytes(clusters: Clusters, topic: str) -> None:
    """By a client to which a name is bytes."""
    librdkafka.write(clusters.source.address, topic, 0, [b"\xffnot UTF-8"])
    clusters.source.write(topic, [(1, GOOD[0])])


def by_time(timestamp_ms: int) -> Write:
    """A record of this moment, and in the second partition the last one and the first one that
    Spark carries.
    """

    def write(clusters: Clusters, topic: str) -> None:
        clusters.source.write(
            topic,
            [(0, GOOD[0]._replace(timestamp_ms=timestamp_ms)), *((1, record) for record in EDGES)],
        )

    return write


@pytest.mark.parametrize(
    ("bad", "mode", "said"),
    [
        (
            by_time(FIRST_MS - 1),
            STOP_AT_END,
            (
                "Spark changes timestamps before 1582-10-15, as in the source record of {}-0 at"
                " offset 6"
            ),
        ),
        pytest.param(
            by_time(LAST_MS + 1),
            [],
            (
                f"the source record of {{}}-0 at offset 6 has the timestamp {LAST_MS + 1}, which is"
                " out of the range that Spark can read"
            ),
            marks=pytest.mark.long,
        ),
    ],
    ids=["too old", "too far"],
)
def test_a_timestamp_out_of_range_is_refused(
    clusters: Clusters,
    topic: str,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    bad: Write,
    mode: list[str],
    said: str,
) -> None:
    """Exit code 27 and the record's place, at once; what is copied before has its timestamp, also
    at the edges of the range, and where the host's time zone had another offset.
    """
    monkeypatch.setenv("TZ", "Europe/Berlin")
    clusters.source.create(topic, 2, message_timestamp_after_max_ms=str(2**63 - 1))
    clusters.source.write(topic, [(0, record) for record in GOOD])
    bad(clusters, topic)
    service = start(topic, *mode)
    assert service.wait_for_exit() == 27, service.read_log_tail()
    line = next(line for line in service.errors if "RecordRefused" in line)
    assert said.format(topic) in line
    copy = clusters.destination.read(topic)
    assert (copy[0], copy[1]) == (GOOD[: len(copy[0])], EDGES[: len(copy[1])])


@pytest.mark.parametrize(
    ("bad", "mode", "leaves_out"),
    [
        pytest.param(by_java("a\0b"), [], "", marks=pytest.mark.long),
        pytest.param(by_java("\0"), STOP_AT_END, None, marks=pytest.mark.long),
        pytest.param(by_java("a\ufffd"), STOP_AT_END, None, marks=pytest.mark.long),
        pytest.param(by_bytes, STOP_AT_END, ALL, marks=pytest.mark.long),
    ],
    ids=["NUL within", "NUL alone", "U+FFFD", "not UTF-8"],
)
def test_a_record_with_such_a_name_is_refused(
    clusters: Clusters,
    topic: str,
    start: Start,
    bad: Write,
    mode: list[str],
    leaves_out: str | None,
) -> None:
    """Nothing changed arrives, and nothing behind it: exit code 27 and the record's place; `reo
    verify` says what is missing. With the filter that the error names (""), or the one for all such
    records, the others are copied as they are.
    """
    clusters.source.create(topic, 2)
    clusters.source.write(topic, [(0, record) for record in GOOD])
    bad(clusters, topic)
    clusters.source.write(topic, [(0, record) for record in GOOD])
    service = start(topic, *mode)
    assert service.wait_for_exit() == 27, service.read_log_tail()
    line = next(line for line in service.errors if "RecordRefused" in line)
    assert f"{topic}-0 at offset {AT}: it holds a NUL" in line
    copy = clusters.destination.read(topic)[0]
    assert copy == GOOD[: len(copy)]
    assert (
        f"are not copied yet, from source offset {len(copy)} on"
        in reo(clusters, topic, "verify", exit_code=36).stdout
    )
    if leaves_out is not None:
        service = start(
            topic,
            "--stop-at-end",
            filter_sql=leaves_out or line.partition('filter.sql="')[2].partition('"')[0],
        )
        assert service.wait_for_exit() == 0, service.read_log_tail()
        assert clusters.destination.read(topic) == {0: GOOD + GOOD, 1: GOOD[:1]}


def test_such_a_name_on_the_intermediate_topic_is_a_foreign_writers(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Stage one writes none: stage two stops with the record's place instead of dying of it again
    and again.
    """
    make_first_copy(clusters, topic, start)
    librdkafka.write(clusters.destination.address, f"{topic}-proxy", 1, [b"\xff"])
    stopped(
        start(topic, "deduplicator"), 24, "ForeignRecord", f"{topic}-proxy-1", "name is not UTF-8"
    )


def test_such_a_name_at_the_destination_is_named(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """A foreign writer's record that cannot even be read."""
    make_first_copy(clusters, topic, start)
    librdkafka.write(clusters.destination.address, topic, 1, [b"\xff"])
    stopped(start(topic, "deduplicator"), 27, "RecordRefused", f"{topic}-1 at offset", "not UTF-8")
