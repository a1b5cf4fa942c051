"""Scripts for `tests.test_simulated_kafka`: producers and their transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from deduplicator.transaction import START_S, is_unfinished
from tests.kafka_scripts import LONG_S, T0, World


def transactions(world: World) -> None:
    """Committed and aborted ones, offsets of every kind, an open one, a reader that stops there."""
    world.create(2)
    producer, reports = world.transactional(), list[Any]()
    world.attempt("init", producer.init_transactions, LONG_S)
    for number, partition in enumerate((0, 1, 0)):
        producer.begin_transaction()
        world.write(producer, [f"{number}a", f"{number}b"], partition, reports)
        world.attempt("flush", producer.flush, LONG_S)
        world.attempt("end", producer.abort_transaction if number == 1 else producer.commit_transaction, LONG_S)
    world.decided(2)
    world.note("reports", reports)
    world.note("committed", world.read([0, 0]))
    world.note("uncommitted", world.read([0, 0], isolation_level="read_uncommitted"))
    for what, spec in (("earliest", OffsetSpec.earliest()), ("latest", OffsetSpec.latest()), ("newest", OffsetSpec.max_timestamp()),
                       ("by time", OffsetSpec.for_timestamp(T0 + 1)), ("in the future", OffsetSpec.for_timestamp(T0 * 2))):
        world.attempt(what, world.offsets, spec, 2)
    producer.begin_transaction()
    world.write(producer, ["open"])
    producer.flush(LONG_S)
    for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        world.attempt("an open one", world.offsets, OffsetSpec.latest(), 1, isolation)
        world.attempt("an open one, by time", world.offsets, OffsetSpec.for_timestamp(T0), 1, isolation)
    world.note("before it", world.read([0]))
    reader = world.reader()
    reader.assign([TopicPartition(world.name, 0, 7)])
    world.note("beyond the last stable offset", reader.consume(1, 1.0))
    for offset in (-1, -2, T0, T0 * 2):
        world.attempt("for times", reader.offsets_for_times, [TopicPartition(world.name, 0, offset)], LONG_S)
    world.attempt("watermarks", reader.get_watermark_offsets, TopicPartition(world.name, 0), LONG_S)
    world.attempt("watermarks of none", reader.get_watermark_offsets, TopicPartition(world.name, 7), LONG_S)
    reader.close()
    world.attempt("abort", producer.abort_transaction, LONG_S)
    world.decided(2)
    world.note("in the end", world.read([0, 0]))


def calls_out_of_order(world: World) -> None:
    """What librdkafka says of calls that do not fit its state."""
    world.create()
    producer = world.transactional()
    world.attempt("begin before init", producer.begin_transaction)
    world.attempt("produce before init", world.write, producer, ["x"])
    producer.init_transactions(LONG_S)
    world.attempt("init again", producer.init_transactions, LONG_S)
    world.attempt("commit before begin", producer.commit_transaction, LONG_S)
    world.attempt("abort before begin", producer.abort_transaction, LONG_S)
    world.attempt("produce before begin", world.write, producer, ["x"])
    world.attempt("begin", producer.begin_transaction)
    world.attempt("begin again", producer.begin_transaction)
    world.attempt("an empty commit", producer.commit_transaction, LONG_S)
    producer.begin_transaction()
    world.attempt("an empty abort", producer.abort_transaction, LONG_S)
    producer.begin_transaction()
    reports: list[Any] = []
    world.write(producer, ["purged"], reports=reports)
    producer.purge()
    producer.flush(LONG_S)
    world.note("reports", reports)
    world.attempt("commit what was purged", producer.commit_transaction, LONG_S)
    world.attempt("commit again", producer.commit_transaction, LONG_S)
    world.attempt("abort", producer.abort_transaction, LONG_S)
    world.attempt("plain", world.producer().init_transactions, LONG_S)


def fencing(world: World) -> None:
    """A newer producer of the same id aborts the older one's transaction; whatever the older one does then is refused for good."""
    world.create()
    old, new = world.transactional(), world.transactional()
    old.init_transactions(LONG_S)
    old.begin_transaction()
    world.write(old, ["old 1"])
    old.flush(LONG_S)
    world.attempt("new init", new.init_transactions, LONG_S)
    world.attempt("old produce", world.write, old, ["old 2"])
    world.attempt("old flush", old.flush, LONG_S)
    world.attempt("old flush again", old.flush, LONG_S)
    for what, call in (("commit", old.commit_transaction), ("abort", old.abort_transaction), ("begin", lambda _: old.begin_transaction()),
                       ("produce", lambda _: world.write(old, ["old 3"]))):
        world.attempt(f"old {what}", call, LONG_S)
    new.begin_transaction()
    world.write(new, ["new 1"])
    world.attempt("new commit", new.commit_transaction, LONG_S)
    world.decided()
    world.note("committed", world.read([0]))
    world.note("uncommitted", world.read([0], isolation_level="read_uncommitted"))


