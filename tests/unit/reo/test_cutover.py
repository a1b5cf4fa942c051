"""What `reo cutover` does with what it finds, without brokers; with them:
`tests/broker/test_cutover.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from common import source_pool
from common.errors import (
    ClusterUnreachable,
    CopyDiffers,
    FrontierLost,
    MoveRefused,
    NotComparable,
    SettingsInvalid,
    TopicMissing,
)
from common.kafka import source_topics, topics
from common.routes import TopicPartition
from common.settings import Settings, load
from common.settings.clusters import Cluster
from reo.migration import cutover, cutover_back, cutover_plan, moving_topics
from reo.migration.cutover import Cutover, translate_groups
from reo.migration.cutover_plan import CutoverPlan
from reo.migration.moving_topics import MovingGroup, MovingTopics
from reo.migration.partition_translator import TranslatedPartition
from reo.progress.progress_snapshot import Snapshot
from tests.unit.reo.test_offset_translation import COPY, GROUP, SOURCE, FakeClusters


def make_cutover(
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    moving: object = None,
    resume: str | None = None,
) -> tuple[Cutover, list[str]]:
    """One run, and what it reports."""
    said: list[str] = []
    monkeypatch.setattr(cutover, "MovingTopics", lambda *_: moving)
    return Cutover(settings, ".*", 0.0, resume, said.append), said


def test_where_a_group_stays_that_is_further_at_the_destination(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not moved back: the report and the table have the offset at which it stays. A group
    without an offset is in the table too.
    """
    clusters = FakeClusters(monkeypatch)
    clusters.at_destination.committed[COPY] = 3
    said: list[str] = []
    rows = translate_groups(clusters.settings, [MovingGroup(GROUP, 1, 5, [], False)], said.append)
    rows["shop"] = [TranslatedPartition(SOURCE, COPY, None, None)]
    assert clusters.at_destination.committed == {COPY: 3}
    assert said[0] == f"6 group {GROUP} on copy-0: stays at 3, 2 offsets further than at the source"
    moving = SimpleNamespace(
        report_moved=lambda _: False,
        write_denial=SimpleNamespace(describe=str, denied=[]),
    )
    done = SimpleNamespace(run=lambda _: rows, moving=moving)
    monkeypatch.setattr(cutover, "prepare_settings", lambda settings, *_: settings)
    monkeypatch.setattr(cutover, "Cutover", lambda *_: done)
    assert cutover.run_command(clusters.settings, ".*", 0.0, None, False, False, False) == 0
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert table[1:3] == [
        [GROUP, str(SOURCE), "3", str(COPY), "3"],
        ["shop", str(SOURCE), "-", str(COPY), "-"],
    ]


class NoGroup:
    """A group of either cluster that has committed nothing."""

    readers: tuple[str, ...] = ("shop on /10.0.0.7",)

    def __init__(self, *_: object) -> None: ...

    def fetch_offsets(self, _: object) -> dict[TopicPartition, int]:
        """None."""
        return {}

    def list_readers(self, _: object) -> list[str]:
        """As long as they run."""
        return list(self.readers)

    def has_members(self) -> bool:
        """At the destination."""
        return False


