"""A commit request that arrives late, on a real broker: what it does to a program that went on with
the same producer, and to ours.

In transactions v1, all that librdkafka speaks, an EndTxn names a producer id and an epoch, not a
transaction (KIP-890). One that is still in the network when the next transaction of the same
producer is open therefore ends that one. The proxy makes it so: it holds the EndTxn and releases it
into the next transaction.

The program is stage two's round in small: each transaction writes four numbers, and their frontier
as the group's committed offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from common.kafka.clients import LossCounter
from common.liveness import Liveness
from deduplicator.transactions.producer_pair import ProducerPair
from deduplicator.transactions.transaction_failures import TransactionFailed
from deduplicator.transactions.transactional_producer import TransactionalProducer
from tests.harness.kafka import Cluster, until
from tests.unit.deduplicator.test_transaction_table import commit
from tools.faults.proxy import Proxy
from tools.faults.proxy_rule import ProxyRule

ANSWER_S = 60
SILENT_S = 5
NUMBERS = 4
REFUSED = {KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}


class Story:
    """A topic, a group with a frontier, and what a program does to them through the proxy."""

    def __init__(self, cluster: Cluster, proxy: Proxy, topic: str) -> None:
        self.cluster, self.proxy, self.topic = cluster, proxy, cluster.create(topic, 1)
        self.group = Consumer(
            {
                "bootstrap.servers": cluster.address,
                "group.id": topic,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )

    def producer(self, letter: str, lost: LossCounter | None = None) -> Producer:
        """A client; its transactions outlive the test, so that no timeout ends one."""
        told = {"logger": lost, **LossCounter.OPTIONS} if lost else {"log_level": 0}
        name = f"{self.topic}-{letter}"
        return Producer(
            {
                "bootstrap.servers": self.proxy.address,
                "transactional.id": name,
                "client.id": name,
                "transaction.timeout.ms": 300_000,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 200,
            }
            | told
        )

    def frontier(self) -> int:
        """The next number to write; waits while a transaction that could still change it is
        open.
        """
        (tp,) = self.group.committed([TopicPartition(self.topic, 0)], ANSWER_S)
        return max(0, int(tp.offset))

    def offsets(self, following: int) -> tuple[list[TopicPartition], Any]:
        """What is sent to the transaction."""
        return [TopicPartition(self.topic, 0, following)], self.group.consumer_group_metadata()

    def write(self, client: Producer, first: int, following: int) -> list[KafkaError]:
        """Write numbers and wait for their reports; returns the errors."""
        errors: list[KafkaError] = []
        for number in range(first, following):
            client.produce(
                self.topic,
                b"%d" % number,
                partition=0,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        client.flush(ANSWER_S)
        return errors

    def hold(self, letter: str) -> ProxyRule:
        """The next EndTxn of this producer will be late."""
        return self.proxy.add_rule("hold", "EndTxn", client_id=f"{self.topic}-{letter}")

    def cut_when(self, held: ProxyRule) -> Thread:
        """In the background, because the client waits in its commit: cut all connections as soon as
        the rule has struck.
        """
        cutter = Thread(target=lambda: held.matched_event.wait(ANSWER_S) and self.proxy.cut_all())
        cutter.start()
        return cutter

    def release(self, rule: ProxyRule) -> int:
        """Let it arrive; returns the broker's error code, once nothing is undecided that it
        decided.
        """
        assert rule.hits == 1
        assert not rule.answers
        rule.release()
        assert rule.answered.wait(ANSWER_S)
        assert (rule.requests[0].api, rule.requests[0].version) == ("EndTxn", 1)
        return int(struct.unpack(">ih", rule.answers[0][:6])[1])

    def read_visible(self) -> list[int]:
        """What a reader of committed records sees when no transaction is open."""
        until(
            lambda: self.cluster.has_no_open_transaction(self.topic),
            "no transaction is open",
            ANSWER_S,
        )
        return [int(record.value or b"") for record in self.cluster.read(self.topic)[0]]


@pytest.fixture
def story(proxied: tuple[Cluster, Proxy], topic: str) -> Iterator[Story]:
    """A topic of this test's own; no rule outlives its test."""
    story = Story(*proxied, topic)
    yield story
    story.group.close()
    story.proxy.rules.clear()


