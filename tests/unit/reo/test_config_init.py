"""`reo config init`: a file that says what can be set, and that is a settings file itself."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from common import settings
from common.settings.schema import SETTINGS
from reo import cli


def test_the_file_is_read_and_sets_two_clusters_and_a_topic(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nothing else has a value; with every line uncommented, every setting has its default."""
    assert cli.main(["config", "init"]) == 0
    text = capsys.readouterr().out
    assert all(len(line) <= 100 for line in text.splitlines())
    file = tmp_path / "reo.toml"
    file.write_text(text)
    loaded = settings.load({}, str(file))
    assert set(loaded.given_by) == {
        "source.bootstrap_servers",
        "source.topic",
        "destination.bootstrap_servers",
    }
    tree = tomllib.loads(re.sub(r"^#(?=\w)", "", text, flags=re.MULTILINE))
    values = {name: value for name, value in tree.items() if not isinstance(value, dict)}
    for table in tree.keys() - values:
        values |= {f"{table}.{key}": value for key, value in tree[table].items()}
    expected: dict[str, object] = {
        setting.name: {} if setting.kind == "options" else setting.default or ""
        for setting in SETTINGS
        if not setting.candidate and setting.name not in {*loaded.given_by, "topics"}
    }
    assert {name: value or "" for name, value in values.items() if name in expected} == {
        name: value or "" for name, value in expected.items()
    }