def commits_in_two_calls(world: World) -> None:
    """As `TransactionalProducer.start_commit` and `finish_commit` do it: the answer, good or bad, is that of the call which waits for it."""
    world.create()
    producers = [world.transactional(transactional_id=f"{world.name}-{letter}") for letter in "ab"]
    for producer in producers:
        producer.init_transactions(LONG_S)
    finish = None
    for number in range(6):
        producer = producers[number % 2]
        producer.begin_transaction()
        world.write(producer, [str(number)])
        producer.flush(LONG_S)
        if finish:
            world.attempt(f"{number}: finish", finish)
        finish = start_commit(producer)
    world.attempt("finish", finish)
    world.decided()
    world.note("committed", values(world))
    producers[0].begin_transaction()
    world.write(producers[0], ["old"])
    producers[0].flush(LONG_S)
    newer = world.transactional(transactional_id=f"{world.name}-a")
    newer.init_transactions(LONG_S)
    world.attempt("of a fenced producer", start_commit(producers[0]))
    world.decided()
    world.note("in the end", values(world))


def values(world: World) -> list[object]:
    """What is committed, without the offsets: markers come between the records at different times."""
    return [one[2] for one in world.plain(world.read([0]))[0] if len(one) > 2]


def start_commit(producer: Any) -> Callable[[], object]:
    """Returns what is left to be called: whether the answer comes within the first call is a matter of chance."""
    try:
        producer.commit_transaction(START_S)
    except KafkaException as failed:
        refused = failed
        return lambda: producer.commit_transaction(LONG_S) if is_unfinished(refused.args[0]) else raise_again(refused)
    return lambda: None


def raise_again(failed: KafkaException) -> None:
    """As the call did."""
    raise failed


def a_zombie(world: World) -> None:
    """The older producer only commits: with records, with offsets, with nothing."""
    world.create()
    consumer = world.reader()
    for what in ("commits", "aborts", "sends offsets", "begins"):
        old, new = (world.transactional(transactional_id=f"{world.name}-{what.replace(' ', '-')}") for _ in range(2))
        old.init_transactions(LONG_S)
        if what != "begins":
            old.begin_transaction()
            world.write(old, [what])
            old.flush(LONG_S)
        new.init_transactions(LONG_S)
        if what == "begins":
            world.attempt(f"{what}: begin", old.begin_transaction)
            world.attempt(f"{what}: produce", world.write, old, [what])
            world.attempt(f"{what}: flush", old.flush, LONG_S)
        if what == "sends offsets":
            world.attempt(what, old.send_offsets_to_transaction, [TopicPartition(world.name, 0, 1, "m")], consumer.consumer_group_metadata(), LONG_S)
        if what == "aborts":
            world.attempt(what, old.abort_transaction, LONG_S)
        else:
            world.attempt(f"{what}: commit", old.commit_transaction, LONG_S)
            world.attempt(f"{what}: abort", old.abort_transaction, LONG_S)
        world.attempt(f"{what}: poll", old.poll, 0)
        world.attempt(f"{what}: poll again", old.poll, 0)
    world.decided()
    world.note("committed", world.read([0]))
    world.note("offsets", consumer.committed([TopicPartition(world.name, 0)], LONG_S))


def time_out(world: World) -> None:
    """The coordinator aborts a transaction that lasts too long, and fences its producer."""
    world.create()
    producer = world.transactional(transaction_timeout_ms=6000, message_timeout_ms=6000)
    producer.init_transactions(LONG_S)
    producer.begin_transaction()
    world.write(producer, ["late"])
    producer.flush(LONG_S)
    world.until(lambda: world.offsets(OffsetSpec.latest()) == [(2, 0)], "the abort's marker")
    world.attempt("commit", producer.commit_transaction, LONG_S)
    world.attempt("abort", producer.abort_transaction, LONG_S)
    world.note("committed", world.read([0]))
    again = world.transactional()
    world.attempt("init", again.init_transactions, LONG_S)


