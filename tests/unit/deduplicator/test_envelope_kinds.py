"""What becomes of each kind of intermediate record: it is copied, dropped and counted, or ends the
service before anything is committed. With the compiled path, and without it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.envelope import HEAD
from common.errors import ForeignRecord, RecordRefused, SourceRecreated
from tests.harness.intermediate_records import (
    EPOCH,
    build_envelope,
    build_message,
    build_source_record,
    unwrap_offsets,
)
from tests.harness.stage_two import FIRST_FRONTIER, Copy, use_compiled_path

FRONTIER_AT_6 = replace(FIRST_FRONTIER, source_offset=6)
BOTH_PATHS = pytest.mark.parametrize("is_compiled", [False, True], ids=["Python", "compiled"])


@BOTH_PATHS
def test_a_part_of_an_envelope_is_copied_already(
    monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> None:
    """The rest is written; all of it was consumed."""
    if is_compiled:
        use_compiled_path(monkeypatch)
    copy = Copy([build_envelope(0, 3, 9)], FRONTIER_AT_6)
    copy.run_rounds()
    assert copy.producers.list_records() == unwrap_offsets(7, 8, 9)
    assert copy.count_records() == {"in": 6, "out": 3, "duplicate": 3}


@BOTH_PATHS
def test_all_kinds_of_envelopes_are_counted(
    monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> None:
    """By the records in them; what stage one has to write again stays visible in the frontier."""
    if is_compiled:
        use_compiled_path(monkeypatch)
    copy = Copy(
        [
            build_envelope(0, -1, 3),
            build_envelope(1, -1, 1),
            build_envelope(2, 3, 6, epoch=EPOCH - 1),
            build_envelope(3, 4, 9),
            build_envelope(4, 7, 9),
            build_envelope(5, 3, 3),
        ]
    )
    copy.run_rounds()
    assert copy.producers.list_records() == unwrap_offsets(0, 1, 2, 3)
    assert (copy.frontier.source_offset, copy.frontier.gap, copy.position) == (3, 4, 6)
    assert copy.count_records() == {"in": 16, "out": 4, "duplicate": 2, "stale": 3, "gap": 7}


@BOTH_PATHS
def test_empty_envelopes_move_the_frontier_and_write_nothing(
    monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> None:
    """Also in a round that has nothing else; a new run's epoch is committed in the same way."""
    if is_compiled:
        use_compiled_path(monkeypatch)
    copy = Copy([build_envelope(0, -1, -1, epoch=EPOCH + 1), build_envelope(1, -1, 8, [])])
    copy.reader.messages, later = copy.reader.messages[:1], copy.reader.messages
    copy.run_rounds()
    assert (copy.frontier.epoch, copy.frontier.source_offset, copy.position) == (EPOCH + 1, -1, 1)
    copy.reader.messages = [later[0], build_envelope(1, -1, 8, [], epoch=EPOCH + 1)]
    copy.run_rounds()
    assert (copy.frontier.epoch, copy.frontier.source_offset, copy.position) == (EPOCH + 1, 8, 2)
    assert copy.producers.committed == [[], []]
    assert copy.count_records() == {}


def test_records_of_the_old_format_are_dropped_and_counted() -> None:
    """They are of an earlier version: what they had is written again, from the frontier on."""
    copy = Copy(
        [
            build_message(b"x", 0, b"k", [("own", b"1"), ("__origin", b"\1" * 40)]),
            build_message(None, 1, None, [("__read_up_to", b"\1")]),
            build_envelope(2, -1, 1),
        ]
    )
    copy.run_rounds()
    assert copy.producers.list_records() == unwrap_offsets(0, 1)
    assert copy.position == 3
    assert copy.count_records() == {"in": 4, "out": 2, "old format": 2}


GOOD = build_envelope(4, -1, 1).value() or b""


