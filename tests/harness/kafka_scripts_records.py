"""Scripts for `tests.broker.test_simulated_kafka`: records that a broker refuses, or changes, by
their size and their time.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka.admin import OffsetSpec

from tests.harness.kafka_scripts import LONG_S, ScriptContext


def refused_records(context: ScriptContext) -> None:
    """Too large, from the future or the past, without a topic or a partition; and how the
    transaction goes on.
    """
    context.create(max_message_bytes="2000", message_timestamp_before_max_ms="3600000")
    now_ms, hour_ms = int(context.now_ms()), 3_600_000
    for producer, kind in (
        (context.producer(), "plain"),
        (context.transactional(), "transactional"),
    ):
        is_transactional = kind == "transactional"
        if is_transactional:
            producer.init_transactions(LONG_S)
        for what, partition, value, timestamp_ms in (
            ("fits", 0, "v", now_ms),
            ("large", 0, "v" * 3000, now_ms),
            ("future", 0, "v", now_ms + 2 * hour_ms),
            ("past", 0, "v", now_ms - 2 * hour_ms),
            ("partition", 5, "v", now_ms),
        ):
            if is_transactional:
                producer.begin_transaction()
            reports: list[Any] = []
            context.note_call(
                f"{kind} {what}: produce",
                context.write,
                producer,
                [value],
                partition,
                reports,
                timestamp=timestamp_ms,
            )
            context.note_call(f"{kind} {what}: flush", producer.flush, LONG_S)
            context.note(f"{kind} {what}: report", reports)
            if is_transactional:
                context.note_call(f"{what}: commit", producer.commit_transaction, LONG_S)
                if what != "fits":
                    context.note_call(f"{what}: abort", producer.abort_transaction, LONG_S)
    producer = context.transactional(topic_metadata_propagation_max_ms=500)
    # not before all markers are written: of a transaction without records nothing else tells
    producer.init_transactions(LONG_S)
    context.note("ends", context.offsets(OffsetSpec.latest()))
    producer.begin_transaction()
    reports = []
    context.note_call(
        "no topic: produce",
        producer.produce,
        f"{context.name}-none",
        b"v",
        partition=0,
        on_delivery=lambda error, _: reports.append(error),
    )
    context.note_call("no topic: flush", producer.flush, LONG_S)
    context.note("no topic: report", reports)
    context.note_call("no topic: commit", producer.commit_transaction, LONG_S)
    context.note_call("no topic: abort", producer.abort_transaction, LONG_S)


def after_a_refusal(context: ScriptContext) -> None:
    """A refused batch leaves a gap in the producer's sequence: the next transaction is refused too,
    and the one after it is not.
    """
    context.create(max_message_bytes="2000")
    producer = context.transactional()
    producer.init_transactions(LONG_S)
    for number, size in enumerate((10, 3000, 10, 10, 10)):
        producer.begin_transaction()
        context.write(producer, ["v" * size])
        producer.flush(LONG_S)
        context.note_call(f"{number}: commit", producer.commit_transaction, LONG_S)
        context.note_call(f"{number}: abort", producer.abort_transaction, LONG_S)
    context.wait_until_decided()
    context.note("ends", context.offsets(OffsetSpec.latest()))
    plain = context.producer()
    for number, size in enumerate((10, 3000, 10, 10)):
        reports: list[Any] = []
        context.write(plain, ["v" * size], reports=reports)
        plain.flush(LONG_S)
        context.note(f"{number}: report", reports)


def sizes(context: ScriptContext) -> None:
    """The largest record that fits, to the byte."""
    context.create(max_message_bytes="1000")
    producer = context.producer()
    for headers in ([], [("name", b"value"), ("none", None)]):
        for size in range(880, 960, 4):
            reports: list[Any] = []
            context.write(producer, ["v" * size], 0, reports, headers=headers)
            producer.flush(LONG_S)
            context.note(f"{size}", [error for error, _ in reports])


def log_append_time(context: ScriptContext) -> None:
    """The broker's own timestamps, and an empty and a null value."""
    context.create(message_timestamp_type="LogAppendTime")
    producer = context.producer()
    for value, key in ((None, b""), (b"", None)):
        producer.produce(context.name, value, key, 0)
    producer.flush(LONG_S)
    context.note(
        "records",
        [
            [record[:4], record[4][0]] if len(record) > 2 else record
            for record in context.read([0])[0]
        ],
    )


def without_key(context: ScriptContext) -> None:
    """A compacted topic takes no record without a key."""
    context.create(cleanup_policy="compact")
    producer = context.producer()
    for key in (b"k", b"", None):
        reports: list[Any] = []
        producer.produce(
            context.name, b"v", key, 0, on_delivery=lambda error, _, to=reports: to.append(error)
        )
        producer.flush(LONG_S)
        context.note(f"key {key!r}", reports)
    context.note("ends", context.offsets(OffsetSpec.latest()))


SCRIPTS = (refused_records, after_a_refusal, sizes, log_append_time, without_key)