@pytest.mark.long
def test_without_the_defence_a_late_commit_makes_duplicates(story: Story) -> None:
    """The client's manual says of a commit that timed out: call it again. The second EndTxn is
    answered; the first, late, ends the next transaction.

    The frontier is read again after the failure, as we do: it does not help, because it was not yet
    in the transaction that was ended.
    """
    client = story.producer("a")
    client.init_transactions(ANSWER_S)
    rule = story.hold("a")
    client.begin_transaction()
    assert story.write(client, 0, NUMBERS) == []
    client.send_offsets_to_transaction(*story.offsets(NUMBERS), ANSWER_S)
    with pytest.raises(KafkaException) as failed:
        client.commit_transaction(SILENT_S)
    assert failed.value.args[0].retriable()
    assert story.proxy.cut_all() >= 1
    client.commit_transaction(ANSWER_S)
    assert story.read_visible() == [0, 1, 2, 3]

    client.begin_transaction()
    assert story.write(client, 4, 6) == []
    assert story.release(rule) == 0
    assert story.read_visible() == [0, 1, 2, 3, 4, 5], (
        "half of a transaction that nobody has committed"
    )
    assert [error.name() for error in story.write(client, 6, 7)] == ["INVALID_TXN_STATE"]

    again = story.producer("a")
    again.init_transactions(ANSWER_S)
    frontier = story.frontier()
    assert frontier == NUMBERS
    again.begin_transaction()
    story.write(again, frontier, 8)
    again.send_offsets_to_transaction(*story.offsets(8), ANSWER_S)
    again.commit_transaction(ANSWER_S)
    assert story.read_visible() == [0, 1, 2, 3, 4, 5, 4, 5, 6, 7]


def producer_pair(story: Story) -> ProducerPair:
    """Our two producers, initialised; b is the first to have its turn."""

    def producer(letter: str) -> TransactionalProducer:
        lost = LossCounter(f"late-{letter}")
        return TransactionalProducer(
            partial(story.producer, letter, lost), ANSWER_S, Liveness("test"), lost.count_losses
        )

    pair = ProducerPair(producer("a"), producer("b"))
    pair.initialise()
    return pair


def round_of(
    story: Story, pair: ProducerPair, client: Producer, first: int, following: int
) -> None:
    """The rest of a transaction that is open."""
    assert story.write(client, first, following) == []
    pair.current.send_offsets(*story.offsets(following))
    commit(pair.current)


def test_with_the_defence_a_late_commit_is_refused(story: Story) -> None:
    """The outcome is in doubt: the producer is thrown away, the next one takes a new epoch, and the
    frontier says that nothing was committed.

    The late EndTxn arrives in the middle of the new producer's own transaction, is refused for its
    epoch, and each number is there once.
    """
    pair = producer_pair(story)
    rule = story.hold("b")
    client = pair.begin()
    assert story.write(client, 0, NUMBERS) == []
    pair.current.send_offsets(*story.offsets(NUMBERS))
    pair.current.timeout_s = SILENT_S
    with pytest.raises(TransactionFailed):
        commit(pair.current)
    thrown_away = pair.current
    assert thrown_away.state == "new"
    thrown_away.timeout_s = ANSWER_S
    del client
    story.proxy.cut_all()
    pair.initialise()
    frontier = story.frontier()
    assert (frontier, story.read_visible()) == (0, [])

    round_of(story, pair, pair.begin(), frontier, NUMBERS)
    client = pair.begin()
    assert pair.current is thrown_away, (
        "the transaction that is open now is the one that the late EndTxn could end"
    )
    assert story.write(client, 4, 6) == []
    assert story.release(rule) in REFUSED
    assert (
        story.cluster.end_offsets(story.topic, stable=True)[0]
        < story.cluster.end_offsets(story.topic)[0]
    ), "the transaction is still open"
    round_of(story, pair, client, 6, 8)
    assert story.read_visible() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert story.frontier() == 8


def test_a_commit_that_the_client_repeats_by_itself_is_in_doubt_too(story: Story) -> None:
    """A lost connection is repaired inside librdkafka: it sends EndTxn again, and the commit
    succeeds. The first EndTxn may still be on its way.

    The commit is certain, so it is not undone; but the producer must not be used again: its next
    transaction is another epoch's.
    """
    pair = producer_pair(story)
    rule = story.hold("b")
    cutter = story.cut_when(rule)
    round_of(story, pair, pair.begin(), 0, NUMBERS)
    cutter.join()
    repeating = pair.current
    assert story.read_visible() == [0, 1, 2, 3]
    round_of(story, pair, pair.begin(), 4, 8)
    client = pair.begin()
    assert pair.current is repeating
    assert story.write(client, 8, 10) == []
    assert story.release(rule) in REFUSED
    round_of(story, pair, client, 10, 12)
    assert story.read_visible() == list(range(12))
    assert story.frontier() == 12


def test_every_lost_connection_is_counted(story: Story) -> None:
    """Several in a row, all with the same text: librdkafka's log at INFO would leave the later ones
    out for half a minute, and the producer would be used again.
    """
    lost = LossCounter("late-c")
    client = story.producer("c", lost)
    client.init_transactions(ANSWER_S)
    for _ in range(4):
        before = lost.count_losses(client)
        client.begin_transaction()
        assert story.write(client, 0, 1) == []
        assert story.proxy.cut_all() >= 1
        until(lambda before=before: lost.count_losses(client) > before, "it is counted", ANSWER_S)
        client.abort_transaction(ANSWER_S)
