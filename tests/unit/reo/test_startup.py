"""What is asked before the start is asked by a child: its death is not the service's, its errors
are, and nobody waits for it who is told to stop.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from common.errors import (
    AccessRefused,
    ClusterUnreachable,
    FrontierLost,
    HangingTransaction,
    StageFailed,
)
from common.kafka.topics import Topic
from common.parent_death_signal import list_children
from common.route_states import Kind, RouteState
from common.routes import Route
from common.settings import Settings, load
from common.settings.clusters import Cluster
from reo import check
from reo.check import Check, Start, When
from reo.checks import clusters
from reo.checks.findings import Finding, report_failure, report_ok, report_warning
from reo.service import startup

SETTINGS = load(
    {
        "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
        "REO_DESTINATION_BOOTSTRAP_SERVERS": "b:1",
        "REO_SOURCE_TOPIC": "t",
    }
)
COPIED = {Route("t", "copy", "copy-proxy"): Topic("t", "id", 1, "source")}


@pytest.fixture(autouse=True)
def without_dumps() -> Iterator[None]:
    """No dump of every stack, hundreds of lines, for an abort that a test wants."""
    is_enabled = faulthandler.is_enabled()
    faulthandler.disable()
    yield
    if is_enabled:
        faulthandler.enable()


def test_an_abort_is_asked_again_and_the_answer_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first two processes die as librdkafka's assertion lets them; the third one answers."""

    def prepare(_: Settings, __: Sequence[str]) -> dict[Route, Topic]:
        died = len(list(tmp_path.iterdir()))
        if died < 2:
            (tmp_path / str(died)).touch()
            os.kill(os.getpid(), signal.SIGABRT)
        return COPIED

    monkeypatch.setattr(startup, "_prepare", prepare)
    assert startup.prepare_clusters(SETTINGS, ("deduplicator",), lambda: False) == COPIED
    assert len(list(tmp_path.iterdir())) == 2


def test_it_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """What always dies is an error that says so."""
    monkeypatch.setattr(startup, "_prepare", lambda *_: os.kill(os.getpid(), signal.SIGABRT))
    with pytest.raises(StageFailed, match="has died 5 times"):
        startup.prepare_clusters(SETTINGS, ("deduplicator",), lambda: False)


def test_errors_are_the_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """With their kind, their words and what belongs to them."""

    def refuse(*_: object) -> None:
        raise AccessRefused("grant it", is_explained=True)

    monkeypatch.setattr(startup, "_prepare", refuse)
    with pytest.raises(AccessRefused, match="grant it") as refused:
        startup.prepare_clusters(SETTINGS, ("deduplicator",), lambda: False)
    assert refused.value.is_explained


def test_who_is_told_to_stop_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that is silent for a minute is left at once, and the process that asks it ends."""
    monkeypatch.setattr(startup, "_prepare", lambda *_: time.sleep(60))
    before, asked = list_children(os.getpid()), iter([False, False, True])
    assert startup.prepare_clusters(SETTINGS, ("deduplicator",), lambda: next(asked)) is None
    assert list_children(os.getpid()) == before


def test_what_a_start_waits_for_does_not_refuse_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a broker that is away, or a transaction that a killed process has left open. Only
    what stays as it is refuses a start that would create topics, with the first error; no check
    after it is run. Before that, a cluster that does not answer refuses it.
    """
    run: list[str] = []

    def find(name: str, *found: Finding) -> Check:
        def note_and_find(_: Start) -> Iterator[Finding]:
            run.append(name)
            yield from found

        return Check(name, note_and_find)

    warned = report_warning("w", "may not be intended", "look")
    away = report_failure("a", ClusterUnreachable("away"))
    waited = find("waited for", warned, away, report_failure("b", HangingTransaction("open")))
    monkeypatch.setattr(check, "CHECKS", [waited])
    start = Start(SETTINGS, ("deduplicator",))
    check.raise_first_error(start, "before creating")
    lost, after = find("lost", report_failure("c", FrontierLost("lost"))), find("after", away)
    monkeypatch.setattr(check, "CHECKS", [waited, lost, after])
    with pytest.raises(FrontierLost, match="lost"):
        check.raise_first_error(start, "before creating")
    assert run == ["waited for", "waited for", "lost"]
    monkeypatch.setattr(check, "CHECKS", [replace(after, when="start")])
    with pytest.raises(ClusterUnreachable, match="away"):
        check.raise_first_error(start, "start")


