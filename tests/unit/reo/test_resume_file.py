"""The file of `reo verify --resume` that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.errors import SettingsInvalid
from reo.compare.resume_file import ResumeFile


@pytest.mark.parametrize("name", ["corrupt", "corrupt/below", "x" * 300, "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    """Whatever the operating system says, also before the file is opened, is no traceback."""
    (tmp_path / "corrupt").write_text("{")
    with pytest.raises(SettingsInvalid, match="this is not a file that reo verify has written"):
        ResumeFile(str(tmp_path / name)).read()


def test_a_file_that_does_not_exist_remembers_nothing(tmp_path: Path) -> None:
    """It is written at the end."""
    file = ResumeFile(str(tmp_path / "new" / "verified.json"))
    file.read()
    assert file.content.partitions == {}
