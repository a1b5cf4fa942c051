"""`filter.function` on real brokers, with a stage one of one line: what passes is there once and in
order, even if any process is killed; what does not never comes back.
"""

from __future__ import annotations

import sys

import pytest

from tests.conftest import Start
from tests.harness.copy_judge import Record, compare_partitions
from tests.harness.filter_functions import number, passing
from tests.harness.filtered_copy import (
    PARTITIONS,
    start_stage_two,
    wait_for_end,
    write_source_and_intermediate,
)
from tests.harness.kafka import ROOT, Clusters, make_records, until
from tests.harness.recovery import add_source_offsets
from tests.harness.service import CERTAIN_COMMITS, send_signal, stopped
from tests.harness.stage_one import (
    create_epoch,
    wait_for_frontiers,
    wrap_records,
    write_intermediate,
)
from tools.demo import fair_share

RECORDS = 12_000
SMALL = {"deduplicator_transaction_records": "200"}
STUMBLES = 7
"""Of the numbers modulo 50, the one that `tests.harness.filter_functions:stumbles` fails on."""


def differences(clusters: Clusters, topic: str, unlike: int = -1) -> list[str]:
    """The judge's verdict on what passes; with `unlike`, without the records that stumble."""
    wanted = {
        partition: [record for record in passing(records) if number(record.value) % 50 != unlike]
        for partition, records in clusters.source.read(topic).items()
    }
    return compare_partitions(wanted, clusters.destination.read(topic))


def mark_as_parked(topic: str, partition: int, offset: int, record: Record) -> Record:
    """A record that stumbles, as it is parked."""
    return Record(
        record.key,
        record.value,
        (
            *record.headers,
            ("__parked.topic", topic.encode()),
            ("__parked.partition", b"%d" % partition),
            ("__parked.offset", b"%d" % offset),
            ("__parked.error", b"ValueError: no way to tell: %d" % number(record.value)),
        ),
        record.timestamp_ms,
    )


