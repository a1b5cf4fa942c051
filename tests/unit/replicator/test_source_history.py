"""A source that has lost records, told by the last ones that were copied
(`replicator.runs.last_record_check`); on real brokers: `tests/broker/test_history.py`.
"""

from __future__ import annotations

from typing import cast

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from common.errors import SourceTruncated
from common.kafka import partition_offsets, visible_records
from common.routes import TopicPartition
from common.settings import load
from replicator.runs.last_record_check import LastCopied, check_source_history
from tests.harness.last_record import make_last_record


def test_a_partition_that_does_not_answer_hides_no_loss_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither record can be read: of one partition nothing is known, the other one's last stable
    offset is below it. The loss is named.
    """
    settings = load(
        {
            "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
            "REO_SOURCE_TOPIC": "orders",
            "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
        }
    )
    silent, lost = TopicPartition("orders", 0), TopicPartition("orders", 1)
    monkeypatch.setattr(visible_records, "read_first_records", lambda *_: {})
    monkeypatch.setattr(
        partition_offsets, "list_beginning_offsets", lambda *_, **__: {silent: 0, lost: 0}
    )
    monkeypatch.setattr(
        partition_offsets, "list_end_offsets", lambda *_, **__: {silent: 10, lost: 3}
    )
    with pytest.raises(SourceTruncated, match="orders-1 has an open transaction at offset 3"):
        check_source_history(
            settings,
            cast(AdminClient, None),
            cast(Consumer, None),
            {tp: LastCopied(make_last_record(5), 5) for tp in (silent, lost)},
        )