def test_a_group_that_has_committed_nothing_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is found while it reads, and stays when its consumers have stopped and Kafka has deleted
    it; the run says that nothing tells where it continues.
    """
    clusters, ends = FakeClusters(monkeypatch), {SOURCE: 8}
    clusters.at_source.committed = {}
    names = [GROUP]
    for name, answer in (
        (
            "SnapshotReader",
            lambda _: SimpleNamespace(
                clients=SimpleNamespace(source_admin=None), group=SimpleNamespace(coordinator=None)
            ),
        ),
        ("WriteDenial", lambda *_: None),
        ("list_groups", lambda *_: names),
        ("UserGroup", NoGroup),
    ):
        monkeypatch.setattr(moving_topics, name, answer)
    monkeypatch.setattr(cutover, "UserGroup", NoGroup)
    moving = MovingTopics(clusters.settings, ".*")
    assert [group.has_stopped for group in moving.find_groups(ends)] == [False]
    names.clear()
    monkeypatch.setattr(NoGroup, "readers", ())
    run, said = make_cutover(monkeypatch, clusters.settings, moving)
    rows = translate_groups(clusters.settings, run.wait_for_consumers(ends), said.append)
    assert f"6 group {GROUP} has no offset at the source" in said[1]
    run.check_groups(ends, rows)
    assert [(row.source_offset, row.continues_at) for row in rows[GROUP]] == [(None, None)]


@pytest.mark.parametrize("refusal", ["the file", "the destination", "the route"])
def test_what_is_refused_is_refused_before_writes_are_denied(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refusal: str
) -> None:
    """The file of `--resume`, a destination topic that does not exist, a mapping: the run ends
    before it has changed anything, and its plan ends in the same way.
    """
    clusters, denied = FakeClusters(monkeypatch), list[str]()
    (route,) = clusters.settings.build_routes([])
    if refusal == "the route":
        route = replace(route, mapping="0")
    if refusal == "the destination":
        monkeypatch.setattr(topics, "look_up", lambda *_: {})
    resume = tmp_path / "verified.json"
    resume.write_text("{" if refusal == "the file" else '{"version":1,"topics":{},"partitions":{}}')
    kind = {"the file": SettingsInvalid, "the destination": TopicMissing}.get(
        refusal, NotComparable
    )
    sources = {route: clusters.source}
    moving = SimpleNamespace(
        take_snapshot=lambda: SimpleNamespace(sources=sources, partitions=[]),
        read_ends=dict,
        find_groups=lambda _: [],
        find_left_out=lambda *_: [],
        write_denial=SimpleNamespace(add=denied.extend, look_up=lambda _: []),
        source_admin=None,
        settings=clusters.settings,
    )
    missing = [TopicMissing("no copy")] if refusal == "the destination" else []
    verification = SimpleNamespace(total_offsets=0, not_comparable=missing)
    monkeypatch.setattr(cutover_plan, "Verification", lambda *_: verification)
    run, _ = make_cutover(monkeypatch, clusters.settings, moving, str(resume))
    monkeypatch.setattr(run, "wait_for_producers", lambda: pytest.fail("writes were denied"))
    with pytest.raises(kind):
        run.run(deny_writes=True)
    monkeypatch.setattr(source_topics, "describe_sources", lambda *_: sources)
    with pytest.raises(kind):
        CutoverPlan(cast(Any, moving), 0.0, str(resume), False)


def test_a_record_that_is_written_while_the_copy_is_compared_is_no_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Producers have to stop again; without such a record a difference ends the run."""
    written = [SOURCE]
    moving = SimpleNamespace(find_written=lambda _: written)
    run, said = make_cutover(monkeypatch, FakeClusters(monkeypatch).settings, moving)

    def verify() -> None:
        raise CopyDiffers("one record is missing")

    monkeypatch.setattr(run, "verify", verify)
    assert not run.is_equal({SOURCE: 8})
    assert said == [
        f"3 records were written to {SOURCE} after the producers had stopped: step 1 begins again"
    ]
    written.clear()
    with pytest.raises(CopyDiffers):
        run.is_equal({SOURCE: 8})


def test_what_has_moved_in_part_is_refused() -> None:
    """The topics that are meant have to be named; all or none needs no name."""
    rows = {
        name: SimpleNamespace(source=TopicPartition(name, 0), move=name == "moved" or None)
        for name in ("moved", "left")
    }
    snapshots = {
        names: Snapshot(0.0, {}, cast(Any, [rows[name] for name in names]), {})
        for names in (("moved",), ("left",), ("moved", "left"))
    }
    assert snapshots["moved",].find_moved() == [rows["moved"]]
    assert snapshots["left",].find_moved() == []
    with pytest.raises(MoveRefused, match=r"^moved moved before, and left did not"):
        snapshots["moved", "left"].find_moved()


