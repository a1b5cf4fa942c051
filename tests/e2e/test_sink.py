"""The sink of stage one on a real Spark and real brokers: its envelopes are true, follow each other
without gaps, have the bytes that the Python writer makes of the same records, and come when they
should. With faults: `tests/e2e/test_sink_faults.py`.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from common.errors import RecordRefused, StageFailed
from common.routes import TopicPartition
from replicator import query, sink_options, source
from replicator.runs import end_reasons
from tests.harness import librdkafka
from tests.harness.copy_judge import Record
from tests.harness.kafka import COPY_S, make_record, make_records, until
from tests.harness.sink import EPOCHS, SinkRuns, find_untrue

PARTITIONS = 2
ENVELOPE_BYTES = 122_880
NAMES = ("", "a", "a", "caf\u00e9", "\U0001f600 \u4e2d", "n" * 300)
FIRST_MS, LAST_MS = -12_219_292_800_000, 2**63 // 1000
"""The first and the last timestamp that Spark carries unchanged."""
TIMESTAMPS_MS = (FIRST_MS, -2_500_000_000_000, -1, 1, 1_700_000_000_000, LAST_MS)


def make_various(rng: random.Random, count: int) -> list[Record]:
    """Records with all that a record can have: null, empty, repeated; small and large."""

    def choose_bytes() -> bytes | None:
        size = rng.choice((0, 1, 10, 63, 64, 200, 8191, 8192, 20_000))
        return rng.choice((None, b"", rng.randbytes(size)))

    return [
        Record(
            choose_bytes(),
            choose_bytes(),
            tuple((rng.choice(NAMES), choose_bytes()) for _ in range(rng.choice((0, 0, 1, 3)))),
            rng.choice(TIMESTAMPS_MS),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_whatever_a_record_has_is_in_the_envelope(runs: SinkRuns, kind: str) -> None:
    """Null and empty, repeated headers, all timestamps and their kind, records larger than an
    envelope: by both modes, with the bytes of the Python writer (`read_envelopes`).
    """
    runs.limit = 4_000_000
    runs.create(
        PARTITIONS,
        message_timestamp_type=kind,
        message_timestamp_after_max_ms=str(2**63 - 1),
        max_message_bytes=str(runs.limit - 4096),
    )
    rng = random.Random(48)
    large = [make_record(number, size) for number, size in enumerate((900_000, 3_000_000, 122_800))]
    records = [*make_various(rng, 300), *large, *make_various(rng, 100)]
    runs.clusters.source.write(
        runs.topic, [(number % PARTITIONS, record) for number, record in enumerate(records)]
    )
    runs.copy_all(runs.find_starts())
    assert runs.find_problems() == []
    running = runs.start(runs.find_starts())
    runs.wait_for_end()
    running.stop()
    assert runs.find_problems() == []
    envelopes = [each for of_partition in runs.read().values() for each in of_partition]
    kinds = {record.timestamp_kind for each in envelopes for record in each.records}
    assert kinds == {0 if kind == "CreateTime" else 1}
    sizes = {len(each.value) for each in envelopes if len(each.records) > 1}
    assert ENVELOPE_BYTES * 3 // 4 < max(sizes) <= ENVELOPE_BYTES, "a backlog makes full envelopes"
    assert any(len(each.value) > 3_000_000 and len(each.records) == 1 for each in envelopes)


def test_a_lonely_record_does_not_wait_and_a_backlog_is_packed(runs: SinkRuns) -> None:
    """The first record of a partition is sent alone, at once; one that follows later, too."""
    runs.create(PARTITIONS)
    runs.write(0, 4000)
    running = runs.start(runs.find_starts())
    runs.wait_for_end()
    for number in range(4000, 4006):
        runs.write(number, number + 1)
        runs.wait_for_end()
    running.stop()
    assert runs.find_problems() == []
    for envelopes in runs.read().values():
        counts = [len(each.records) for each in envelopes]
        assert counts[0] == 1
        assert counts[-3:] == [1, 1, 1]
        assert max(counts) > 500


def test_batches_of_a_query_follow_each_other(runs: SinkRuns) -> None:
    """A batch ends in offsets that no reader sees (a transaction's marker): the first envelope of
    the next one begins where the last one ended.
    """
    runs.create(1)
    producer = Producer(
        {
            "bootstrap.servers": runs.clusters.source.address,
            "transactional.id": runs.topic,
        }
    )
    producer.init_transactions()

    def write_transaction() -> None:
        producer.begin_transaction()
        for number in range(10):
            producer.produce(runs.topic, b"%d" % number, partition=0)
        producer.commit_transaction()

    write_transaction()
    running: Any = runs.start({0: 0}, replicator_batch_s="5")
    last = runs.clusters.source.end_offsets(runs.topic)[0] - 1
    runs.wait_until_written({0: last})
    until(lambda: running.lastProgress, "the first batch has ended", COPY_S)
    write_transaction()
    runs.wait_until_written({0: last + 11})
    progress = running.lastProgress
    until(lambda: running.lastProgress["batchId"] > progress["batchId"], "another one has ended")
    write_transaction()
    runs.wait_until_written({0: last + 22})
    running.stop()
    assert runs.find_problems() == []
    (envelopes,) = runs.read().values()
    assert {each.head.after for each in envelopes} & {last - 1, last + 10} == {last - 1, last + 10}


def test_a_small_topic_has_small_envelopes(runs: SinkRuns) -> None:
    """None with several records is above the topic's limit."""
    runs.limit = 20_000
    runs.create(1)
    runs.write(0, 3000)
    runs.copy_all({0: 0})
    assert runs.find_problems() == []
    (envelopes,) = runs.read().values()
    assert 15_000 < max(len(each.value) for each in envelopes) < runs.limit


def test_left_out_records_are_passed_by(runs: SinkRuns) -> None:
    """`through` moves over them: between others, at the end, in a partition where all are, and in
    one that has none; by both modes.
    """

    def is_kept(record: Record) -> bool:
        number = int((record.value or b"")[:10])
        return number < 2000 and number % 4 != 1 and number % 7 != 0

    number = "cast(substring(cast(value as string), 1, 10) as int)"
    condition = f"{number} < 2000 and {number} % 4 <> 1 and {number} % 7 <> 0"
    runs.create(5)
    runs.clusters.source.write(
        runs.topic, [(n % 4, record) for n, (_, record) in enumerate(make_records(range(3000), 1))]
    )
    runs.copy_all(runs.find_starts(), filter_sql=condition)
    assert runs.find_problems(is_kept) == []
    running = runs.start(runs.find_starts(), filter_sql=condition)
    ends = runs.clusters.source.end_offsets(runs.topic)
    del ends[4]
    runs.wait_until_written(ends)
    for step in range(3000, 3003):  # what follows does not pass, and is said all the same
        runs.clusters.source.write(
            runs.topic, [(partition, make_record(step)) for partition in range(4)]
        )
        ends = {partition: end + 1 for partition, end in ends.items()}
        runs.wait_until_written(ends)
    running.stop()
    assert runs.find_problems(is_kept) == []
    envelopes = runs.read()
    assert envelopes[4] == []
    assert {len(each.records) for each in envelopes[1]} == {0}
    assert all(each.head.has_left_out for each in envelopes[1])
    assert any(each.records and each.head.has_left_out for each in envelopes[0])


def test_a_null_condition_leaves_out_and_a_left_out_record_is_not_refused(runs: SinkRuns) -> None:
    """As WHERE does; a condition sees an empty array where a record has no headers."""
    runs.create(1)
    librdkafka.write(runs.clusters.source.address, runs.topic, 0, [b"\xff", b"good"])
    runs.clusters.source.write(runs.topic, [(0, Record(None, b"v", (), 1))])
    runs.copy_all(
        {0: 0}, filter_sql="get(headers, 0).key = 'good' or (key = 'x' and size(headers) = 0)"
    )
    (envelopes,) = runs.read().values()
    kept = [record for each in envelopes for record in each.records]
    assert [(record.source_offset, record.headers) for record in kept] == [(1, ((b"good", b"v"),))]
    assert envelopes[-1].head.through == 2


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (b"a\0b", "it holds a NUL, or is not UTF-8"),
        (b"a\xffb", "it holds a NUL, or is not UTF-8"),
        (b"a\xef\xbf\xbd", "it holds a NUL, or is not UTF-8"),
        (FIRST_MS - 1, "Spark changes timestamps before 1582-10-15"),
        (LAST_MS + 1, "out of the range that Spark can read"),
    ],
    ids=["NUL", "not UTF-8", "U+FFFD", "too old", "too far"],
)
def test_a_record_that_would_change_is_refused_by_name(
    runs: SinkRuns, record: bytes | int, message: str
) -> None:
    """Nothing of it, nor of what follows, is written."""
    runs.create(1, message_timestamp_after_max_ms=str(2**63 - 1))
    runs.write(0, 3)
    if isinstance(record, bytes):
        librdkafka.write(runs.clusters.source.address, runs.topic, 0, [record])
    else:
        bad = make_record(3)._replace(timestamp_ms=record)
        runs.clusters.source.write(runs.topic, [(0, bad)])
    runs.write(4, 8)
    running = runs.start({0: 0}, stop_at_end="true")
    until(lambda: not running.isActive, "the query has failed")
    with pytest.raises(RecordRefused, match=rf"{runs.topic}-0 at offset 3\b.*{message}|{message}"):
        end_reasons.find_end_event(running)
    (envelopes,) = runs.read().values()
    assert all(each.head.through < 3 for each in envelopes)
    visible = [(number, make_record(number)) for number in range(3)]
    assert find_untrue(envelopes, visible) == []


def test_a_plan_that_is_not_one_partition_a_task_is_refused(
    runs: SinkRuns, spark: SparkSession
) -> None:
    """Before the query, by its operators; and by the sink, which would say what is not so."""
    runs.create(PARTITIONS)
    runs.write(0, 100)
    plan = dataclasses.replace(
        runs.plan(runs.find_starts(), stop_at_end="true"), epoch=next(EPOCHS)
    )
    records = source.read_records(
        spark,
        plan.settings,
        {TopicPartition(runs.topic, partition): 0 for partition in range(PARTITIONS)},
    )
    query.check_plan(records.withColumn("kept", records["offset"] > 3))
    for shuffled, name in (
        (records.repartition(1), "Repartition"),
        (records.dropDuplicates(["key"]), "Deduplicate"),
        (records.where("offset > 3"), "Filter"),
        (spark.readStream.format("rate").load(), "StreamingRelation"),
    ):
        with pytest.raises(StageFailed, match=f"stage one's query has {name}"):
            query.check_plan(shuffled)
    writer = sink_options.create_writer(records.repartition(1), plan)
    running = writer.outputMode("append").trigger(availableNow=True).start()
    until(lambda: not running.isActive, "the query has failed")
    assert "one task has to read one partition in order" in str(running.exception())
