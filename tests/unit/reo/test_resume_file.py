"""The file of `reo verify --resume` that cannot be read, or not be written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common import source_pool
from common.errors import CopyDiffers, SettingsInvalid
from common.kafka import permissions
from common.routes import TopicPartition
from common.settings import load
from reo import verify
from reo.compare import parallel
from reo.compare.comparison import Comparison
from reo.compare.resume_file import ResumeFile
from reo.compare.verdict import Verdict
from tests.unit.common.settings.test_settings import GOOD


@pytest.mark.parametrize("name", ["corrupt", "corrupt/below", "x" * 300, "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    """Whatever the operating system says, also before the file is opened, is no traceback."""
    (tmp_path / "corrupt").write_text("{")
    with pytest.raises(SettingsInvalid, match="this is not a file that reo verify has written"):
        ResumeFile(str(tmp_path / name)).read()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    """One byte of a name is no UTF-8."""
    file = tmp_path / "verified.json"
    file.write_bytes(b'{"version":1,"topics":{"orders\xff":["a","b"]},"partitions":{}}')
    with pytest.raises(SettingsInvalid, match="this is not a file that reo verify has written"):
        ResumeFile(str(file)).read()


def test_a_file_that_does_not_exist_remembers_nothing(tmp_path: Path) -> None:
    """It is written at the end."""
    file = ResumeFile(str(tmp_path / "new" / "verified.json"))
    file.read()
    assert file.content.partitions == {}


def test_what_was_compared_is_said_though_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file cannot be written from the middle of the comparison on: one warning, and the
    difference decides. Where it cannot be written at the start, nothing is compared.
    """
    file, blocked = tmp_path / "verified.json", tmp_path / "verified.json.new"
    result = Comparison(TopicPartition("orders", 0), 0, 0, equal=7)

    def compare(*given: Any) -> list[Comparison]:
        blocked.mkdir()
        given[-1](result)
        given[-1](result)
        result.set_difference(None, None, "differs")
        return [result]

    class Prepared(verify.Verification):
        def __init__(self, settings: Any, resume_file: ResumeFile, _: object) -> None:
            self.settings, self.resume_file, self.pairs, self.total_offsets = (
                settings,
                resume_file,
                [],
                0,
            )
            self.not_comparable = []
            self._next_offsets, self._saved_at = {result.tp: 0}, 0.0

        def reach_verdict(self, results: list[Comparison]) -> Verdict:
            return Verdict(results, (), (), 0, 1.0)

    monkeypatch.setattr(verify, "SAVE_INTERVAL_S", 0.0)
    monkeypatch.setattr(verify, "Verification", Prepared)
    monkeypatch.setattr(parallel, "compare_pairs", compare)
    monkeypatch.setattr(permissions, "check_permissions", lambda *_: None)
    monkeypatch.setattr(source_pool, "select_answering", lambda settings: settings)
    assert verify.run_command(load(GOOD), resume=str(file)) == CopyDiffers.exit_code
    out, errors = capsys.readouterr()
    assert "1 of 1 partitions differ" in out
    assert errors.count("it cannot be written any more: Is a directory") == 1
    assert file.exists()
    with pytest.raises(SettingsInvalid, match=r"it cannot be written: Is a directory"):
        verify.run_command(load(GOOD), resume=str(file))
