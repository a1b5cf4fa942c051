"""A destination that loses records, seen by the offset of the next delivery or by what the cluster
answers; on real brokers: `tests/e2e/test_lost_destination.py`.
"""

from __future__ import annotations

import contextlib
import itertools
from concurrent.futures import Future
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Uuid
from hypothesis import given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

from common import clock
from common.errors import ClusterUnreachable, DestinationTruncated, TopicsUnfit
from common.frontier import Frontier, decode
from common.routes import Route, TopicPartition
from deduplicator import destination_watch
from deduplicator.destination import UNCOUNTED, Output
from deduplicator.destination_watch import DestinationWatch
from deduplicator.kafka_destination import KafkaDestination
from deduplicator.partition import Partition
from deduplicator.transactions.transaction_failures import TransactionFailed
from tests.harness.stage_two import describe_config

PLACE = TopicPartition("copy", 0)


def make_partition(output: Output) -> Partition:
    """That is written to PLACE."""
    route, frontier = Route("t", "copy", "copy-proxy"), Frontier(-1, 1, "1d" * 8, 1, "id", 4, 0)
    return Partition(TopicPartition("copy-proxy", 0), route, 0, frontier, output)


def deliver(output: Output, offset: int) -> Output:
    """The output of a partition whose last record is delivered at this offset."""
    partition = make_partition(output)
    partition.on_delivered({PLACE: offset})
    return partition.output


@of_hypothesis(max_examples=500, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.booleans()), max_size=8),
    st.integers(1, 8),
    st.integers(1, 3),
)
def test_a_loss_is_seen_by_the_offset_of_the_next_delivery(
    before: list[tuple[int, int, bool]], lost: int, after: int
) -> None:
    """A log with markers, aborted records and deliveries of unknown offset is never called short;
    one that lost its last record, and others, always is.
    """
    log, output = 0, Output(-1, 0)
    for aborted, records, reported in before:
        log += aborted + (aborted > 0)
        if records:
            output = output._replace(sent=output.sent + records)
            log += records
            delivered = deliver(output, log - 1)
            assert delivered == Output(log - 1, 0, is_known_written=True)
            if reported:
                output = delivered
            log += 1
    deliver(output._replace(sent=output.sent + after), log + after - 1)
    if output.known_offset >= 0 and not output.sent:
        end = max(0, output.known_offset + 1 - lost)
        with pytest.raises(DestinationTruncated, match="lost records"):
            deliver(output._replace(sent=after), end + after - 1)


class Delivering:
    """A producer that delivers each record at once, at the offsets 7, 9, 11, …"""

    def __init__(self) -> None:
        self.offsets = itertools.count(7, 2)
        self.timestamp = 1, 1
        """Kind and milliseconds, as delivery reports have them."""

    def produce(self, *arguments: Any) -> None:
        """With a delivery report, if one is asked for."""
        topic, _, _, partition, on_delivery, *_ = arguments
        message = Mock()
        message.topic.return_value, message.partition.return_value = topic, partition
        message.offset.return_value = next(self.offsets)
        message.timestamp.return_value = self.timestamp
        if on_delivery:
            on_delivery(None, message)


def test_the_frontier_says_that_the_last_delivered_record_has_to_be_there() -> None:
    """That of the next transaction; this one's was sent before the delivery was known."""
    pair, partition = Mock(), make_partition(Output(4, 0))
    pair.begin.return_value = Delivering()
    destination = KafkaDestination(pair, Mock(), describe_config)
    found = []
    for _ in range(2):
        destination.begin()
        partition.get_decisions().records = [(None, b"value", None, 1)]
        partition.write(destination)
        partition.on_delivered(destination.send_offsets([partition.prepare_commit()], None))
        partition.on_commit_started()
        ((sent,), _) = pair.current.send_offsets.call_args.args
        frontier = decode(sent.metadata)
        found.append((frontier.destination_known, frontier.sent, frontier.is_known_written))
    assert found == [(4, 1, False), (7, 1, True)]
    assert partition.output == Output(9, 0, is_known_written=True)


@pytest.mark.parametrize("output", [Output(-1, 0), UNCOUNTED], ids=["own", "shared"])
def test_the_first_records_of_a_partition_are_delivered_before_their_offsets_are_sent(
    output: Output,
) -> None:
    """The offsets can be deleted with their topic while the transaction is open: a successor that
    finds no frontier has to find the destination not empty. Later, the two go side by side.
    """
    pair = Mock()
    pair.begin.return_value = Delivering()
    destination = KafkaDestination(pair, Mock(), describe_config)
    there = PLACE._replace(partition=PLACE.partition + 1)
    for partitions in ([PLACE], [PLACE], [PLACE, there], [there]):
        if partitions == [there]:  # one of its records was perhaps refused
            destination.abort()
        destination.begin()
        for tp in partitions:
            destination.write(tp, [(None, b"value", None, 1)], PLACE, [0], output)
        destination.send_offsets([], None)
    calls = [name for name, *_ in pair.current.method_calls if name in ("flush", "send_offsets")]
    first, later = ["flush", "send_offsets", "flush"], ["send_offsets", "flush"]
    assert calls == [*first, *later, *first, *first]


