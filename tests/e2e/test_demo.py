"""`make demo`, which a reader runs first: it ends with a verdict, leaves nothing, and shows stage
two at work.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.harness.kafka import ROOT
from tools.demo import fair_share

DEMO_S = 300


@pytest.mark.long
def test_the_demo_is_exact_and_drops_what_a_zombie_wrote(tmp_path: Path) -> None:
    """One kill of stage two, and a service that was replaced and goes on; no folder is left."""
    done = fair_share.run(
        [sys.executable, "-m", "tools.demo", "--kills", "1"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path), "REO_SOURCE_TOPIC": "of-the-users-own-copy"},
        capture_output=True,
        text=True,
        timeout_s=DEMO_S,
        check=False,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert re.search(r"duplicates dropped +│ [1-9]", done.stdout)
    assert "0 of stage one, 1 of stage two, 1 zombie" in done.stdout
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
