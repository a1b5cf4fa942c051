"""`filter.function` on real brokers, with a stage one of one line: what passes is there once and in
order, even if any process is killed; what does not never comes back.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import SettingsInvalid
from common.settings import load
from tests.conftest import Start
from tests.harness.filter_functions import number, passing
from tests.harness.judge import Record, compare_partitions
from tests.harness.kafka import ROOT, Clusters, make_records, until
from tests.harness.recovery import add_source_offsets
from tests.harness.service import Service, send_signal, stopped
from tests.harness.stage_one import (
    create_epoch,
    wait_for_frontiers,
    wrap_records,
    write_intermediate,
)
from tests.unit.test_settings import GOOD

RECORDS = 12_000
PARTITIONS = 2
SMALL = {"deduplicator_transaction_records": "200"}
STUMBLES = 7
"""Of the numbers modulo 50, the one that `tests.harness.filter_functions:stumbles` fails on."""


def fed(clusters: Clusters, topic: str, records: int) -> list[tuple[int, Record]]:
    """The source, and what stage one would write of it, some of it twice."""
    written = make_records(range(records), PARTITIONS)
    clusters.source.write(topic, written)
    batch = wrap_records(clusters, topic, add_source_offsets(written), create_epoch())
    write_intermediate(clusters, topic, topic, [*batch, *batch[-100:]])
    return written


def begun(clusters: Clusters, topic: str, start: Start, **more: str) -> Service:
    """Stage two with frontiers, and an empty source."""
    clusters.source.create(topic, PARTITIONS)
    service = start(topic, "deduplicator", **more)
    wait_for_frontiers(service, PARTITIONS)
    return service


def is_behind(clusters: Clusters, service: Service, records: int, *written: str) -> None:
    """Wait until the frontiers are at the source's end, and readers see what was committed: a
    commit is answered before its markers are written.
    """
    until(
        lambda: (
            sum(
                service.metric("reo_frontier_offset", partition=str(partition))
                for partition in range(PARTITIONS)
            )
            == records - PARTITIONS
        ),
        "the frontiers are at the end",
    )
    for topic in written:
        until(
            lambda topic=topic: (
                clusters.destination.end_offsets(topic, stable=True)
                == clusters.destination.end_offsets(topic)
            ),
            "it is visible",
        )  # type: ignore[misc]


def differences(clusters: Clusters, topic: str, unlike: int = -1) -> list[str]:
    """The judge's verdict on what passes; with `unlike`, without the records that stumble."""
    wanted = {
        partition: [record for record in passing(records) if number(record.value) % 50 != unlike]
        for partition, records in clusters.source.read(topic).items()
    }
    return compare_partitions(wanted, clusters.destination.read(topic))