class FakeDenial:
    """The DENY at several clusters, of which one does not answer."""

    denied: ClassVar[list[str]] = []

    def __init__(self, cluster: Cluster, _: object) -> None:
        self.servers = cluster.bootstrap_servers

    def find_denied(self, topics: list[str]) -> list[str]:
        """All, where the DENY is."""
        if self.servers == "silent:1":
            raise ClusterUnreachable("silent:1 does not answer")
        return topics if self.servers in self.denied else []

    def remove(self, topics: list[str]) -> None:
        """There."""
        if topics:
            self.denied.remove(self.servers)


def prepare_back(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Three candidates, of which two have the DENY, and one does not answer."""
    settings = load(
        {
            "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1;silent:1;b:1",
            "REO_SOURCE_MODE": "failover",
            "REO_DESTINATION_BOOTSTRAP_SERVERS": "c:1",
            "REO_SOURCE_TOPIC": SOURCE.topic,
        }
    )
    monkeypatch.setattr(FakeDenial, "denied", ["a:1", "b:1"])
    monkeypatch.setattr(cutover_back, "WriteDenial", FakeDenial)
    monkeypatch.setattr(cutover_back, "create_admin_client", lambda *_: None)
    monkeypatch.setattr(
        source_pool, "select_answering", lambda given: given.select_source(given.sources[0])
    )
    return settings


def test_back_removes_the_deny_at_every_candidate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever was asked when it was added; one that does not answer is an error, and the others
    are not left. Writes cannot be denied at several clusters.
    """
    settings = prepare_back(monkeypatch)
    monkeypatch.setattr(cutover_back, "cancel_move", lambda *_: "the topics have not moved")
    assert cutover_back.run_command(settings) == ClusterUnreachable.exit_code
    assert FakeDenial.denied == []
    out, errors = capsys.readouterr()
    assert out.splitlines()[1:] == [
        f"{servers}: producers may write to orders at the source again"
        for servers in ("a:1", "b:1")
    ]
    assert errors == "reo cutover: silent:1 does not answer\n"
    with pytest.raises(MoveRefused, match=r"source\.bootstrap_servers names 3"):
        cutover.run_command(settings, ".*", 0.0, None, True, False, False)


def test_back_leaves_the_deny_where_nobody_can_tell_whether_the_topics_have_moved(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Producers could write on both sides else. It says how the DENY is removed. A group without
    any frontier does not tell it: a record of the move expires with them.
    """
    settings = prepare_back(monkeypatch)
    rows: list[object] = []

    class Reader:
        def __init__(self, _: Settings) -> None: ...

        def take_snapshot(self) -> Snapshot:
            if not rows:
                raise ClusterUnreachable("c:1 does not answer")
            return Snapshot(0.0, {}, cast(Any, rows), {})

    monkeypatch.setattr(cutover_back, "SnapshotReader", Reader)
    for code, why in ((ClusterUnreachable.exit_code, "c:1"), (FrontierLost.exit_code, "group")):
        assert cutover_back.run_command(settings) == code
        assert FakeDenial.denied == ["a:1", "b:1"]
        out, errors = capsys.readouterr()
        assert errors.startswith(f"reo cutover: whether the topics have moved is not known: {why}")
        assert [line.partition(" If they have not: ")[2] for line in out.splitlines()] == [
            f"kafka-acls.sh --bootstrap-server {servers} --remove --deny-principal 'User:*'"
            " --operation Write --topic orders"
            for servers in ("a:1", "b:1")
        ]
        rows.append(SimpleNamespace(source=SOURCE, frontier=None, move=None))


def test_a_copy_that_is_deleted_meanwhile_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """`reo verify` would compare the others; a move needs all of them."""
    verification = SimpleNamespace(
        not_comparable=[TopicMissing("no copy")],
        run=list,
        reach_verdict=lambda _: SimpleNamespace(
            exit_code=0, records=1, compared_before=0, took_s=0.0
        ),
    )
    monkeypatch.setattr(cutover, "Verification", lambda *_: verification)
    run, _ = make_cutover(monkeypatch, FakeClusters(monkeypatch).settings)
    with pytest.raises(TopicMissing):
        run.verify()
