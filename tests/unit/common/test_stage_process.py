"""How a stage process ends when what it has to say cannot be written everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from common.stage_process import take_error
from tests.harness.kafka import ROOT
from tests.unit.common.settings.test_settings import GOOD

WORK = """
import sys
from common import stage_process
from common.errors import FilterFailed

def work(settings, stopping):
    text = sys.argv[2].encode().decode("unicode-escape")
    raise {"FilterFailed": FilterFailed, "ValueError": ValueError}[sys.argv[1]](text)

sys.exit(stage_process.run("deduplicator", work))
"""
LOCALES = {
    "UTF-8": {"PYTHONUTF8": "1"},
    "ASCII": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize(("error", "code"), [("FilterFailed", 35), ("ValueError", 1)])
def test_any_text_can_be_the_reason(tmp_path: Path, error: str, code: int, locale: str) -> None:
    """A user's function may have raised it: half a character of UTF-16, or what the locale does not
    have. The exit code stays, and the supervisor and the log have the text.
    """
    metrics = tmp_path / "metrics"
    metrics.mkdir()
    settings = GOOD | {"REO_LOG_FORMAT": "json", "PROMETHEUS_MULTIPROC_DIR": str(metrics)}
    process = subprocess.Popen(
        [sys.executable, "-c", WORK, error, r"caf\u00e9 \u2192 \ud800"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"]} | settings | LOCALES[locale],
        stderr=subprocess.PIPE,
    )
    _, log = process.communicate(timeout=60)
    assert process.returncode == code, log
    assert take_error(tmp_path, process.pid) == rf"{error}: café → \ud800"
    event = orjson.loads(log.splitlines()[-1])["event"]
    assert event.startswith(rf"{error}: café → \ud800"), log
