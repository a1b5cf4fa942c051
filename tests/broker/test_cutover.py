"""`reo cutover` on real brokers: what happens between its steps is noticed, and all groups move or
none; the plan changes nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Consumer

from common import settings as reo_settings
from common.errors import CopyDiffers, GroupBusy, MoveRefused, OffsetUntranslatable
from reo.migration.cutover import Cutover
from reo.migration.move_record import MoveRecord
from tests.conftest import Start, make_topic_name
from tests.harness.commands import COMMAND_S, as_json, everything, reo
from tests.harness.compared_sides import wait_for_markers
from tests.harness.group_offsets import commit, committed
from tests.harness.kafka import ROOT, Clusters, until
from tests.harness.recovery import wait_for_empty_group
from tests.harness.service import build_environment
from tests.harness.transactional_copy import PARTITIONS, SMALL, copy, write_transactions
from tools.demo import fair_share

QUICK = ("--quiet", "1")


@pytest.fixture(scope="module")
def copied(clusters: Clusters, start_for_module: Start) -> str:
    """A finished copy, whose service has stopped."""
    topic = clusters.source.create(make_topic_name("cutover"), PARTITIONS)
    write_transactions(clusters.source, topic)
    service = start_for_module(topic, "deduplicator", **SMALL)
    copy(clusters, topic, service)
    service.stop()
    wait_for_empty_group(clusters.destination, topic)
    return topic


def run(
    clusters: Clusters,
    topic: str,
    groups: str,
    at: str = "",
    action: Callable[[], object] = lambda: None,
    resume: str | None = None,
) -> list[str]:
    """A run, undone at once; `action` is called at a line that begins so. Returns its lines."""
    said: list[str] = []

    def report(line: str) -> None:
        said.append(line)
        if at and line.startswith(at):
            action()

    cutover = Cutover(
        reo_settings.load(build_environment(clusters, topic, {})), groups, 0.0, resume, report
    )
    cutover.run(deny_writes=False)
    MoveRecord(cutover.settings, cutover.moving.take_snapshot().sources).remove()
    return said


def write_aborted(clusters: Clusters, topic: str) -> None:
    """Write something that moves the source's end, and nothing to copy."""
    producer = clusters.source.producer(transactional_id=f"{topic}-late")
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"late", partition=0)
    assert producer.flush(30) == 0
    producer.abort_transaction(30)
    wait_for_markers(clusters.source, topic)


def test_what_is_written_after_the_producers_have_stopped_is_noticed(
    clusters: Clusters, copied: str
) -> None:
    """The run ends with an error before anything is translated; the next one finds that nothing is
    left, and moves the group.
    """
    group = f"{copied}-written"
    commit(clusters.source, copied, group, {0: 3, 1: 3})
    with pytest.raises(
        MoveRefused,
        match=f"records were written to {copied}-0 at the source after its producers had stopped",
    ):
        run(clusters, copied, group, "5 the service", lambda: write_aborted(clusters, copied))
    assert committed(clusters.destination, copied, group) == {}
    steps = [line[0] for line in run(clusters, copied, group)]
    assert [step for step in steps if step != "0"] == list("123456"), "0: groups of other tests"
    assert committed(clusters.destination, copied, group).keys() == {0, 1}


def test_what_a_group_reads_after_its_consumers_have_stopped_is_noticed(
    clusters: Clusters, copied: str
) -> None:
    """Its offset at the source moves after the translation: an error, and the next run translates
    the new one.
    """
    group = f"{copied}-reads"
    commit(clusters.source, copied, group, {0: 3})
    with pytest.raises(
        GroupBusy, match=f"group {group} has read at the source after its consumers had stopped"
    ):
        run(
            clusters,
            copied,
            group,
            "6 the offsets",
            lambda: commit(clusters.source, copied, group, {0: 5}),
        )
    before = committed(clusters.destination, copied, group)
    run(clusters, copied, group)
    assert committed(clusters.destination, copied, group)[0] > before[0]


