"""`reo verify --wait` beside producers that go on writing: what both sides get after the end that
is compared is left out.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

import pytest

from common.kafka import partition_offsets, visible_records
from common.routes import TopicPartition
from common.settings import load
from reo.compare import parallel
from reo.compare.comparison import Comparison
from reo.compare.parallel import PairComparer, PartitionPair
from tests.unit.reo.test_alignment import Message

SOURCE, COPY = TopicPartition("orders", 0), TopicPartition("copy", 0)
SETTINGS = {
    "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
    "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
    "REO_SOURCE_TOPIC": SOURCE.topic,
    "REO_DESTINATION_TOPIC": COPY.topic,
}


@pytest.mark.parametrize(
    ("written", "source_end", "difference"),
    [
        ("c", 2, ""),
        ("", 2, "1 records too many, from destination offset 2 on"),
        ("c", None, "1 records too many, from destination offset 2 on"),
    ],
)
def test_a_record_that_is_written_and_copied_between_both_ends(
    monkeypatch: pytest.MonkeyPatch, written: str, source_end: int | None, difference: str
) -> None:
    """The source's reader has ended, then a record is written and copied, then the destination's
    reader gets it: no difference. One that the source does not have is; and without an end
    everything is compared.
    """
    records = {tp: [Message("a", 0), Message("b", 1)] for tp in (SOURCE, COPY)}

    def read_batches(
        _: object, begins: Mapping[TopicPartition, int], *more: object, **ends: object
    ) -> Generator[list[Message]]:
        ((tp, begin),) = begins.items()
        yield from ([record] for record in list(records[tp]) if record.offset() >= begin)
        if tp == SOURCE and len(records[COPY]) == 2:
            records[SOURCE] += [Message(letter, 2) for letter in written]
            records[COPY].append(Message("c", 2))
            return
        yield from ([record] for record in records[tp] if record.offset() >= max(begin, 2))

    def list_end_offsets(
        _: object, tps: list[TopicPartition], **more: object
    ) -> dict[TopicPartition, int]:
        return {tp: len(records[tp]) for tp in tps}

    monkeypatch.setattr(parallel, "create_readers", lambda *_, **__: (None, None))
    monkeypatch.setattr(parallel, "create_admin_clients", lambda *_: (None, None))
    monkeypatch.setattr(visible_records, "read_batches", read_batches)
    monkeypatch.setattr(partition_offsets, "list_end_offsets", list_end_offsets)
    monkeypatch.setattr(
        partition_offsets, "list_beginning_offsets", lambda _, tps: dict.fromkeys(tps, 0)
    )
    pair = PartitionPair(SOURCE, COPY, Comparison(SOURCE, 0, 0), False, False, source_end)
    result = PairComparer(load(SETTINGS)).compare(pair, lambda _: None)
    assert result.equal == 2
    assert result.difference.startswith(difference)
    assert bool(result.difference) == bool(difference)


@pytest.mark.parametrize("side", ["source", "copy"])
@pytest.mark.parametrize("copy", [COPY, SOURCE], ids=["another name", "the same name"])
def test_a_head_that_is_deleted_meanwhile_is_no_difference(
    monkeypatch: pytest.MonkeyPatch, side: str, copy: TopicPartition
) -> None:
    """The partition began at 0 when the command did; it is compared much later."""
    monkeypatch.setattr(parallel, "create_readers", lambda *_, **__: (None, None))
    monkeypatch.setattr(parallel, "create_admin_clients", lambda *_: ("source", "copy"))
    monkeypatch.setattr(
        partition_offsets,
        "list_beginning_offsets",
        lambda client, tps: dict.fromkeys(tps, int(client == side)),
    )
    asked: list[object] = []
    monkeypatch.setattr(parallel, "find_common_start", lambda _, __, *flags: asked.append(flags))
    pair = PartitionPair(SOURCE, copy, Comparison(SOURCE, 0, 0), False, False)
    PairComparer(load(SETTINGS))._set_start(pair)
    assert asked == [(side == "source", side == "copy")]
