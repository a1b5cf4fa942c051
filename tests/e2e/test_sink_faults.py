"""The sink of stage one when the broker is away or refuses, an acknowledgement is lost, or a task
dies: nothing is lost or out of order, and what cannot be written is said.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from common.errors import RecordRefused
from replicator.runs import end_reasons
from tests.harness.kafka import make_record, until
from tests.harness.sink import SinkRuns, find_gaps
from tools.faults.proxy import Proxy

PARTITIONS = 2


def test_a_task_that_is_killed_begins_again_where_it_began(
    runs: SinkRuns, spark: SparkSession
) -> None:
    """In the same query: its second attempt has the same `after`, and reads what follows."""
    runs.create(PARTITIONS)
    runs.write(0, 3000)
    begin = dict.fromkeys(range(PARTITIONS), 100)
    running = runs.start(begin)
    runs.wait_for_end()
    context = spark.sparkContext._jsc.sc()
    killed = [task for task in range(10_000) if context.killTaskAttempt(task, True, "a test")]
    assert len(killed) == PARTITIONS
    runs.write(3000, 3200)
    runs.wait_for_end()
    assert running.isActive
    running.stop()
    for partition, envelopes in runs.read().items():
        attempts = [number for number, each in enumerate(envelopes) if each.head.after == 99]
        assert len(attempts) == 2, f"attempts at partition {partition}"
        assert attempts[0] == 0
        assert find_gaps(envelopes[attempts[1] :]) == []
        assert envelopes[-1].head.through == 1599


def test_a_lost_acknowledgement_loses_and_repeats_nothing(runs: SinkRuns, proxy: Proxy) -> None:
    """The broker has appended, the producer does not hear of it and sends again."""
    runs.create(1)
    runs.write(0, 10)
    running = runs.start({0: 0})
    runs.wait_for_end()
    lost = proxy.add_rule("swallow_answer", "Produce", client_id="replicator-intermediate")
    runs.write(10, 3000)
    runs.wait_for_end()
    assert lost.hits == 1
    until(lost.answered.is_set, "the broker has answered")
    runs.write(3000, 3010)
    runs.wait_for_end()
    running.stop()
    assert runs.find_problems() == []


def test_a_broker_that_is_away_is_waited_for(runs: SinkRuns, proxy: Proxy) -> None:
    """Longer than a request: what was in flight, and what was read meanwhile, arrives in order."""
    runs.create(PARTITIONS)
    runs.write(0, 10)
    running = runs.start(runs.find_starts())
    runs.wait_for_end()
    proxy.half_open = True
    before = proxy.accepted
    runs.write(10, 20_000, size=500)
    until(lambda: proxy.accepted > before + 1, "the producer has tried to connect again")
    proxy.half_open = False
    runs.wait_for_end()
    assert running.isActive
    running.stop()
    assert runs.find_problems() == []


def test_a_send_that_times_out_fails_the_task(runs: SinkRuns, proxy: Proxy) -> None:
    """Although the task waits for rows and no more come: with the producer's reason. What was in
    flight may arrive (the proxy keeps it), nothing that followed does. The next run has another
    producer.
    """
    runs.create(PARTITIONS)
    runs.write(0, 10)
    running = runs.start(
        runs.find_starts(),
        allow_unsafe_options="true",
        intermediate_producer_options_delivery_timeout_ms="3000",
        intermediate_producer_options_request_timeout_ms="1000",
    )
    runs.wait_for_end()
    proxy.half_open = True
    runs.write(10, 1000)
    until(lambda: not running.isActive, "the query has failed")
    assert end_reasons.find_end_event(running) == "failed"
    said = end_reasons.describe_failure(running.exception())
    assert said.startswith(f"an envelope for {runs.intermediate_topic}-")
    assert "TimeoutException: Expiring" in said
    proxy.half_open = False
    failed = runs.epoch
    again = runs.start(dict.fromkeys(range(PARTITIONS), 5))
    runs.wait_for_end()
    again.stop()
    assert runs.find_problems() == []
    for envelopes in runs.read_run(failed).values():
        assert find_gaps(envelopes) == []
        assert len([each for each in envelopes if each.head.through >= 5]) <= 1


def test_what_the_broker_refuses_is_said(runs: SinkRuns) -> None:
    """A record that is too large for the topic stops the copy, with what to do."""
    runs.create(1, limit=50_000)
    runs.clusters.source.write(runs.topic, [(0, make_record(0)), (0, make_record(1, 80_000))])
    running = runs.start({0: 0})
    until(lambda: not running.isActive, "the query has failed")
    with pytest.raises(
        RecordRefused, match=r"for \S+-0 was not written.* Set producer\.compression_type"
    ):
        end_reasons.find_end_event(running)
    (envelopes,) = runs.read().values()
    assert [len(each.records) for each in envelopes] == [1]


def test_a_full_buffer_stops_nobody_for_good(runs: SinkRuns) -> None:
    """The producer's buffer has room for three envelopes, of four partitions with six each in
    flight: tasks and the sender thread wait in turn, and everything arrives.
    """
    runs.create(4)
    runs.write(0, 40_000, size=1000)
    runs.copy_all(
        runs.find_starts(),
        intermediate_producer_options_buffer_memory="400000",
        intermediate_producer_options_max_request_size="300000",
        producer_compression_type="lz4",
    )
    assert runs.find_problems() == []
