"""The simulated Kafka by itself: several processes on one clock, and requests, members and records
that are lost. No broker is needed.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from confluent_kafka import KafkaException, TopicPartition

from tests.harness.kafka_scripts import LONG_S, ScriptContext
from tests.harness.simulation import TOPIC, Simulation
from tools.simulator.kafka import RequestOutcome


def transact(simulation: Simulation, context: ScriptContext, name: str, count: int) -> None:
    """Transactions of three records, each third one aborted, until another producer of the same id
    takes over.
    """
    producer = context.transactional(transactional_id="one id")
    try:
        producer.init_transactions(LONG_S)
        for number in range(count):
            producer.begin_transaction()
            is_aborted = number % 3 == 2
            context.write(
                producer,
                [
                    f"{name}-{number}-{record}{'-aborted' if is_aborted else ''}"
                    for record in range(3)
                ],
                number % 2,
            )
            (producer.abort_transaction if is_aborted else producer.commit_transaction)(LONG_S)
            simulation.note(name, number)
            simulation.schedule.sleep(simulation.schedule.random.random() / 10)
    except KafkaException as failed:
        simulation.note(name, (failed.args[0].name(), failed.args[0].fatal()))


def two_producers(seed: int) -> Simulation:
    """Of one transactional id; the second begins while the first works. A reader reads all the
    while.
    """
    simulation = Simulation(seed, 2)

    def read(context: ScriptContext) -> None:
        reader = context.reader()
        reader.assign([TopicPartition(TOPIC, partition, 0) for partition in range(2)])
        while simulation.schedule.now < 60:
            for message in reader.consume(10, 0.5):
                if message.error() is None:
                    simulation.note("reader", message.value())

    def begin_later(context: ScriptContext) -> None:
        simulation.schedule.sleep(0.2 + simulation.schedule.random.random())
        transact(simulation, context, "second", 10)

    simulation.start("reader", read)
    simulation.start("first", lambda context: transact(simulation, context, "first", 100))
    simulation.start("second", begin_later)
    simulation.run()
    return simulation


@pytest.mark.parametrize("seed", range(10))
def test_two_producers_of_one_id(seed: int) -> None:
    """The older one is fenced, the reader sees whole committed transactions only and each record
    once; the same seed tells the same story.
    """
    simulation = two_producers(seed)
    ends = [what for _, who, what in simulation.story if who == "first"]
    assert ends[-1] == ("_FENCED", True)
    assert [what for _, who, what in simulation.story if who == "second"] == list(range(10))
    seen = [what.decode() for _, who, what in simulation.story if who == "reader"]
    assert len(seen) == len(set(seen))
    assert not any("aborted" in value for value in seen)
    committed = {f"second-{number}" for number in range(10) if number % 3 != 2} | {
        f"first-{number}" for number in ends[:-1] if number % 3 != 2
    }
    whole = {value.rpartition("-")[0] for value in seen}
    assert committed <= whole, "what was answered to be committed is there"
    assert len(whole) <= len(committed) + 1, (
        "one whose answer the fenced producer did not have may be there too"
    )
    assert len(seen) == 3 * len(whole)
    assert two_producers(seed).story == simulation.story


def test_a_late_end_ends_the_next_transaction() -> None:
    """Transactions v1: the first copy of an EndTxn whose answer was lost commits the transaction
    that is open when it comes.
    """
    simulation = Simulation()

    def work(context: ScriptContext) -> None:
        producer = context.transactional()
        producer.init_transactions(LONG_S)
        producer.begin_transaction()
        context.write(producer, ["first"])
        simulation.outcomes["EndTxn"] = ["late"]
        producer.commit_transaction(LONG_S)
        producer.begin_transaction()
        context.write(producer, ["second"])
        producer.flush(LONG_S)
        assert simulation.values() == [b"first"]
        context.until(
            lambda: simulation.values() == [b"first", b"second"], "the late EndTxn has come", 60.0
        )
        context.note_call("abort", lambda: producer.abort_transaction(LONG_S))
        simulation.note("abort", context.notes[-1])

    simulation.start("producer", work)
    simulation.run()
    assert simulation.story[-1][2] == (
        "abort",
        ("INVALID_TXN_STATE", "retriable=False aborts=False fatal=True"),
    )


@pytest.mark.parametrize("outcome", ["lost", "answer lost", "late"])
@pytest.mark.parametrize(
    "api", ["InitProducerId", "AddPartitionsToTxn", "Produce", "AddOffsetsToTxn", "TxnOffsetCommit"]
)
def test_what_is_lost_is_sent_again_without_duplicates(api: str, outcome: RequestOutcome) -> None:
    """A request of a transaction that is lost, or executed without an answer: the client's log says
    so, and the records are there once.
    """
    simulation, lines = Simulation(), []

    class Log:
        def log(self, level: int, form: str, facility: str, *more: object) -> None:
            lines.append(facility)

    def work(context: ScriptContext) -> None:
        producer = context.transactional(logger=Log(), log_level=6)
        simulation.outcomes[api] = [outcome]
        # a late InitProducerId fences the producer that has asked twice
        with suppress(KafkaException):
            producer.init_transactions(LONG_S)
            producer.begin_transaction()
            context.write(producer, ["a", "b"])
            producer.send_offsets_to_transaction(
                [TopicPartition(TOPIC, 0, 1, "m")],
                context.reader().consumer_group_metadata(),
                LONG_S,
            )
            producer.commit_transaction(LONG_S)
            simulation.note("producer", "committed")

    simulation.start("producer", work)
    simulation.run()
    assert "FAIL" in lines
    assert simulation.story
    assert simulation.values() == [b"a", b"b"]
    assert simulation.values(committed=False) == [b"a", b"b"]
    assert simulation.cluster.groups[TOPIC].offsets.committed == {(TOPIC, 0): (1, "m")}


def test_a_cluster_that_is_away() -> None:
    """Calls time out and can be called again; when it is back, the same commit goes through."""
    simulation = Simulation()

    def work(context: ScriptContext) -> None:
        producer, consumer = context.transactional(), context.reader()
        producer.init_transactions(LONG_S)
        producer.begin_transaction()
        context.write(producer, ["a"])
        producer.flush(LONG_S)
        simulation.cluster.set_down(True)
        context.note_call("commit", lambda: producer.commit_transaction(1.0))
        context.note_call("offsets", lambda: consumer.committed([TopicPartition(TOPIC, 0)], 1.0))
        context.note_call("topics", lambda: context.admin.list_topics(timeout=1.0))
        simulation.schedule.call_later(2.0, lambda: simulation.cluster.set_down(False))
        context.note_call("commit", lambda: producer.commit_transaction(LONG_S))
        simulation.story += [(0.0, what, value) for what, value in context.notes]

    simulation.start("producer", work)
    simulation.run()
    silent = "retriable=False aborts=False fatal=False"
    assert [(what, value) for _, what, value in simulation.story] == [
        ("commit", ("_TIMED_OUT", "retriable=True aborts=False fatal=False")),
        ("offsets", ("_TIMED_OUT", silent)),
        ("topics", ("_TRANSPORT", silent)),
        ("commit", None),
    ]
    assert simulation.values() == [b"a"]


@pytest.mark.parametrize("is_same_epoch", [False, True])
def test_a_log_that_lost_records(is_same_epoch: bool) -> None:
    """A reader beyond the new end is told; under the same leader epoch, a log that has grown again
    looks whole to it.
    """
    simulation = Simulation()

    def work(context: ScriptContext) -> None:
        cluster, reader = simulation.cluster, context.reader(enable_partition_eof=False)
        cluster.append(TOPIC, 0, [(None, b"%d" % number, None, 1) for number in range(10)])
        reader.assign([TopicPartition(TOPIC, 0, 0)])
        assert len(reader.consume(10, LONG_S)) == 10
        assert len(cluster.log(TOPIC, 0).truncate(4, is_same_epoch)) == 4
        cluster.append(TOPIC, 0, [(None, b"other %d" % number, None, 1) for number in range(6)])
        message = reader.poll(LONG_S)
        simulation.note(
            "reader",
            message.error().name() if message.error() else (message.offset(), message.value()),
        )

    simulation.start("reader", work)
    simulation.run()
    assert simulation.story[-1][2] == ((10, b"other 4") if is_same_epoch else "_AUTO_OFFSET_RESET")
    assert simulation.cluster.log(TOPIC, 0).leader_epoch == (0 if is_same_epoch else 1)


def test_a_reader_from_the_earliest_goes_on_where_its_records_end() -> None:
    """With auto.offset.reset=earliest, a position whose records a new leader does not have moves to
    the end of those that it has; one beyond the end, or before the beginning, to the beginning.
    """
    simulation = Simulation(partitions=3)

    def work(context: ScriptContext) -> None:
        cluster = simulation.cluster
        reader = context.reader(enable_partition_eof=False, auto_offset_reset="earliest")
        for partition in range(3):
            cluster.append(
                TOPIC, partition, [(None, b"%d" % number, None, 1) for number in range(10)]
            )
        reader.assign([TopicPartition(TOPIC, 0, 0)])
        assert len(reader.consume(10, LONG_S)) == 10
        cluster.log(TOPIC, 0).truncate(4)
        cluster.append(TOPIC, 0, [(None, b"other", None, 1)])
        assert [one.offset() for one in reader.consume(1, LONG_S)] == [6]
        cluster.log(TOPIC, 1).delete(3)
        for partition, position, first in ((1, 0, 3), (2, 15, 0)):
            reader.assign([TopicPartition(TOPIC, partition, position)])
            assert [one.offset() for one in reader.consume(1, LONG_S)] == [first]
        simulation.note("reader", "done")

    simulation.start("reader", work)
    simulation.run()
    assert simulation.story


def test_a_lost_marker_leaves_its_transaction_open() -> None:
    """Records behind it are not stable any more; what an operator and a load generator do is seen
    by readers as it is on a broker.
    """
    simulation = Simulation()
    cluster = simulation.cluster
    load = cluster.open_transaction()
    load.append(TOPIC, 0, [(b"k", b"1", None, 1), (b"k", b"2", None, 2)])
    assert simulation.values() == []
    load.commit()
    assert simulation.values() == [b"1", b"2"]
    cluster.log(TOPIC, 0).truncate(1)
    assert simulation.values() == []
    assert cluster.log(TOPIC, 0).last_stable_offset == 0
    load.commit()
    aborted = cluster.open_transaction()
    aborted.append(TOPIC, 0, [(b"k", b"3", None, 3)])
    aborted.abort()
    cluster.append(TOPIC, 0, [(b"other", b"4", None, 4)])
    assert simulation.values() == [b"1", b"2", b"4"]
    assert cluster.log(TOPIC, 0).compact() == 2
    assert [
        (record.offset, record.value) for record in cluster.log(TOPIC, 0).read(0, 10, True)[0]
    ] == [(1, b"2"), (5, b"4")]
    assert cluster.log(TOPIC, 0).delete(5) == 5
    assert simulation.values() == [b"4"]


def test_a_request_on_its_way_to_a_cluster_that_goes_down_is_sent_again() -> None:
    """Its connection breaks: the client does not wait until its timeout for the response."""
    simulation = Simulation()
    schedule, cluster = simulation.schedule, simulation.cluster

    def ask(context: ScriptContext) -> None:
        schedule.call_later(0.0001, lambda: cluster.set_down(True))  # before a request can arrive
        schedule.call_later(1.0, lambda: cluster.set_down(False))
        simulation.note("cluster", context.admin.list_topics(timeout=LONG_S).cluster_id)

    simulation.start("client", ask)
    simulation.run()
    [(answered_at_s, _, cluster_id)] = simulation.story
    assert cluster_id == cluster.cluster_id
    assert 1.0 < answered_at_s < LONG_S / 2