@pytest.mark.parametrize(
    ("value", "key", "headers", "reason"),
    [
        pytest.param(b"\1" + GOOD[1:], None, None, "version is 1", id="version"),
        pytest.param(GOOD[:20], None, None, "at least 54 bytes, not 20", id="cut"),
        pytest.param(None, None, None, "it has no value", id="tombstone"),
        pytest.param(GOOD, b"key", None, "headers or a key", id="key"),
        pytest.param(GOOD, None, [("h", b"")], "headers or a key", id="header"),
        pytest.param(
            build_envelope(4, -1, 1, source_partition=3).value(),
            None,
            None,
            "it is of source partition 3",
            id="another partition",
        ),
        pytest.param(GOOD[:-3], None, None, "impossible length|not the last record", id="damaged"),
    ],
)
@BOTH_PATHS
def test_what_is_no_envelope_is_named(
    monkeypatch: pytest.MonkeyPatch,
    is_compiled: bool,
    value: bytes | None,
    key: bytes | None,
    headers: list[tuple[str, bytes | None]] | None,
    reason: str,
) -> None:
    """With its partition and its offset; nothing of the round is committed."""
    if is_compiled:
        use_compiled_path(monkeypatch)
    copy = Copy([build_envelope(3, -1, -1), build_message(value, 4, key, headers)])
    with pytest.raises(ForeignRecord, match=rf"t-proxy-0 at offset 4: .*({reason})") as stopped:
        copy.run_rounds()
    assert stopped.value.exit_code == 24
    assert copy.producers.commits == []
    assert copy.producers.state == "ready", "no transaction is open"


def test_a_damaged_envelope_without_new_records_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frontier must not be moved by what nobody has read: the open transaction is aborted. The
    first record has no kind of timestamp.
    """
    use_compiled_path(monkeypatch)
    good = build_envelope(4, 3, 9, [4, 5, 6]).value() or b""
    damaged = good[: HEAD.size + 2] + b"\7" + good[HEAD.size + 3 :]
    copy = Copy([build_message(damaged, 4)], FRONTIER_AT_6)
    with pytest.raises(ForeignRecord, match=r"t-proxy-0 at offset 4: .* no kind of timestamp: 6"):
        copy.run_rounds()
    assert (copy.producers.aborted, copy.producers.commits) == (1, [])


def test_another_topics_envelope_ends_the_copy_before_anything_is_written() -> None:
    """The source topic was created again. What is no news is dropped, whoever wrote it."""
    other = "f" * 16
    copy = Copy(
        [
            build_envelope(0, -1, 1),
            build_envelope(1, -1, 1, source_identity=other),
            build_envelope(2, 1, 3, source_identity=other),
        ]
    )
    with pytest.raises(SourceRecreated, match=r"with identity f{16}"):
        copy.run_rounds()
    assert copy.producers.commits == []
    copy = Copy(copy.reader.messages[:2])
    copy.run_rounds()
    assert copy.producers.list_records() == unwrap_offsets(0, 1)


@BOTH_PATHS
def test_a_timestamp_that_cannot_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> None:
    """With its source partition and offset; with the setting it is written as 1 ms, and the
    frontier has both: the source's record, and the one that was written.
    """
    if is_compiled:
        use_compiled_path(monkeypatch)
    zero = build_source_record(1, timestamp_ms=0)
    messages = [build_envelope(0, -1, 1, records=[build_source_record(0), zero])]
    copy = Copy(messages)
    with pytest.raises(RecordRefused, match="partition 0 at offset 1 has timestamp 0"):
        copy.run_rounds()
    assert copy.producers.commits == []
    assert copy.producers.state == "ready", "no transaction is open"
    copy = Copy(messages, settings={"REO_DESTINATION_ZERO_TIMESTAMP": "one"})
    copy.run_rounds()
    first, last = copy.producers.list_records()
    assert (first, last) == (*unwrap_offsets(0), (zero.key, zero.value, None, 1))
