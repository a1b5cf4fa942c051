"""What `reo cutover` does with what it finds, without brokers; with them:
`tests/broker/test_cutover.py`.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from common.settings import Settings
from reo.migration import cutover, cutover_subcommands
from reo.migration.cutover import Cutover
from reo.migration.moving_topics import MovingGroup
from tests.unit.test_offset_translation import COPY, GROUP, SOURCE, FakeClusters


def make_cutover(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, moving: object = None
) -> tuple[Cutover, list[str]]:
    """One run, and what it reports."""
    said: list[str] = []
    monkeypatch.setattr(cutover, "MovingTopics", lambda *_: moving)
    return Cutover(settings, ".*", 0.0, None, said.append), said


def test_where_a_group_stays_that_is_further_at_the_destination(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not moved back: the report and the table have the offset at which it stays."""
    clusters = FakeClusters(monkeypatch)
    clusters.at_destination.committed[COPY] = 3
    run, said = make_cutover(monkeypatch, clusters.settings)
    rows = run.translate([MovingGroup(GROUP, 1, 5, [], False)])
    assert clusters.at_destination.committed == {COPY: 3}
    assert said[0] == f"6 group {GROUP} on copy-0: stays at 3, 2 offsets further than at the source"
    done = SimpleNamespace(run=lambda _: rows)
    monkeypatch.setattr(cutover_subcommands, "_prepare", lambda settings, _: settings)
    monkeypatch.setattr(cutover_subcommands, "Cutover", lambda *_: done)
    assert cutover_subcommands.run_command(clusters.settings, ".*", 0.0, None, False, False) == 0
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert table[1] == [GROUP, str(SOURCE), "3", str(COPY), "3"]
