"""Identical source clusters: three real brokers that are fed alike, and a copy that goes on when
the one it is made from is lost or falls behind.

A broker that a test harmed is well again at its end. Each test has a topic of its own; what the
candidates have is compared with the copy by the judge.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Start
from tests.harness.copy_judge import compare_partitions
from tests.harness.failover import (
    assert_switches,
    come_back_recreated,
    copy_from_first,
    select_passing,
    start_with_candidates,
    start_with_filters,
    wait_for_exact_copy,
)
from tests.harness.identical_sources import (
    PARTITIONS,
    PATIENT,
    Candidates,
    create_identical_topics,
    delete_all_records,
    freeze_broker,
    has_switched,
    kill_broker,
    recreate_topic,
    restore_brokers,
    start_candidates,
    write_to_all,
    write_with_another,
)
from tests.harness.kafka import COPY_S, Clusters, make_records, until
from tests.harness.merged_topics import compare_merged
from tests.harness.own_store import write_example


@pytest.fixture(scope="module")
def candidates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Candidates]:
    """Three single-node clusters."""
    with start_candidates(tmp_path_factory.mktemp("candidates"), 3) as started:
        yield started


@pytest.fixture(autouse=True)
def well(candidates: Candidates) -> Iterator[None]:
    """Every candidate answers at the end of a test."""
    yield
    restore_brokers(candidates)


@pytest.mark.parametrize(
    "harm",
    [pytest.param(kill_broker, id="kill"), pytest.param(freeze_broker, marks=pytest.mark.long)],
)
def test_a_lost_candidate_is_followed_by_the_next(
    clusters: Clusters, candidates: Candidates, topic: str, start: Start, harm: object
) -> None:
    """Killed, or standing still, with records unread: the copy goes on from the next one, then from
    the one after it, and is exact. (One that lives may be left too, when it answers late.)
    """
    one, two, three = candidates
    service = copy_from_first(clusters, candidates, topic, start)
    jvm = service.find_pid("jvm")
    harm(one)
    write_to_all((two, three), topic, range(1000, 2000))
    wait_for_exact_copy(two, clusters.destination, topic, 2000)
    assert has_switched(service, (two, three)), service.read_log_tail()
    reasons = ("lost", "failed", "stalled")
    assert any(service.metric("reo_runs_total", reason=reason) for reason in reasons)
    until(
        lambda: (
            service.metric("reo_source_errors_total", candidate=one.address) > 0
            and (
                harm is not kill_broker
                or service.metric("reo_client_errors_total", cluster="source") > 0
            )
        ),
        "its silence is counted; a refused connection is an error of the client",
    )
    harm(two)
    write_to_all((three,), topic, range(2000, 3000))
    wait_for_exact_copy(three, clusters.destination, topic, 3000)
    assert has_switched(service, (three,)), service.read_log_tail()
    assert service.metric("reo_source_connections_total", candidate=three.address) >= 1
    # Spark gives a query some seconds to stop
    renewed = "the JVM of stage one must be restarted" in service.log
    assert renewed or service.find_pid("jvm") == jvm, "a failover needs no new JVM"
    service.stop()


@pytest.mark.long  # the simulator tells this story in every run
def test_a_candidate_that_lags_is_left_and_none_that_lags_is_taken(
    clusters: Clusters, candidates: Candidates, topic: str, start: Start
) -> None:
    """One falls behind by more than the threshold, two by less: three is where the copy goes on.
    When three dies, two is too far behind: it is waited for.
    """
    one, two, three = candidates
    lag = {"source_offset_lag_threshold": "500"}
    service = copy_from_first(clusters, candidates, topic, start, **lag, **PATIENT)
    write_to_all((three,), topic, range(1000, 2000))
    wait_for_exact_copy(three, clusters.destination, topic, 2000)
    assert_switches(service, candidates, [0, 0, 1])
    assert service.metric("reo_source_lag_threshold_exceeded_total", candidate=one.address) >= 1
    until(
        lambda: (
            service.metric("reo_source_high_watermark", candidate=three.address)
            == service.metric("reo_source_high_watermark", candidate=one.address) + 1000
        ),
        "the high watermarks are what was fed",
    )
    service.stop()
    before = clusters.destination.count_offsets(topic)
    kill_broker(three)
    service = start_with_candidates(start, topic, candidates, **lag)
    service.wait_for_log("behind, was truncated, or was recreated", COPY_S)
    until(
        lambda: service.metric("reo_source_unhealthy_total") > 1,
        "all are looked at again and again",
        COPY_S,
    )
    assert clusters.destination.count_offsets(topic) == before
    write_to_all((two,), topic, range(1000, 2500))
    wait_for_exact_copy(two, clusters.destination, topic, 2500)
    service.stop()


def test_stage_two_does_not_say_how_far_candidates_are(
    clusters: Clusters, candidates: Candidates, topic: str, start: Start
) -> None:
    """It looks at them once, at its start: while stage one is away that would be the newest
    figure.
    """
    create_identical_topics(candidates, topic, 0)
    service = start_with_candidates(start, topic, candidates, "deduplicator")
    until(lambda: service.metric("reo_ready", stage="deduplicator") == 1, "stage two is ready")
    assert service.metric("reo_source_high_watermark") == 0


@pytest.mark.long  # tests/broker/test_candidate_answers.py asks real brokers
def test_another_topic_of_the_same_name_is_never_copied_from(
    clusters: Clusters, candidates: Candidates, topic: str, start: Start
) -> None:
    """Two has one other record below the frontier, and is further ahead; three lost what is not
    copied yet. Neither is taken, and each is told why.

    With nobody else left a service waits for the one that is away; when that was recreated, with
    other records, it ends with a named error.
    """
    one, two, three = candidates
    create_identical_topics(candidates, topic, 0)
    write_to_all((one, three), topic, range(1000))
    write_with_another(two, topic, range(1000), {501: 9999})
    service = start_with_candidates(start, topic, candidates, **PATIENT)
    wait_for_exact_copy(one, clusters.destination, topic, 1000)
    write_to_all((two,), topic, range(1000, 4000))
    refused = f"source candidate {two.address} is refused: the record of {topic}-1 at offset"
    service.wait_for_log(refused)
    write_to_all((one, three), topic, range(1000, 2000))
    wait_for_exact_copy(one, clusters.destination, topic, 2000)
    assert_switches(service, candidates, [0, 0, 0])
    service.stop()
    write_to_all((three,), topic, range(2000, 3000))
    delete_all_records(three, topic)
    kill_broker(one)
    service = start_with_candidates(start, topic, candidates)
    refused = f"source candidate {three.address} is refused: {topic}-0 begins at offset"
    service.wait_for_log(refused, COPY_S)
    until(
        lambda: service.metric("reo_source_refused_total", candidate=two.address) > 0,
        "the other one is refused too",
    )
    before = clusters.destination.read(topic)
    come_back_recreated(service, one, topic, range(5000, 9000))
    assert service.wait_for_exit() == 34, service.read_log_tail()
    said = [line for line in service.errors if "SourceRefused: every source candidate" in line]
    assert any(all(candidate.address in line for candidate in candidates) for line in said), (
        service.read_log_tail()
    )
    assert clusters.destination.read(topic) == before


@pytest.mark.long
def test_a_candidate_that_was_recreated_is_left(
    clusters: Clusters, candidates: Candidates, topic: str, start: Start
) -> None:
    """The topic is deleted and recreated, longer, under a running query: nothing of the new one is
    copied, the next candidate is gone on with. One failover was allowed: when that candidate goes
    too, the service ends and says so, also when stage one was started again meanwhile.
    """
    one, two, three = candidates
    # a late answer would be the one failover
    limits = {"source_max_failovers": "1", "source_request_timeout_ms": "10000"}
    service = copy_from_first(clusters, candidates, topic, start, **limits)
    recreate_topic(one, topic, range(10_000, 13_000))
    write_to_all((two, three), topic, range(1000, 2000))
    wait_for_exact_copy(two, clusters.destination, topic, 2000)
    assert_switches(service, candidates, [0, 1, 0])
    before = clusters.destination.read(topic)
    service.signal("replicator", "SIGKILL")  # the process that has counted it
    kill_broker(two)
    write_to_all((three,), topic, range(2000, 2100))
    assert service.wait_for_exit() == 34, service.read_log_tail()
    assert any("source.max_failovers=1" in line for line in service.errors), service.read_log_tail()
    assert clusters.destination.read(topic) == before


@pytest.mark.long
def test_a_start_needs_only_one_candidate(
    clusters: Clusters, candidates: Candidates, topic: str, start: Start
) -> None:
    """The first is dead before the service is started; a later service, that knows only another
    one, goes on where that one stopped.
    """
    one, two, three = candidates
    create_identical_topics(candidates, topic)
    kill_broker(one)
    service = start_with_candidates(start, topic, candidates, "--stop-at-end")
    assert service.wait_for_exit() == 0, service.read_log_tail()
    assert compare_partitions(two.read(topic), clusters.destination.read(topic)) == []
    write_to_all((three,), topic, range(1000, 1500))
    again = start_with_candidates(start, topic, [three], "--stop-at-end")
    assert again.wait_for_exit() == 0, again.read_log_tail()
    assert compare_partitions(three.read(topic), clusters.destination.read(topic)) == []


@pytest.mark.long
def test_other_records_are_a_named_stop_with_one_candidate(
    clusters: Clusters, candidates: Candidates, topic: str, start: Start
) -> None:
    """A copy made from one cluster, and then the address of another one that only has the same
    name, as many offsets, and a last record that is the same.
    """
    one, two, _ = candidates
    create_identical_topics((one, two), topic, 0)
    write_to_all((one,), topic, range(100))
    last = make_records(range(100), PARTITIONS)[-PARTITIONS:]
    two.write(topic, [*make_records(range(100, 200 - PARTITIONS), PARTITIONS), *last])
    assert start(topic, "--stop-at-end", source_bootstrap_servers=one.address).wait_for_exit() == 0
    before = clusters.destination.read(topic)
    other = start_with_candidates(start, topic, [two], "--stop-at-end")
    assert other.wait_for_exit() == 34, other.read_log_tail()
    assert any("is not the one that was copied" in line for line in other.errors), (
        other.read_log_tail()
    )
    single = start(topic, "--stop-at-end", source_bootstrap_servers=two.address)
    assert single.wait_for_exit() == 21, single.read_log_tail()
    assert clusters.destination.read(topic) == before == one.read(topic)


@pytest.mark.long
def test_failover_with_a_mapping_and_filters(
    clusters: Clusters, candidates: Candidates, topic: str, start: Start
) -> None:
    """The destination has no partition that is a source partition's copy, so candidates are known
    by the last copied record of each partition.

    The second candidate has another one in one partition: it is refused, and the third is copied
    from. What passes is there once, in its partition's order.
    """
    one, two, three = candidates
    for candidate in candidates:
        candidate.create(topic, PARTITIONS)
    write_to_all((one, three), topic, range(1000))
    write_with_another(two, topic, range(1000), {999: 7777})
    first = start_with_filters(start, clusters, topic, [one])
    assert first.wait_for_exit() == 0, first.read_log_tail()
    write_to_all((two, three), topic, range(1000, 2000))
    second = start_with_filters(start, clusters, topic, [two, three])
    assert second.wait_for_exit() == 0, second.read_log_tail()
    assert (
        f"source candidate {two.address} is refused: {topic}-1 has another record at offset"
        in second.log
    )
    passed = select_passing(three.read(topic))
    assert sum(map(len, passed.values())) > 1000
    assert compare_merged({topic: passed}, clusters.destination.read(topic), lambda *_: 1) == []


def test_failover_with_a_class(
    candidates: Candidates,
    topic: str,
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing of what a class has stored is read: candidates are known by the last copied record of
    each partition. The second one has another and is refused, the third is copied from.
    """
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    write_example(tmp_path)
    one, two, three = candidates
    for candidate in candidates:
        candidate.create(topic, PARTITIONS)
    write_to_all((one, three), topic, range(1000))
    write_with_another(two, topic, range(1000), {999: 7777})
    for sources, records in (([one], 1000), ([two, three], 2000)):
        write_to_all((two, three) if records > 1000 else (), topic, range(1000, records))
        service = start_with_candidates(
            start,
            topic,
            sources,
            "--stop-at-end",
            destination_class="own_store:SqliteStore",
            destination_options=json.dumps({"file": str(tmp_path / "own.db")}),
            **PATIENT,
        )
        assert service.wait_for_exit() == 0, service.read_log_tail()
    assert f"source candidate {two.address} is refused: {topic}-1" in service.log
    with contextlib.closing(sqlite3.connect(tmp_path / "own.db")) as database:
        rows = database.execute("SELECT partition, value FROM records ORDER BY rowid").fetchall()
    assert {
        partition: [record.value for record in records]
        for partition, records in three.read(topic).items()
    } == {
        partition: [value for number, value in rows if number == partition]
        for partition in range(PARTITIONS)
    }


@pytest.mark.long
def test_the_destination_is_no_candidate(
    clusters: Clusters, candidates: Candidates, topic: str, start: Start
) -> None:
    """The copy itself has the copy's records, of course: it is known by its identity, and the
    service ends before it copies the copy.
    """
    one, _, _ = candidates
    one.create(topic, PARTITIONS)
    write_to_all((one,), topic, range(1000))  # not in a transaction: the copy's markers go further
    sources = (one, clusters.destination)
    service = start_with_candidates(start, topic, sources, "--stop-at-end", **PATIENT)
    assert service.wait_for_exit() == 14, service.read_log_tail()
    assert compare_partitions(one.read(topic), clusters.destination.read(topic)) == []