def test_several_functions_with_options_all_have_to_agree(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The first leaves out one in three, the second all from a number on that it is told; what is
    left is copied, once.
    """
    options = '{"tests.harness.filter_functions:below": {"limit": 50}}'
    both = "tests.harness.filter_functions:no_thirds, tests.harness.filter_functions:below"
    service = begun(clusters, topic, start, filter_function=both, filter_options=options)
    fed(clusters, topic, 100)
    is_behind(clusters, service, 100, topic)
    wanted = {
        partition: [record for record in passing(records) if number(record.value) < 50]
        for partition, records in clusters.source.read(topic).items()
    }
    assert compare_partitions(wanted, clusters.destination.read(topic)) == []
    assert sum(map(len, wanted.values())) == 33
    service.stop()


TWO = {
    **GOOD,
    "REO_FILTER_FUNCTION": (
        "tests.harness.filter_functions:every,tests.harness.filter_functions:below"
    ),
}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            '{"tests.harness.filter_functions:below": 1}',
            "its filter.options are 1, and an object is expected",
        ),
        (
            '{"tests.harness.filter_functions:none": {}}',
            (
                "REO_FILTER_OPTIONS has 'tests.harness.filter_functions:none', which is none of"
                " REO_FILTER_FUNCTION"
            ),
        ),
        ("[1]", "REO_FILTER_OPTIONS: a JSON object like"),
        ("limit=1", "REO_FILTER_OPTIONS: a JSON object like"),
    ],
)
def test_options_that_no_function_takes_are_refused(options: str, words: str) -> None:
    """Before anything is copied, with the function and the reason."""
    with pytest.raises(SettingsInvalid) as refused:
        load(TWO | {"REO_FILTER_OPTIONS": options})
    assert words.replace("filter.options", "REO_FILTER_OPTIONS") in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("reo.toml", '[filter.options."tests.harness.filter_functions:below"]\nlimit = 5\n'),
        (
            "reo.yaml",
            "filter:\n  options:\n    tests.harness.filter_functions:below:\n      limit: 5\n",
        ),
        ("reo.ini", '[filter]\noptions = {"tests.harness.filter_functions:below": {"limit": 5}}\n'),
    ],
)
def test_options_in_a_file(tmp_path: Path, name: str, text: str) -> None:
    """As tables, or as JSON in INI, which has none; a child process gets the same."""
    (tmp_path / name).write_text(text)
    loaded = load(TWO, str(tmp_path / name))
    assert json.loads(loaded.filter.options) == {
        "tests.harness.filter_functions:below": {"limit": 5}
    }
    assert load(loaded.as_environment()).values == loaded.values


def test_what_passes_is_exact_while_stage_two_is_killed(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """One in three is left out, one in fifty fails and is parked: killed twice, both topics have
    each of theirs once, and nothing comes back.
    """
    service = begun(
        clusters,
        topic,
        start,
        filter_function="tests.harness.filter_functions:stumbles",
        filter_on_error="park",
        **SMALL,
    )
    written = fed(clusters, topic, RECORDS)
    for more in (1000, 3000):
        until(lambda more=more: clusters.destination.count_offsets(topic) > more, "records flow")  # type: ignore[misc]
        send_signal(until(lambda: service.find_pid("deduplicator"), "the worker lives"))
    is_behind(clusters, service, RECORDS, topic, f"{topic}-parked")
    until(
        lambda: service.metric("reo_stage_restarts_total", stage="deduplicator") == 2,
        "both kills are seen",
    )
    assert differences(clusters, topic, STUMBLES) == []
    parked = clusters.destination.read(f"{topic}-parked")
    stumbled = [
        (partition, place // PARTITIONS, record)
        for place, (partition, record) in enumerate(written)
        if place % 50 == STUMBLES
    ]
    wanted = [
        Record(
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
        for partition, offset, record in stumbled
    ]
    assert list(parked) == [0]
    assert sorted(parked[0], key=lambda record: number(record.value)) == wanted
    assert 0 < service.metric("reo_records_dropped_total", reason="filtered") <= RECORDS / 3
    assert 0 < service.metric("reo_records_dropped_total", reason="parked") <= len(wanted)
    service.stop()
    again = start(topic, "deduplicator", filter_function="tests.harness.filter_functions:no_thirds")
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
    service = begun(
        clusters, topic, start, filter_function=f"tests.harness.filter_functions:{function}"
    )
    fed(clusters, topic, 300)
    where = (
        f"at offset {STUMBLES // PARTITIONS} of {topic}-{STUMBLES % PARTITIONS}"
        if function == "stumbles"
        else f"at offset 0 of {topic}-"
    )
    stopped(service, 35, "FilterFailed", where, part, "filter.on_error=park")
    corrected = start(
        topic, "deduplicator", filter_function="tests.harness.filter_functions:no_thirds"
    )
    is_behind(clusters, corrected, 300, topic)
    assert differences(clusters, topic) == []
    corrected.stop()


def test_a_torn_transaction_is_mended_behind_a_filter(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """What passes and is at the destination already, without its frontier, is recognised: what the
    filter leaves out is on neither side.
    """
    begun(clusters, topic, start, filter_function="tests.harness.filter_functions:no_thirds").stop()
    written = make_records(range(300), PARTITIONS)
    clusters.destination.write(
        topic,
        [(partition, record) for partition, record in written if number(record.value) % 3][:40],
    )
    fed(clusters, topic, 300)
    service = start(
        topic, "deduplicator", filter_function="tests.harness.filter_functions:no_thirds"
    )
    is_behind(clusters, service, 300, topic)
    assert service.metric("reo_torn_records_total") == 40
    assert differences(clusters, topic) == []
    service.stop()


def test_nothing_passes(clusters: Clusters, topic: str, start: Start) -> None:
    """The frontier moves over everything, the destination stays empty, and the two commands say
    that they cannot compare.
    """
    service = begun(clusters, topic, start, filter_function="tests.harness.filter_functions:none")
    fed(clusters, topic, 300)
    is_behind(clusters, service, 300)
    until(
        lambda: service.metric("reo_records_dropped_total", reason="filtered") == 300,
        "all are counted",
    )
    service.stop()
    assert clusters.destination.count_offsets(topic) == 0
    for command in ("verify", "recover"):
        said = subprocess.run(
            [sys.executable, "-m", "reo", command],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin"} | service.environment,
            capture_output=True,
            text=True,
            timeout=120,
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
