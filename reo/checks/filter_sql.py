"""Whether stage one's Spark would take the condition of `filter.sql`.

Only Spark can tell: its parser knows whether the text is SQL, and its analyzer whether the columns
and functions exist and are deterministic. So a Spark starts, in a process of its own that makes the
same check as a start of stage one (`replicator.check_filter_sql`). It takes about three seconds,
and only where `filter.sql` is set.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from common.errors import SettingsInvalid
from common.parent_death_signal import set_parent_death_signal
from common.settings import Settings, is_ours
from reo.checks.findings import Finding, report_failure, report_ok, report_warning

SETTING = "filter.sql"
PATIENCE_S = 120
ELSEWHERE = ("replicator.master",)
"""The condition is tried here, wherever stage one's tasks run."""


def check_filter_sql(settings: Settings) -> Iterator[Finding]:
    """Nothing without a condition."""
    if not settings.filter.sql:
        return
    here = Settings(settings.values | dict.fromkeys(ELSEWHERE, ""))
    try:
        done = _start_spark(here)
    except subprocess.TimeoutExpired:
        yield _report_unknown(f"Spark did not start in {PATIENCE_S} s")
        return
    if done.returncode == SettingsInvalid.exit_code:
        yield report_failure(
            SETTING,
            SettingsInvalid(
                done.stdout.strip().removeprefix(f"{SETTING}: ").rstrip("."), f"Correct {SETTING}"
            ),
        )
    elif done.returncode:
        yield _report_unknown(
            (
                done.stdout.strip() or done.stderr.strip() or f"exit code {done.returncode}"
            ).splitlines()[-1]
        )
    else:
        yield report_ok(SETTING, "Spark takes the condition")


def _start_spark(settings: Settings) -> subprocess.CompletedProcess[str]:
    """What Spark leaves behind when it is killed goes with the folder."""
    inherited = {name: value for name, value in os.environ.items() if not is_ours(name)}
    with tempfile.TemporaryDirectory(prefix="reo-check-") as folder:
        return subprocess.run(
            [sys.executable, "-m", "replicator.check_filter_sql"],
            env=inherited | settings.build_environment() | {"TMPDIR": folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
            preexec_fn=set_parent_death_signal,
        )


def _report_unknown(reason: str) -> Finding:
    return report_warning(
        SETTING,
        f"cannot be checked, because Spark does not start here: {reason}",
        "check where stage one runs, for example in reo's image",
    )
