"""Scripts for `tests.test_simulated_kafka`: producers and their transactions."""

from __future__ import annotations

from typing import Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.kafka_scripts import SHORT_S, T0, World


def transactions(world: World) -> None:
    """Committed and aborted ones, offsets of every kind, an open one, a reader that stops there."""
    world.create(2)
    producer, reports = world.transactional(), list[Any]()
    world.attempt("init", lambda: producer.init_transactions(SHORT_S))
    for number, partition in enumerate((0, 1, 0)):
        producer.begin_transaction()
        world.write(producer, [f"{number}a", f"{number}b"], partition, reports)
        world.attempt("flush", lambda: producer.flush(SHORT_S))
        world.attempt("end", lambda: (producer.abort_transaction if number == 1 else producer.commit_transaction)(SHORT_S))
    world.decided(2)
    world.note("reports", reports)
    world.note("committed", world.read([0, 0]))
    world.note("uncommitted", world.read([0, 0], isolation_level="read_uncommitted"))
    for what, spec in (("earliest", OffsetSpec.earliest()), ("latest", OffsetSpec.latest()), ("newest", OffsetSpec.max_timestamp()),
                       ("by time", OffsetSpec.for_timestamp(T0 + 1)), ("in the future", OffsetSpec.for_timestamp(T0 * 2))):
        world.attempt(what, lambda spec=spec: world.offsets(spec, 2))
    producer.begin_transaction()
    world.write(producer, ["open"])
    producer.flush(SHORT_S)
    for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        world.attempt("an open one", lambda isolation=isolation: world.offsets(OffsetSpec.latest(), 1, isolation))
        world.attempt("an open one, by time", lambda isolation=isolation: world.offsets(OffsetSpec.for_timestamp(T0), 1, isolation))
    world.note("before it", world.read([0]))
    reader = world.reader()
    reader.assign([TopicPartition(world.name, 0, 7)])
    world.note("beyond the last stable offset", reader.consume(1, 1.0))
    for offset in (-1, -2, T0, T0 * 2):
        world.attempt("for times", lambda offset=offset: reader.offsets_for_times([TopicPartition(world.name, 0, offset)], SHORT_S))
    world.attempt("watermarks", lambda: reader.get_watermark_offsets(TopicPartition(world.name, 0), SHORT_S))
    world.attempt("watermarks of none", lambda: reader.get_watermark_offsets(TopicPartition(world.name, 7), SHORT_S))
    reader.close()
    world.attempt("abort", lambda: producer.abort_transaction(SHORT_S))
    world.decided(2)
    world.note("in the end", world.read([0, 0]))


def calls_out_of_order(world: World) -> None:
    """What librdkafka says of calls that do not fit its state."""
    world.create()
    producer = world.transactional()
    world.attempt("begin before init", producer.begin_transaction)
    world.attempt("produce before init", lambda: world.write(producer, ["x"]))
    producer.init_transactions(SHORT_S)
    world.attempt("init again", lambda: producer.init_transactions(SHORT_S))
    world.attempt("commit before begin", lambda: producer.commit_transaction(SHORT_S))
    world.attempt("abort before begin", lambda: producer.abort_transaction(SHORT_S))
    world.attempt("produce before begin", lambda: world.write(producer, ["x"]))
    world.attempt("begin", producer.begin_transaction)
    world.attempt("begin again", producer.begin_transaction)
    world.attempt("an empty commit", lambda: producer.commit_transaction(SHORT_S))
    producer.begin_transaction()
    world.attempt("an empty abort", lambda: producer.abort_transaction(SHORT_S))
    producer.begin_transaction()
    reports: list[Any] = []
    world.write(producer, ["purged"], reports=reports)
    producer.purge()
    producer.flush(SHORT_S)
    world.note("reports", reports)
    world.attempt("commit what was purged", lambda: producer.commit_transaction(SHORT_S))
    world.attempt("commit again", lambda: producer.commit_transaction(SHORT_S))
    world.attempt("abort", lambda: producer.abort_transaction(SHORT_S))
    world.attempt("plain", lambda: world.producer().init_transactions(SHORT_S))


def fencing(world: World) -> None:
    """A newer producer of the same id aborts the older one's transaction; whatever the older one does then is refused for good."""
    world.create()
    old, new = world.transactional(), world.transactional()
    old.init_transactions(SHORT_S)
    old.begin_transaction()
    world.write(old, ["old 1"])
    old.flush(SHORT_S)
    world.attempt("new init", lambda: new.init_transactions(SHORT_S))
    world.attempt("old produce", lambda: world.write(old, ["old 2"]))
    world.attempt("old flush", lambda: old.flush(SHORT_S))
    world.attempt("old flush again", lambda: old.flush(SHORT_S))
    for what, call in (("commit", old.commit_transaction), ("abort", old.abort_transaction), ("begin", lambda _: old.begin_transaction()),
                       ("produce", lambda _: world.write(old, ["old 3"]))):
        world.attempt(f"old {what}", lambda call=call: call(SHORT_S))
    new.begin_transaction()
    world.write(new, ["new 1"])
    world.attempt("new commit", lambda: new.commit_transaction(SHORT_S))
    world.decided()
    world.note("committed", world.read([0]))
    world.note("uncommitted", world.read([0], isolation_level="read_uncommitted"))