@pytest.mark.parametrize(
    ("type_now", "error"),
    [
        ("LogAppendTime", TopicsUnfit),
        ("CreateTime", TransactionFailed),
        (ClusterUnreachable, TransactionFailed),
    ],
)
def test_a_timestamp_of_a_brokers_is_not_committed(type_now: Any, error: type[Exception]) -> None:
    """The topic is asked: a batch that came twice, because a connection was lost, is reported like
    that too, and is written again. Also where no offset is counted (a mapping, parked records).
    """
    client, pair = Delivering(), Mock()
    pair.begin.return_value = client
    config = Mock(side_effect=[{"message.timestamp.type": Mock(value=type_now)}])
    if type_now is ClusterUnreachable:
        config.side_effect = ClusterUnreachable
    destination = KafkaDestination(pair, Mock(), config)
    for kind in (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_CREATE_TIME):
        client.timestamp = kind, 1
        destination.begin()
        destination.write(PLACE, [(None, b"value", None, 1)], PLACE, [0], UNCOUNTED)
        with (
            pytest.raises(error) if kind == TIMESTAMP_LOG_APPEND_TIME else contextlib.nullcontext()
        ):
            destination.send_offsets([], None)
    config.assert_called_once_with("copy")


class Asked:
    """An admin client whose answers are given by hand."""

    def __init__(self, topic_id: Uuid, end: int) -> None:
        self.topic_id = topic_id
        self.end = end
        self.calls = 0

    def describe_topics(self, topics: Any, **_: Any) -> dict[str, Future[Any]]:
        """The id, at once."""
        self.calls += 1
        return {"copy": complete_future(topic_id=self.topic_id)}

    def list_offsets(self, asked: Any, **_: Any) -> dict[Any, Future[Any]]:
        """The end, at once."""
        return {tp: complete_future(offset=self.end) for tp in asked}

    def list_topics(self, *_: Any) -> None:
        """Renew the leaders that it knows."""


def complete_future(**answer: Any) -> Future[Any]:
    """A future with these attributes as its result."""
    found: Future[Any] = Future()
    found.set_result(type("Answer", (), answer))
    return found


SAME, OTHER = Uuid(1, 2), Uuid(3, 4)


@pytest.mark.parametrize(
    ("topic_id", "end", "lost"),
    [
        (SAME, 8, ""),
        (SAME, 100, ""),
        (SAME, -1001, ""),
        (Uuid(0, 0), 8, ""),
        (OTHER, 8, "was deleted and recreated"),
        (SAME, 7, "ends at 7"),
        (SAME, 0, "ends at 0"),
    ],
)
def test_what_the_watch_makes_of_an_answer(
    monkeypatch: pytest.MonkeyPatch, topic_id: Uuid, end: int, lost: str
) -> None:
    """Offset 7 was written: the partition has to end behind it, in one of two answers, and the
    topic to be the same; no answer is no loss. It is not asked before it is time.
    """
    now = 0.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    client = Asked(topic_id, end)
    watch = DestinationWatch(client)
    watch.poll({"copy": str(SAME)}, {PLACE: 7})
    assert client.calls == 0
    now = destination_watch.REQUEST_INTERVAL_S
    watch.poll({"copy": str(SAME)}, {PLACE: 7})
    assert client.calls == 1
    if lost.startswith("ends"):
        watch.poll({"copy": str(SAME)}, {PLACE: 7})
        assert client.calls == 2
    if lost:
        with pytest.raises(DestinationTruncated, match=lost):
            watch.poll({"copy": str(SAME)}, {PLACE: 7})
    else:
        watch.poll({"copy": str(SAME)}, {PLACE: 7})
        assert client.calls == 1


def test_an_old_answer_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that was replaced and does not know it yet has an older end than the one that stage
    two has written to: the next answer decides.
    """
    now = 0.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    client = Asked(SAME, 7)
    watch = DestinationWatch(client)
    for round_number in range(6):
        now += destination_watch.REQUEST_INTERVAL_S
        watch.poll({"copy": str(SAME)}, {PLACE: 7})
        client.end = 7 if round_number % 2 else 8
    assert client.calls >= 5
