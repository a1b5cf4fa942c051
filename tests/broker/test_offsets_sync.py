"""`reo offsets sync` on real brokers: groups are kept translated, exactly; none that is active at
the destination is touched, and none is moved back.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ShareConsumer, TopicPartition

from common import settings as reo_settings
from common.errors import GroupBusy
from reo.migration.group_translator import GroupTranslator
from reo.migration.offsets_sync import OffsetsSync
from tests.conftest import Start, make_topic_name
from tests.harness.commands import COMMAND_S, as_json, reo
from tests.harness.group_offsets import commit, committed
from tests.harness.kafka import ROOT, Clusters, until
from tests.harness.service import Service, build_environment, send_signal
from tests.harness.transactional_copy import (
    PARTITIONS,
    SMALL,
    Copy,
    copy,
    placed,
    positions_of,
    write_transactions,
)
from tools.demo import fair_share

ZERO = dict.fromkeys(range(PARTITIONS), 0)


@pytest.fixture(scope="module")
def synced(clusters: Clusters, start_for_module: Start) -> Iterator[tuple[Copy, Service]]:
    """A copy of transactions, whose service translates the groups with the topic's name and `-live`
    in theirs every second.
    """
    topic = clusters.source.create(make_topic_name("sync"), PARTITIONS)
    write_transactions(clusters.source, topic)
    service = start_for_module(
        topic,
        "deduplicator",
        offsets_sync_groups=f"{topic}-live-.*",
        offsets_sync_interval_s="1",
        **SMALL,
    )
    copy(clusters, topic, service)
    yield (
        Copy(
            topic,
            placed(clusters.source, topic, begins=ZERO),
            placed(clusters.destination, topic, begins=ZERO),
        ),
        service,
    )
    service.stop()


def test_the_service_keeps_groups_translated(
    clusters: Clusters, synced: tuple[Copy, Service]
) -> None:
    """Wherever a group stands at the source, the service commits that place at the destination,
    also after its process was killed; stage two lives on.
    """
    copied, service = synced
    group, other = f"{copied.topic}-live-a", f"{copied.topic}-other"
    stage_two = service.find_pid("deduplicator")
    commit(clusters.source, copied.topic, other, {0: 5, 1: 5})
    for number, offsets in enumerate(
        ({0: 3}, {0: 7, 1: 2}, {0: 7, 1: 9}, clusters.source.end_offsets(copied.topic))
    ):
        commit(clusters.source, copied.topic, group, offsets)
        expected = positions_of(copied, offsets)
        until(
            lambda expected=expected: (
                committed(clusters.destination, copied.topic, group) == expected
            ),
            f"{offsets} are translated",
        )
        if number == 1:
            send_signal(
                until(lambda: service.find_pid("reo.service.sync_process"), "the process lives")
            )
    assert committed(clusters.destination, copied.topic, other) == {}, (
        "a group that was not asked for"
    )
    assert service.find_pid("deduplicator") == stage_two
    until(lambda: service.http_get("/readyz") == (200, "ok\n"), "the service is ready")


def test_a_group_is_left_alone_while_it_is_active_and_never_moved_back(
    clusters: Clusters, synced: tuple[Copy, Service]
) -> None:
    """What it commits at the destination stays, while it has members and after; a reset at the
    source moves nothing back.
    """
    copied, _ = synced
    group, last = f"{copied.topic}-live-b", f"{copied.topic}-live-c"
    consumer = Consumer(
        {
            "bootstrap.servers": clusters.destination.address,
            "group.id": group,
            "enable.auto.commit": False,
            "session.timeout.ms": 45_000,
        }
    )
    consumer.subscribe([copied.topic])
    until(
        lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == PARTITIONS,
        "it is a member",
    )
    commit(clusters.source, copied.topic, group, {0: 9, 1: 9})
    commit(clusters.source, copied.topic, last, {0: 1})
    until(
        lambda: committed(clusters.destination, copied.topic, last) == positions_of(copied, {0: 1}),
        "a round went by, in the order of the names",
    )
    assert committed(clusters.destination, copied.topic, group) == {}
    further = {partition: records[-1][0] for partition, records in copied.destination.items()}
    consumer.commit(
        offsets=[
            TopicPartition(copied.topic, partition, offset) for partition, offset in further.items()
        ],
        asynchronous=False,
    )
    consumer.close()
    commit(clusters.source, copied.topic, last, {0: 2, 1: 9})
    until(
        lambda: (
            committed(clusters.destination, copied.topic, last)
            == positions_of(copied, {0: 2, 1: 9})
        ),
        "a round went by with the group empty",
    )
    assert committed(clusters.destination, copied.topic, group) == further


def test_a_commit_in_between_is_not_undone(
    clusters: Clusters, synced: tuple[Copy, Service]
) -> None:
    """The group commits at the destination after it was translated and before the commit: it stays
    there; and with members there is no commit.
    """
    copied, _ = synced
    group, end = f"{copied.topic}-between", copied.destination[0][-1][0] + 1
    commit(clusters.source, copied.topic, group, {0: 3, 1: 3})
    translator = GroupTranslator(reo_settings.load(build_environment(clusters, copied.topic, {})))
    rows = translator.translate(group)
    commit(clusters.destination, copied.topic, group, {0: end})
    translator.commit(group, rows)
    assert committed(clusters.destination, copied.topic, group) == {0: end} | positions_of(
        copied, {1: 3}
    )
    consumer = Consumer({"bootstrap.servers": clusters.destination.address, "group.id": group})
    consumer.subscribe([copied.topic])
    until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "it is a member")
    commit(clusters.source, copied.topic, group, {0: 3, 1: 5})
    with pytest.raises(GroupBusy):
        translator.commit(group, translator.translate(group))
    consumer.close()


def test_one_round_reports_what_waits(clusters: Clusters, synced: tuple[Copy, Service]) -> None:
    """A partition that has no place yet does not hold up the others: exit code 32, and the next
    round goes on.
    """
    copied, _ = synced
    group = f"{copied.topic}-waits"
    commit(clusters.source, copied.topic, group, {0: 10_000, 1: 3})
    result = as_json(clusters, copied.topic, "offsets", "sync", "--groups", group, exit_code=32)
    (found,) = result["groups"]
    assert (found["group"], found["active_at_destination"], found["skipped"]) == (
        group,
        False,
        None,
    )
    assert [
        (row["partition"], row["moves"], (row["refused"] or {}).get("error"))
        for row in found["partitions"]
    ] == [(0, False, "OffsetUntranslatable"), (1, True, None)]
    assert committed(clusters.destination, copied.topic, group) == positions_of(copied, {1: 3})
    commit(clusters.source, copied.topic, group, {0: 4})
    mistyped = reo(clusters, copied.topic, "offsets", "sync", "--groups", f"{group}z")
    assert f"(did you mean {group}?)" in mistyped.stderr
    done = reo(clusters, copied.topic, "offsets", "sync", "--groups", f"{copied.topic}-w.*")
    assert "groups: 1, partitions committed: 1\n" in done.stdout
    assert committed(clusters.destination, copied.topic, group) == positions_of(
        copied, {0: 4, 1: 3}
    )


def test_a_group_that_takes_no_offsets_holds_up_no_other(
    clusters: Clusters, synced: tuple[Copy, Service]
) -> None:
    """A share group (KIP-932) of the destination has the name of one: it is reported, with what to
    do, and the groups before and after it are committed.
    """
    copied, _ = synced
    groups = [f"{copied.topic}-kinds-{letter}" for letter in "abc"]
    consumer = ShareConsumer(
        {"bootstrap.servers": clusters.destination.address, "group.id": groups[1]}
    )
    consumer.subscribe([copied.topic])
    consumer.poll(1)
    consumer.close()
    for group in groups:
        commit(clusters.source, copied.topic, group, {0: 3})
    done = reo(
        clusters,
        copied.topic,
        *("offsets", "sync", "--groups", f"{copied.topic}-k.*"),
        exit_code=38,
    )
    assert f"group {groups[1]} of the destination cluster takes no offsets" in done.stderr
    assert "groups: 3, partitions committed: 2, groups refused: 1\n" in done.stdout
    for group, expected in zip(groups, (True, False, True), strict=True):
        assert committed(clusters.destination, copied.topic, group) == (
            positions_of(copied, {0: 3}) if expected else {}
        )


def test_rounds_go_on_until_ctrl_c(clusters: Clusters, synced: tuple[Copy, Service]) -> None:
    """With --interval: a line of JSON for each round, then exit code 130 and no traceback."""
    copied, _ = synced
    group = f"{copied.topic}-interval"
    commit(clusters.source, copied.topic, group, {0: 3})
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "reo",
            "offsets",
            "sync",
            "--groups",
            group,
            "--interval",
            "0.1",
            "--json",
        ],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"]} | build_environment(clusters, copied.topic, {}),
    )
    assert process.stdout
    rounds = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert [each["groups"][0]["partitions"][0]["moves"] for each in rounds] == [True, False]
    commit(clusters.source, copied.topic, group, {0: 5})
    until(
        lambda: (
            committed(clusters.destination, copied.topic, group) == positions_of(copied, {0: 5})
        ),
        "it goes on",
    )
    process.send_signal(signal.SIGINT)
    _, errors = fair_share.communicate(process, COMMAND_S)
    assert (process.returncode, errors) == (130, "reo offsets: interrupted\n")


def test_what_was_compared_before_is_not_read_again(
    clusters: Clusters, synced: tuple[Copy, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second round reads what the group has read since, not what it has still to read; a third
    one, without news, reads nothing.
    """
    copied, _ = synced
    group, read = f"{copied.topic}-again", list[int]()
    sync = OffsetsSync(
        reo_settings.load(build_environment(clusters, copied.topic, {})),
        group,
        lambda: read.append(1),
    )
    counts = []
    for offset in (0, 1, 1):
        commit(clusters.source, copied.topic, group, {0: offset})
        read.clear()
        sync.sync()
        counts.append(len(read) - 1)  # one sign of life is for the group
        assert committed(clusters.destination, copied.topic, group) == positions_of(
            copied, {0: offset}
        )
    assert counts[0] > len(copied.source[0])
    assert counts[1] <= 4, "one record on either side, and the next one"
    assert counts[2] == 0