def a_zombie(world: World) -> None:
    """The older producer only commits: with records, with offsets, with nothing."""
    world.create()
    consumer = world.reader()
    for what in ("commits", "aborts", "sends offsets", "begins"):
        old, new = (world.transactional(transactional_id=f"{world.name}-{what.replace(' ', '-')}") for _ in range(2))
        old.init_transactions(SHORT_S)
        if what != "begins":
            old.begin_transaction()
            world.write(old, [what])
            old.flush(SHORT_S)
        new.init_transactions(SHORT_S)
        if what == "begins":
            world.attempt(f"{what}: begin", old.begin_transaction)
            world.attempt(f"{what}: produce", lambda: world.write(old, [what]))
            world.attempt(f"{what}: flush", lambda: old.flush(SHORT_S))
        if what == "sends offsets":
            world.attempt(what, lambda: old.send_offsets_to_transaction([TopicPartition(world.name, 0, 1, "m")], consumer.consumer_group_metadata(), SHORT_S))
        if what == "aborts":
            world.attempt(what, lambda: old.abort_transaction(SHORT_S))
        else:
            world.attempt(f"{what}: commit", lambda: old.commit_transaction(SHORT_S))
            world.attempt(f"{what}: abort", lambda: old.abort_transaction(SHORT_S))
        world.attempt(f"{what}: poll", lambda: old.poll(0))
        world.attempt(f"{what}: poll again", lambda: old.poll(0))
    world.decided()
    world.note("committed", world.read([0]))
    world.note("offsets", consumer.committed([TopicPartition(world.name, 0)], SHORT_S))


def time_out(world: World) -> None:
    """The coordinator aborts a transaction that lasts too long, and fences its producer."""
    world.create()
    producer = world.transactional(transaction_timeout_ms=1000, message_timeout_ms=1000)
    producer.init_transactions(SHORT_S)
    producer.begin_transaction()
    world.write(producer, ["late"])
    producer.flush(SHORT_S)
    world.until(lambda: world.offsets(OffsetSpec.latest()) == [(2, 0)], "the abort's marker", 30.0)
    world.attempt("commit", lambda: producer.commit_transaction(SHORT_S))
    world.attempt("abort", lambda: producer.abort_transaction(SHORT_S))
    world.note("committed", world.read([0]))
    again = world.transactional()
    world.attempt("init", lambda: again.init_transactions(SHORT_S))


def refused_records(world: World) -> None:
    """Too large, from the future or the past, without a topic or a partition; and how the transaction goes on."""
    world.create(max_message_bytes="2000", message_timestamp_before_max_ms="3600000")
    now_ms, hour_ms = int(world.now_ms()), 3_600_000
    for producer, kind in ((world.producer(), "plain"), (world.transactional(), "transactional")):
        is_transactional = kind == "transactional"
        if is_transactional:
            producer.init_transactions(SHORT_S)
        for what, partition, value, timestamp_ms in (("fits", 0, "v", now_ms), ("large", 0, "v" * 3000, now_ms), ("future", 0, "v", now_ms + 2 * hour_ms),
                                                     ("past", 0, "v", now_ms - 2 * hour_ms), ("partition", 5, "v", now_ms)):
            if is_transactional:
                producer.begin_transaction()
            reports: list[Any] = []
            world.attempt(f"{kind} {what}: produce", lambda: world.write(producer, [value], partition, reports, timestamp=timestamp_ms))
            world.attempt(f"{kind} {what}: flush", lambda: producer.flush(SHORT_S))
            world.note(f"{kind} {what}: report", reports)
            if is_transactional:
                world.attempt(f"{what}: commit", lambda: producer.commit_transaction(SHORT_S))
                if what != "fits":
                    world.attempt(f"{what}: abort", lambda: producer.abort_transaction(SHORT_S))
    world.decided()
    world.note("ends", world.offsets(OffsetSpec.latest()))
    producer = world.transactional(topic_metadata_propagation_max_ms=500)
    producer.init_transactions(SHORT_S)
    producer.begin_transaction()
    reports = []
    world.attempt("no topic: produce", lambda: producer.produce(f"{world.name}-none", b"v", partition=0, on_delivery=lambda error, _: reports.append(error)))
    world.attempt("no topic: flush", lambda: producer.flush(SHORT_S))
    world.note("no topic: report", reports)
    world.attempt("no topic: commit", lambda: producer.commit_transaction(SHORT_S))
    world.attempt("no topic: abort", lambda: producer.abort_transaction(SHORT_S))


def sizes(world: World) -> None:
    """The largest record that fits, to the byte."""
    world.create(max_message_bytes="1000")
    producer = world.producer()
    for headers in ([], [("name", b"value"), ("none", None)]):
        for size in range(880, 960, 4):
            reports: list[Any] = []
            world.write(producer, ["v" * size], 0, reports, headers=headers)
            producer.flush(SHORT_S)
            world.note(f"{size}", [error for error, _ in reports])


def log_append_time(world: World) -> None:
    """The broker's own timestamps, and an empty and a null value."""
    world.create(message_timestamp_type="LogAppendTime")
    producer = world.producer()
    for value, key in ((None, b""), (b"", None)):
        producer.produce(world.name, value, key, 0)
    producer.flush(SHORT_S)
    world.note("records", [[record[:4], record[4][0]] if len(record) > 2 else record for record in world.read([0])[0]])


SCRIPTS = (transactions, calls_out_of_order, fencing, a_zombie, time_out, refused_records, sizes, log_append_time)
