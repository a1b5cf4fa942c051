"""What `reo status`, `lag`, `verify --wait` and `cutover` ask of the clusters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from common.frontier import Frontier
from common.kafka import partition_offsets, visible_records
from common.kafka.partition_offsets import GroupCommit
from common.routes import TopicPartition
from common.settings import load
from reo.progress.progress_snapshot import Readings
from tests.unit.common.settings.test_settings import GOOD


@pytest.mark.parametrize("count", [3, 50])
def test_a_snapshot_takes_as_many_requests_for_many_partitions(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """With and without a frontier: partition 0 has one, the copy of partition 1 is gone, the others
    begin with the source's first record.
    """
    requests: list[set[TopicPartition]] = []

    def list_offsets(_: object, tps: Any, *__: object, **___: object) -> dict[TopicPartition, int]:
        requests.append(set(tps))
        return dict.fromkeys(tps, 7)

    monkeypatch.setattr(partition_offsets, "list_offsets", list_offsets)
    monkeypatch.setattr(
        visible_records, "read_first_records", lambda _, begins, __: dict.fromkeys(begins)
    )
    pairs = {
        TopicPartition("orders", number): TopicPartition("orders-reo", number)
        for number in range(count)
    }
    sources, intermediates = list(pairs), list(pairs.values())
    clients = dict.fromkeys(
        ("source_admin", "destination_admin", "frontier_reader", "source_reader")
    )
    readings = Readings(
        load(GOOD),
        cast(Any, SimpleNamespace(**clients)),
        pairs,
        intermediates,
        {intermediates[0]: GroupCommit(0, Frontier(41, 0, "identity", count, "id", 3, 0))},
        {intermediates[1]: "copies"},
    )
    assert readings.copied == {sources[0]: 42, **dict.fromkeys(sources[1:], 7)}
    assert len([asked for asked in requests if asked]) == 6
