"""Scripts for `tests.broker.test_simulated_kafka`: producers and their transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.harness.kafka_scripts import LONG_S, T0, ScriptContext


def transactions(context: ScriptContext) -> None:
    """Committed and aborted ones, offsets of every kind, an open one, a reader that stops there."""
    context.create(2)
    producer, reports = context.transactional(), list[Any]()
    context.note_call("init", producer.init_transactions, LONG_S)
    for number, partition in enumerate((0, 1, 0)):
        producer.begin_transaction()
        context.write(producer, [f"{number}a", f"{number}b"], partition, reports)
        context.note_call("flush", producer.flush, LONG_S)
        context.note_call(
            "end",
            producer.abort_transaction if number == 1 else producer.commit_transaction,
            LONG_S,
        )
    context.wait_until_decided(2)
    context.note("reports", reports)
    context.note("committed", context.read([0, 0]))
    context.note("uncommitted", context.read([0, 0], isolation_level="read_uncommitted"))
    for what, spec in (
        ("earliest", OffsetSpec.earliest()),
        ("latest", OffsetSpec.latest()),
        ("newest", OffsetSpec.max_timestamp()),
        ("by time", OffsetSpec.for_timestamp(T0 + 1)),
        ("in the future", OffsetSpec.for_timestamp(T0 * 2)),
    ):
        context.note_call(what, context.offsets, spec, 2)
    producer.begin_transaction()
    context.write(producer, ["open"])
    producer.flush(LONG_S)
    for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        context.note_call("an open one", context.offsets, OffsetSpec.latest(), 1, isolation)
        context.note_call(
            "an open one, by time", context.offsets, OffsetSpec.for_timestamp(T0), 1, isolation
        )
    context.note("before it", context.read([0]))
    reader = context.reader()
    reader.assign([TopicPartition(context.name, 0, 7)])
    context.note("beyond the last stable offset", reader.consume(1, 1.0))
    for offset in (-1, -2, T0, T0 * 2):
        context.note_call(
            "for times", reader.offsets_for_times, [TopicPartition(context.name, 0, offset)], LONG_S
        )
    context.note_call(
        "watermarks", reader.get_watermark_offsets, TopicPartition(context.name, 0), LONG_S
    )
    context.note_call(
        "watermarks of none", reader.get_watermark_offsets, TopicPartition(context.name, 7), LONG_S
    )
    reader.close()
    context.note_call("abort", producer.abort_transaction, LONG_S)
    context.wait_until_decided(2)
    context.note("in the end", context.read([0, 0]))


def calls_out_of_order(context: ScriptContext) -> None:
    """What librdkafka says of calls that do not fit its state."""
    context.create()
    producer = context.transactional(linger_ms=40_000)  # nothing leaves before it is purged
    context.note_call("begin before init", producer.begin_transaction)
    context.note_call("produce before init", context.write, producer, ["x"])
    producer.init_transactions(LONG_S)
    context.note_call("init again", producer.init_transactions, LONG_S)
    context.note_call("commit before begin", producer.commit_transaction, LONG_S)
    context.note_call("abort before begin", producer.abort_transaction, LONG_S)
    context.note_call("produce before begin", context.write, producer, ["x"])
    context.note_call("begin", producer.begin_transaction)
    context.note_call("begin again", producer.begin_transaction)
    context.note_call("an empty commit", producer.commit_transaction, LONG_S)
    producer.begin_transaction()
    context.note_call("an empty abort", producer.abort_transaction, LONG_S)
    producer.begin_transaction()
    reports: list[Any] = []
    context.write(producer, ["purged"], reports=reports)
    producer.purge()
    producer.flush(LONG_S)
    context.note("reports", reports)
    context.note_call("commit what was purged", producer.commit_transaction, LONG_S)
    context.note_call("commit again", producer.commit_transaction, LONG_S)
    context.note_call("abort", producer.abort_transaction, LONG_S)
    context.note_call("plain", context.producer().init_transactions, LONG_S)


def fencing(context: ScriptContext) -> None:
    """A newer producer of the same id aborts the older one's transaction; whatever the older one
    does then is refused for good.
    """
    context.create()
    old, new = context.transactional(), context.transactional()
    old.init_transactions(LONG_S)
    old.begin_transaction()
    context.write(old, ["old 1"])
    old.flush(LONG_S)
    context.note_call("new init", new.init_transactions, LONG_S)
    context.note_call("old produce", context.write, old, ["old 2"])
    context.note_call("old flush", old.flush, LONG_S)
    context.note_call("old flush again", old.flush, LONG_S)
    for what, call in (
        ("commit", old.commit_transaction),
        ("abort", old.abort_transaction),
        ("begin", lambda _: old.begin_transaction()),
        ("produce", lambda _: context.write(old, ["old 3"])),
    ):
        context.note_call(f"old {what}", call, LONG_S)
    new.begin_transaction()
    context.write(new, ["new 1"])
    context.note_call("new commit", new.commit_transaction, LONG_S)
    context.wait_until_decided()
    context.note("committed", context.read([0]))
    context.note("uncommitted", context.read([0], isolation_level="read_uncommitted"))


def commits_in_a_thread(context: ScriptContext) -> None:
    """As `TransactionalProducer.start_commit` and `finish_commit` do it: the other producer writes
    before the answer is waited for.
    """
    context.create()
    producers = [
        context.transactional(transactional_id=f"{context.name}-{letter}") for letter in "ab"
    ]
    for producer in producers:
        producer.init_transactions(LONG_S)
    call = None
    for number in range(6):
        producer = producers[number % 2]
        producer.begin_transaction()
        context.write(producer, [str(number)])
        producer.flush(LONG_S)
        if call:
            context.note_call(f"{number}: finish", call)
        call = start_commit(context, producer)
    assert call
    context.note_call("finish", call)
    context.wait_until_decided()
    context.note("committed", values(context))
    producers[0].begin_transaction()
    context.write(producers[0], ["old"])
    producers[0].flush(LONG_S)
    newer = context.transactional(transactional_id=f"{context.name}-a")
    newer.init_transactions(LONG_S)
    context.note_call("of a fenced producer", start_commit(context, producers[0]))
    context.wait_until_decided()
    context.note("in the end", values(context))


def values(context: ScriptContext) -> list[object]:
    """What is committed, without the offsets: markers come between the records at different
    times.
    """
    return [one[2] for one in context.normalize(context.read([0]))[0] if len(one) > 2]


def start_commit(context: ScriptContext, producer: Any) -> Callable[[], None]:
    """As `deduplicator.transactions.call_thread`; returns the function that waits for the answer
    and raises what the call has raised.
    """
    answers: list[Exception | None] = []

    def commit() -> None:
        try:
            producer.commit_transaction(LONG_S)
        except KafkaException as failed:
            answers.append(failed)
        else:
            answers.append(None)

    def finish() -> None:
        context.until(lambda: answers, "the commit is answered")
        if answers[0]:
            raise answers[0]

    context.start_thread(commit)
    return finish


def a_zombie(context: ScriptContext) -> None:
    """The older producer only commits: with records, with offsets, with nothing."""
    context.create()
    consumer = context.reader()
    for what in ("commits", "aborts", "sends offsets", "begins"):
        old, new = (
            context.transactional(transactional_id=f"{context.name}-{what.replace(' ', '-')}")
            for _ in range(2)
        )
        old.init_transactions(LONG_S)
        if what != "begins":
            old.begin_transaction()
            context.write(old, [what])
            old.flush(LONG_S)
        new.init_transactions(LONG_S)
        if what == "begins":
            context.note_call(f"{what}: begin", old.begin_transaction)
            context.note_call(f"{what}: produce", context.write, old, [what])
            context.note_call(f"{what}: flush", old.flush, LONG_S)
        if what == "sends offsets":
            context.note_call(
                what,
                old.send_offsets_to_transaction,
                [TopicPartition(context.name, 0, 1, "m")],
                consumer.consumer_group_metadata(),
                LONG_S,
            )
        if what == "aborts":
            context.note_call(what, old.abort_transaction, LONG_S)
        else:
            context.note_call(f"{what}: commit", old.commit_transaction, LONG_S)
            context.note_call(f"{what}: abort", old.abort_transaction, LONG_S)
        context.note_call(f"{what}: poll", old.poll, 0)
        context.note_call(f"{what}: poll again", old.poll, 0)
    context.wait_until_decided()
    context.note("committed", context.read([0]))
    context.note("offsets", consumer.committed([TopicPartition(context.name, 0)], LONG_S))


def time_out(context: ScriptContext) -> None:
    """The coordinator aborts a transaction that lasts too long, and fences its producer."""
    context.create()
    producer = context.transactional(transaction_timeout_ms=20_000, message_timeout_ms=20_000)
    producer.init_transactions(LONG_S)
    producer.begin_transaction()
    context.write(producer, ["late"])
    producer.flush(LONG_S)
    context.until(lambda: context.offsets(OffsetSpec.latest()) == [(2, 0)], "the abort's marker")
    context.note_call("commit", producer.commit_transaction, LONG_S)
    context.note_call("abort", producer.abort_transaction, LONG_S)
    context.note("committed", context.read([0]))
    again = context.transactional()
    context.note_call("init", again.init_transactions, LONG_S)


SCRIPTS = (
    transactions,
    calls_out_of_order,
    fencing,
    commits_in_a_thread,
    a_zombie,
    time_out,
)