def test_a_group_that_has_moved_already_is_left_alone(clusters: Clusters, copied: str) -> None:
    """It is active at the destination where it was translated to: a run goes through. When it has
    read on at the source, that is an error.
    """
    group = f"{copied}-moved"
    commit(clusters.source, copied, group, {0: 3})
    run(clusters, copied, group)
    moved = committed(clusters.destination, copied, group)
    consumer = Consumer(
        {
            "bootstrap.servers": clusters.destination.address,
            "group.id": group,
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([copied])
    until(lambda: consumer.poll(0.1) is None and consumer.assignment(), "it is a member")
    run(clusters, copied, group)
    commit(clusters.source, copied, group, {0: 5})
    with pytest.raises(GroupBusy, match="has not read there what it has read at the source"):
        run(clusters, copied, group)
    consumer.close()
    assert committed(clusters.destination, copied, group) == moved


def test_what_cannot_be_compared_does_not_move(clusters: Clusters, copied: str) -> None:
    """A copy with a mapping: refused before anything is waited for."""
    mapped = {"source_topic": "", "topics": f"{copied}={copied}:0", "application": f"reo-{copied}"}
    assert (
        "with the mapping 0"
        in reo(clusters, copied, "cutover", "run", exit_code=31, **mapped).stderr
    )


def test_all_groups_move_or_none(clusters: Clusters, copied: str) -> None:
    """One group has no place at the destination: nothing is committed for the other one either, and
    the message says how to move without it.
    """
    commit(clusters.source, copied, f"{copied}-all-a", {0: 3})
    commit(clusters.source, copied, f"{copied}-all-b", {0: 10_000})
    with pytest.raises(
        OffsetUntranslatable, match="To move without this group, give the others with --groups"
    ):
        run(clusters, copied, f"{copied}-all-.*")
    assert committed(clusters.destination, copied, f"{copied}-all-a") == {}


def test_a_copy_that_differs_does_not_move(clusters: Clusters, copied: str, tmp_path: Path) -> None:
    """The comparison goes on from a file that leads it to another place: the first difference is
    the error, and no offset is committed.
    """
    group, resume = f"{copied}-differs", tmp_path / "verified.json"
    commit(clusters.source, copied, group, {0: 3})
    reo(clusters, copied, "verify", "--resume", str(resume))
    content = orjson.loads(resume.read_bytes())
    content["partitions"][f"{copied}-0"][:2] = [0, 1]
    resume.write_bytes(orjson.dumps(content))
    with pytest.raises(CopyDiffers, match=f"{copied}-0"):
        run(clusters, copied, group, resume=str(resume))
    assert committed(clusters.destination, copied, group) == {}


def test_the_plan_says_who_writes_and_reads_and_changes_nothing(
    clusters: Clusters, copied: str
) -> None:
    """Groups with and without a member at the source; a dry run prints it, and changes nothing."""
    reads, stands = f"{copied}-plan-reads", f"{copied}-plan-stands"
    commit(clusters.source, copied, stands, {0: 3})
    other = f"{copied}-other"
    commit(clusters.source, copied, other, {0: 3})
    consumer = Consumer(
        {
            "bootstrap.servers": clusters.source.address,
            "group.id": reads,
            "client.id": "shop",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([copied])
    until(
        lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == PARTITIONS,
        "it is a member",
    )
    before = everything(clusters.source, copied), everything(clusters.destination, copied)
    plan = as_json(
        clusters, copied, "cutover", "run", "--dry-run", "--groups", f"{copied}-plan.*", *QUICK
    )
    assert (everything(clusters.source, copied), everything(clusters.destination, copied)) == before
    consumer.close()
    ends = clusters.source.end_offsets(copied)
    found = {
        group["name"]: (
            group["partitions"],
            group["unread"],
            group["readers_at_source"],
            group["is_active_at_destination"],
        )
        for group in plan["groups"]
    }
    assert found == {
        reads: (0, 0, ["shop on /127.0.0.1"], False),
        stands: (1, ends[0] - 3, [], False),
    }
    assert [
        (row["partition"], row["source_end"], row["written_per_s"], row["left"])
        for row in plan["partitions"]
    ] == [(partition, end, 0.0, 0) for partition, end in ends.items()]
    assert (plan["service_copies"], plan["writes_denied"], plan["to_compare"]) == (
        False,
        [],
        sum(ends.values()),
    )
    left_out = [group["name"] for group in plan["groups_left_out"]]
    assert [row["now"] for row in plan["steps"]] == [
        "nothing was written between two measurements",
        "0 records are left",
        f"{sum(ends.values())} offsets are to be compared",
        f"read there: {reads}",
        "does not run",
        f"groups: 2; left out by --groups: {', '.join(left_out)}",
    ]
    assert other in left_out


def test_without_an_authorizer_writes_cannot_be_denied(clusters: Clusters, copied: str) -> None:
    """Exit code 38, and what to do instead; a plan of such a run says it too."""
    for more in ((), ("--dry-run",)):
        done = reo(clusters, copied, "cutover", "run", "--deny-writes", *more, exit_code=38)
        assert "the source cluster has no authorizer" in done.stderr
        assert "without --deny-writes" in done.stderr
        assert ("writes are not denied at the source" in done.stderr) == (more == ())


def test_a_pattern_that_no_group_matches_does_not_move(clusters: Clusters, copied: str) -> None:
    """A mistyped `--groups` would leave the group's offsets behind: exit code 38, with the groups
    that read there, from the run and from its plan.
    """
    group = f"{copied}-shipping"
    commit(clusters.source, copied, group, {0: 3})
    for more in ((), ("--dry-run",)):
        done = reo(
            clusters,
            copied,
            *("cutover", "run", "--groups", f"{copied}-shiping"),
            *more,
            exit_code=38,
        )
        assert f"matches --groups '{copied}-shiping'; these read them: " in done.stderr
        assert group in done.stderr
    assert committed(clusters.destination, copied, group) == {}


def test_ctrl_c_ends_a_run(clusters: Clusters, copied: str) -> None:
    """At once, with 130, while it waits."""
    command = subprocess.Popen(
        [sys.executable, "-m", "reo", "cutover", "run", "--quiet", "1000"],
        cwd=ROOT,
        text=True,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ["PATH"]} | build_environment(clusters, copied, {}),
    )
    producer = clusters.source.producer(
        transactional_id=f"{copied}-open", transaction_timeout_ms=600_000
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(copied, b"open", partition=0)
    assert producer.flush(30) == 0
    assert command.stderr
    line = next(line for line in command.stderr if "open transactions" in line)
    command.send_signal(signal.SIGINT)
    assert line == f"1 waiting for open transactions at the source to end: {copied}-0\n"
    assert fair_share.wait(command, COMMAND_S) == 130
    *again, last = command.stderr
    assert set(again) <= {line}, "it is said from time to time"
    assert last == "reo cutover: interrupted\n"
    producer.abort_transaction(30)