def copy_nothing_again(
    clusters: Clusters, topic: str, start: Start, written: list[tuple[int, Record]]
) -> None:
    """Stage one begins from the beginning, with one new record: no other one is copied."""
    again = start(
        topic,
        "deduplicator",
        filter_function="tests.harness.filter_functions:no_thirds",
        **CERTAIN_COMMITS,
    )
    wait_for_frontiers(again, PARTITIONS)
    new = (0, RECORDS // PARTITIONS, Record(b"k", b"%010d" % (RECORDS + 1), (), 1))
    from_the_beginning = wrap_records(
        clusters, topic, [*add_source_offsets(written), new], create_epoch()
    )
    write_intermediate(clusters, topic, topic, from_the_beginning)
    until(
        lambda: again.metric("reo_records_out_total") == 1, "a new record is copied, and no other"
    )
    until(
        lambda: again.metric("reo_records_dropped_total", reason="duplicate") == RECORDS,
        "the other partition's are read too",
    )
    assert again.metric("reo_records_out_total") == 1
    assert again.metric("reo_records_dropped_total", reason="filtered") == 0
    again.stop()


def test_what_passes_is_exact_while_stage_two_is_killed(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """One in three is left out, one in fifty fails and is parked: killed twice, both topics have
    each of theirs once, and nothing comes back.
    """
    service = start_stage_two(
        clusters,
        topic,
        start,
        filter_function="tests.harness.filter_functions:stumbles",
        filter_on_error="park",
        **SMALL,
    )
    written = write_source_and_intermediate(clusters, topic, RECORDS)
    for more in (1000, 3000):
        until(lambda more=more: clusters.destination.count_offsets(topic) > more, "records flow")
        send_signal(until(lambda: service.find_pid("deduplicator"), "the worker lives"))
    wait_for_end(clusters, service, RECORDS, topic, f"{topic}-parked")
    until(
        lambda: service.metric("reo_stage_restarts_total", stage="deduplicator") >= 2,
        "both kills are seen",
    )
    assert differences(clusters, topic, STUMBLES) == []
    parked = clusters.destination.read(f"{topic}-parked")
    wanted = [
        mark_as_parked(topic, partition, place // PARTITIONS, record)
        for place, (partition, record) in enumerate(written)
        if place % 50 == STUMBLES
    ]
    assert list(parked) == [0]
    assert sorted(parked[0], key=lambda record: number(record.value)) == wanted
    assert 0 < service.metric("reo_records_dropped_total", reason="filtered") <= RECORDS / 3
    assert 0 < service.metric("reo_records_dropped_total", reason="parked") <= len(wanted)
    assert service.metric(
        "reo_records_filtered_total", filter="tests.harness.filter_functions:stumbles"
    ) == service.metric("reo_records_dropped_total", reason="filtered")
    service.stop()
    copy_nothing_again(clusters, topic, start, written)


@pytest.mark.parametrize(
    ("function", "part"),
    [("stumbles", "ValueError: no way to tell: 7."), ("forgets", "it returned None")],
)
def test_a_filter_that_fails_is_a_stop(
    clusters: Clusters, topic: str, start: Start, function: str, part: str
) -> None:
    """The record is named, nothing of its transaction is written, and a corrected filter goes on
    without loss.
    """
    service = start_stage_two(
        clusters, topic, start, filter_function=f"tests.harness.filter_functions:{function}"
    )
    write_source_and_intermediate(clusters, topic, 300)
    where = (
        f"at offset {STUMBLES // PARTITIONS} of {topic}-{STUMBLES % PARTITIONS}"
        if function == "stumbles"
        else f"at offset 0 of {topic}-"
    )
    stopped(service, 35, "FilterFailed", where, part, "filter.on_error=park")
    corrected = start(
        topic, "deduplicator", filter_function="tests.harness.filter_functions:no_thirds"
    )
    wait_for_end(clusters, corrected, 300, topic)
    assert differences(clusters, topic) == []
    corrected.stop()


def test_a_torn_transaction_is_repaired_behind_a_filter(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """What passes and is at the destination already, without its frontier, is recognised: what the
    filter leaves out is on neither side.
    """
    start_stage_two(
        clusters, topic, start, filter_function="tests.harness.filter_functions:no_thirds"
    ).stop()
    written = make_records(range(300), PARTITIONS)
    clusters.destination.write(
        topic,
        [(partition, record) for partition, record in written if number(record.value) % 3][:40],
    )
    write_source_and_intermediate(clusters, topic, 300)
    service = start(
        topic, "deduplicator", filter_function="tests.harness.filter_functions:no_thirds"
    )
    wait_for_end(clusters, service, 300, topic)
    assert service.metric("reo_torn_records_total") == 40
    assert differences(clusters, topic) == []
    service.stop()


def test_nothing_passes(clusters: Clusters, topic: str, start: Start) -> None:
    """The frontier moves over everything, the destination stays empty, and the two commands say
    that they cannot compare.
    """
    service = start_stage_two(
        clusters, topic, start, filter_function="tests.harness.filter_functions:none"
    )
    write_source_and_intermediate(clusters, topic, 300)
    wait_for_end(clusters, service, 300)
    until(
        lambda: service.metric("reo_records_dropped_total", reason="filtered") == 300,
        "all are counted",
    )
    service.stop()
    assert clusters.destination.count_offsets(topic) == 0
    for command in ("verify", "recover"):
        said = fair_share.run(
            [sys.executable, "-m", "reo", command],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin"} | service.environment,
            capture_output=True,
            text=True,
            timeout_s=120,
            check=False,
        )
        assert said.returncode == 31, said.stdout + said.stderr
        assert (
            "filter.function is set, so the copy differs from the source as intended" in said.stderr
        )


def test_a_parked_topic_that_is_a_destination_is_refused(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Parked records among copied ones would make the copy another one: a stop before anything is
    made.
    """
    for name in (topic, f"{topic}-parked"):
        clusters.source.create(name, 1)
    service = start(
        topic,
        "deduplicator",
        filter_function="tests.harness.filter_functions:none",
        filter_on_error="park",
        application=topic,
        topics=f"{topic},{topic}-parked",
        source_topic="",
    )
    stopped(service, 2, "SettingsInvalid", f"{topic}-parked", "rename one")
    assert clusters.destination.partitions(topic) == 0
