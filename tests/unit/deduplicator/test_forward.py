"""What a topic as the destination makes of whole envelopes: the compiled path hands over all new
records but the last one, which Python writes, with the request for a delivery report. (The C
function: `test_compiled`; on a real broker: `tests/broker/test_forwarding.py`.)
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from common.envelope import OFFSET_MAX
from common.metrics import QUEUE_FULL
from deduplicator import compiled_path
from deduplicator.transactions.transaction_failures import TransactionFailed
from tests.harness.intermediate_records import (
    HERE,
    build_envelope,
    build_envelopes,
    build_source_record,
    unwrap_offsets,
)
from tests.harness.stage_two import Copy, Producers, use_compiled_path


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Notes what the C function is asked for: above, and below, which source offset."""
    use_compiled_path(monkeypatch)
    asked: list[tuple[int, int]] = []
    function = compiled_path.forward

    def forward(*arguments: Any) -> Any:
        asked.append(arguments[3:5])
        return function(*arguments)

    monkeypatch.setattr(compiled_path, "forward", forward)
    return asked


def test_the_last_record_has_a_delivery_report(compiled: list[tuple[int, int]]) -> None:
    """Wherever it is: envelopes after it have none that is new."""
    copy = Copy([*build_envelopes(3, 9), build_envelope(2, 5, 12, [6, 7])])
    copy.run_rounds()
    assert copy.producers.list_records() == unwrap_offsets(*range(10))
    assert copy.producers.reported == unwrap_offsets(9)
    assert compiled == [(-1, OFFSET_MAX), (3, 9), (9, OFFSET_MAX)]
    assert copy.frontier.source_offset == 12
    assert copy.partitions.assigned[HERE].output.sent == 10


def test_a_single_record_is_written_by_python(compiled: list[tuple[int, int]]) -> None:
    """Of its envelope nothing is left to C but the check."""
    copy = Copy([build_envelope(0, -1, 0)])
    copy.run_rounds()
    assert copy.producers.list_records() == copy.producers.reported == unwrap_offsets(0)
    assert compiled == [(-1, 0)]


@pytest.mark.parametrize("queue_size", [1, 2, 3, 7])
def test_a_full_queue_is_waited_for(queue_size: int, compiled: list[tuple[int, int]]) -> None:
    """Then the rest follows: each record once, in order."""
    before = _count_full_queues()
    copy = Copy(build_envelopes(4, 9, 11))
    copy.producers.queue_size = queue_size
    copy.run_rounds()
    assert copy.producers.list_records() == unwrap_offsets(*range(12))
    assert _count_full_queues() - before == 11 // queue_size
    assert len(compiled) > 3


def _count_full_queues() -> float:
    return sum(
        sample.value for sample in QUEUE_FULL.collect()[0].samples if "_total" in sample.name
    )


def test_a_queue_that_stays_full_ends_with_the_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When its time is over: nothing of it is committed, and it is tried again."""
    copy = Copy(build_envelopes(4))
    copy.producers.queue_size = 2
    monkeypatch.setattr(copy.producers, "poll", lambda _: 0)
    checked: list[str] = []

    def check_deadline(operation: str) -> None:
        checked.append(operation)
        if len(checked) == 9:
            copy.producers.abort()
            raise TransactionFailed("not over")

    monkeypatch.setattr(copy.producers, "check_deadline", check_deadline)
    copy.run_rounds()
    assert set(checked) == {"writing to t-0"}
    assert copy.producers.commits == []
    assert copy.loop.has_failed


def test_what_the_client_refuses_is_the_transactions_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for a record that Python writes."""
    copy = Copy(build_envelopes(4))
    failures: list[tuple[KafkaException, str]] = []

    def refuse(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL, "fenced"))

    def handle_failure(failure: KafkaException, operation: str) -> Exception:
        failures.append((failure, operation))
        copy.producers.abort()
        return TransactionFailed("fenced")

    monkeypatch.setattr(compiled_path, "forward", refuse)
    monkeypatch.setattr(copy.producers, "handle_failure", handle_failure, raising=False)
    copy.run_rounds()
    assert [operation for _, operation in failures] == ["writing to t-0"]
    assert copy.producers.commits == []


def test_headers_and_empty_contents_are_those_of_the_source() -> None:
    """Of the last record, which Python writes, and of the others."""
    records = [
        build_source_record(0, headers=((b"a", b"1"), (b"a", None))),
        build_source_record(1)._replace(key=None, value=b""),
        build_source_record(2)._replace(key=b"", value=None),
        build_source_record(3, headers=((b"", b""),)),
    ]
    copy = Copy([build_envelope(0, -1, 3, records=records)])
    copy.run_rounds()
    assert [(key, value, headers) for key, value, headers, _ in copy.producers.list_records()] == [
        (b"0", records[0].value, [("a", b"1"), ("a", None)]),
        (None, b"", None),
        (b"", None, None),
        (b"3", records[3].value, [("", b"")]),
    ]


def test_without_a_client_of_librdkafka_python_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right after a producer was discarded there is none; the same records are written."""
    copy = Copy(build_envelopes(4))
    monkeypatch.setattr(copy.producers, "client", None)
    monkeypatch.setattr(compiled_path, "forward", None)
    copy.run_rounds()
    assert copy.producers.list_records() == unwrap_offsets(*range(5))
    assert isinstance(copy.producers, Producers)
