"""The compiled path under AddressSanitizer and UndefinedBehaviorSanitizer: no byte is read or
written that is not its own, whatever is on the intermediate topic.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.kafka import ROOT
from tools.fuzz.sanitizers import (
    SOURCE,
    build_environment,
    build_sanitized,
    find_compiler_sanitizers,
)

RUN = """import sys
from pathlib import Path
import pytest
from deduplicator import compiled_path
compiled_path.FOLDER = Path(sys.argv[1])
options = ["-n0", "-s", "-p", "no:cacheprovider", "-k", sys.argv[2]]
sys.exit(pytest.main([*options, "tests/unit/deduplicator/test_compiled.py"]))
"""
BUG = ("shift = 0; at < end && shift < 64;", "shift = 0; at <= end && shift < 64;")
"""Reads a byte too many: behind an envelope that is cut in a number."""
TESTS = "handed_over or damage or names or queue"


def run_tests(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    """The tests of the compiled path, with this C file."""
    build_sanitized(folder, source)
    return subprocess.run(
        [sys.executable, "-c", RUN, str(folder), TESTS],
        cwd=ROOT,
        env=os.environ | build_environment(find_compiler_sanitizers()),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_the_compiled_path_reads_and_writes_nothing_but_its_own(tmp_path: Path) -> None:
    """Thousands of envelopes, whole, cut and damaged: no report, and the records that
    Python reads.
    """
    done = run_tests(tmp_path, SOURCE.read_text())
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "passed" in done.stdout


@pytest.mark.long
def test_a_planted_overrun_is_reported(tmp_path: Path) -> None:
    """The check can fail."""
    source = SOURCE.read_text()
    assert BUG[0] in source
    done = run_tests(tmp_path, source.replace(*BUG))
    assert done.returncode != 0
    assert "AddressSanitizer" in done.stdout + done.stderr