def test_silent_clusters_are_asked_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is reported; nobody waits for one after the other."""
    both = threading.Barrier(2, timeout=60)

    def describe(_: Settings, cluster: Cluster) -> None:
        both.wait()
        raise ClusterUnreachable(f"the {cluster.name} cluster is silent")

    monkeypatch.setattr(clusters, "describe_cluster", describe)
    monkeypatch.setattr(
        check, "CHECKS", [one for one in check.CHECKS if one.name.endswith(" cluster")]
    )
    assert [(found.about, found.seen) for found in check.run_checks(Start(SETTINGS))] == [
        (f"{name} cluster", f"the {name} cluster is silent") for name in ("destination", "source")
    ]


def test_a_start_runs_the_checks_of_its_stages_and_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`reo check` runs all of them. After one that the others need has failed, only others that are
    needed are run; what follows from a permission that was named is a warning.
    """

    def refuse(_: Start) -> list[Finding]:
        raise AccessRefused("refused")

    checks = [
        Check("host", lambda _: [report_ok("host", "")], when="before clusters"),
        Check("one", lambda _: [report_ok("one", "")], "replicator", "start"),
        Check("two", refuse, "deduplicator", "start"),
        Check("needed", refuse, is_needed=True),
        Check("also needed", lambda _: [report_ok("also needed", "")], is_needed=True),
        Check("never", lambda _: [report_ok("never", "")]),
    ]
    monkeypatch.setattr(check, "CHECKS", checks)

    def list_found(start: Start, *when: When) -> list[tuple[str, str]]:
        return [(one.about, one.level) for one in check.run_checks(start, *when)]

    assert list_found(Start(SETTINGS)) == [
        ("host", "ok"),
        ("one", "ok"),
        ("two", "error"),
        ("needed", "warning"),
        ("also needed", "ok"),
    ]
    assert list_found(Start(SETTINGS, ("deduplicator",)), "start") == [("two", "error")]
    assert list_found(Start(SETTINGS, ("replicator",)), "before clusters") == [("host", "ok")]


def test_halted_topics_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ok, with who did it and what ends it; nothing is said of a topic that runs, and nothing is
    asked of one of which nothing was copied yet.
    """
    routes = {Route(name, name, f"{name}-proxy"): Topic(name, "id", 1, "") for name in "abcd"}
    kinds: dict[str, Kind] = {"a": "stopped", "b": "running", "c": "paused"}
    states = {f"{name}-proxy": RouteState(kind, 0, "ann") for name, kind in kinds.items()}
    asked: list[str] = []

    def read(names: Collection[str]) -> dict[str, RouteState]:
        asked[:] = names
        return {name: state for name, state in states.items() if name in names}

    monkeypatch.setattr(check, "RouteStates", lambda _: SimpleNamespace(read=read))
    monkeypatch.setattr(
        check, "CHECKS", [row for row in check.CHECKS if row.name == "halted topics"]
    )
    start = Start(SETTINGS)
    start.topics = cast("Any", SimpleNamespace(settings=SETTINGS, sources=routes, existing=states))
    since = "since 1970-01-01 00:00:00 UTC, by ann"
    assert list(check.run_checks(start)) == [
        report_ok(
            "halted topics", f"a is stopped {since}; c is paused {since}. To go on: reo resume a c"
        )
    ]
    assert sorted(asked) == ["a-proxy", "b-proxy", "c-proxy"]
    states.clear()
    assert list(check.run_checks(start)) == []