def refused_records(world: World) -> None:
    """Too large, from the future or the past, without a topic or a partition; and how the transaction goes on."""
    world.create(max_message_bytes="2000", message_timestamp_before_max_ms="3600000")
    now_ms, hour_ms = int(world.now_ms()), 3_600_000
    for producer, kind in ((world.producer(), "plain"), (world.transactional(), "transactional")):
        is_transactional = kind == "transactional"
        if is_transactional:
            producer.init_transactions(LONG_S)
        for what, partition, value, timestamp_ms in (("fits", 0, "v", now_ms), ("large", 0, "v" * 3000, now_ms), ("future", 0, "v", now_ms + 2 * hour_ms),
                                                     ("past", 0, "v", now_ms - 2 * hour_ms), ("partition", 5, "v", now_ms)):
            if is_transactional:
                producer.begin_transaction()
            reports: list[Any] = []
            world.attempt(f"{kind} {what}: produce", world.write, producer, [value], partition, reports, timestamp=timestamp_ms)
            world.attempt(f"{kind} {what}: flush", producer.flush, LONG_S)
            world.note(f"{kind} {what}: report", reports)
            if is_transactional:
                world.attempt(f"{what}: commit", producer.commit_transaction, LONG_S)
                if what != "fits":
                    world.attempt(f"{what}: abort", producer.abort_transaction, LONG_S)
    producer = world.transactional(topic_metadata_propagation_max_ms=500)
    producer.init_transactions(LONG_S)  # not before all markers are written: of a transaction without records nothing else tells
    world.note("ends", world.offsets(OffsetSpec.latest()))
    producer.begin_transaction()
    reports = []
    world.attempt("no topic: produce", producer.produce, f"{world.name}-none", b"v", partition=0, on_delivery=lambda error, _: reports.append(error))
    world.attempt("no topic: flush", producer.flush, LONG_S)
    world.note("no topic: report", reports)
    world.attempt("no topic: commit", producer.commit_transaction, LONG_S)
    world.attempt("no topic: abort", producer.abort_transaction, LONG_S)


def after_a_refusal(world: World) -> None:
    """A refused batch leaves a gap in the producer's sequence: the next transaction is refused too, and the one after it is not."""
    world.create(max_message_bytes="2000")
    producer = world.transactional()
    producer.init_transactions(LONG_S)
    for number, size in enumerate((10, 3000, 10, 10, 10)):
        producer.begin_transaction()
        world.write(producer, ["v" * size])
        producer.flush(LONG_S)
        world.attempt(f"{number}: commit", producer.commit_transaction, LONG_S)
        world.attempt(f"{number}: abort", producer.abort_transaction, LONG_S)
    world.decided()
    world.note("ends", world.offsets(OffsetSpec.latest()))
    plain = world.producer()
    for number, size in enumerate((10, 3000, 10, 10)):
        reports: list[Any] = []
        world.write(plain, ["v" * size], reports=reports)
        plain.flush(LONG_S)
        world.note(f"{number}: report", reports)


def sizes(world: World) -> None:
    """The largest record that fits, to the byte."""
    world.create(max_message_bytes="1000")
    producer = world.producer()
    for headers in ([], [("name", b"value"), ("none", None)]):
        for size in range(880, 960, 4):
            reports: list[Any] = []
            world.write(producer, ["v" * size], 0, reports, headers=headers)
            producer.flush(LONG_S)
            world.note(f"{size}", [error for error, _ in reports])


def log_append_time(world: World) -> None:
    """The broker's own timestamps, and an empty and a null value."""
    world.create(message_timestamp_type="LogAppendTime")
    producer = world.producer()
    for value, key in ((None, b""), (b"", None)):
        producer.produce(world.name, value, key, 0)
    producer.flush(LONG_S)
    world.note("records", [[record[:4], record[4][0]] if len(record) > 2 else record for record in world.read([0])[0]])


SCRIPTS = (transactions, calls_out_of_order, fencing, commits_in_two_calls, a_zombie, time_out, refused_records, after_a_refusal, sizes, log_append_time)
