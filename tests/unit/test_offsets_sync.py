"""`reo offsets sync --interval`; on real brokers: `tests/broker/test_offsets_sync.py`."""

from __future__ import annotations

import pytest

from common import runtime, source_candidates
from common.errors import ClusterUnreachable
from common.kafka import permissions
from reo.migration import offsets_sync
from tests.unit.test_offset_translation import COPY, GROUP, SOURCE, FakeClusters


def test_an_interval_goes_on_after_a_round_without_an_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until Ctrl-C: the error is printed once, and a later round commits."""
    clusters, rounds = FakeClusters(monkeypatch), iter(["silent", "silent", "answers", "Ctrl-C"])
    now = ""

    def begin_round(_: float) -> None:
        nonlocal now
        now = next(rounds)
        clusters.at_source.committed[SOURCE] = 6
        if now == "Ctrl-C":
            raise KeyboardInterrupt

    def list_groups(*_: object) -> list[str]:
        if now == "silent":
            raise ClusterUnreachable("no broker answers")
        return [GROUP]

    monkeypatch.setattr(offsets_sync, "list_groups", list_groups)
    monkeypatch.setattr(permissions, "check_permissions", lambda *_, **__: None)
    monkeypatch.setattr(source_candidates, "select_answering", lambda settings: settings)
    monkeypatch.setattr(runtime, "sleep", begin_round)
    with pytest.raises(KeyboardInterrupt):
        offsets_sync.run_command(clusters.settings, GROUP, 1.0, as_json=False)
    assert capsys.readouterr().err == "reo offsets: no broker answers\n"
    assert clusters.at_destination.committed == {COPY: 2}
    now = "silent"
    with pytest.raises(ClusterUnreachable):
        offsets_sync.run_command(clusters.settings, GROUP, None, as_json=False)
