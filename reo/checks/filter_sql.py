"""Whether stage one's Spark would take the condition of `filter.sql`.

Only Spark can tell: its parser knows whether the text is SQL, and its analyzer whether the columns
and functions exist and are deterministic. So a Spark starts in a process of its own, which runs
this module: it makes the check that a start of stage one makes, prints its error and ends with the
error's exit code. It takes about three seconds, and only where `filter.sql` is set.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from common import settings as reo_settings
from common.errors import ReoError, SettingsInvalid
from common.parent_death_signal import kill_children, set_parent_death_signal
from common.settings import Settings, is_ours
from reo.checks.findings import Finding, report_ok, report_warning

SETTING = "filter.sql"
PATIENCE_S = 120


def check_filter_sql(settings: Settings) -> Iterator[Finding]:
    """Nothing without a condition; SettingsInvalid when Spark refuses it."""
    if not settings.filter.sql:
        return
    # the condition is tried here, wherever stage one's tasks run
    here = Settings.build(settings.values | {"replicator.master": ""})
    try:
        done = _start_spark(here)
    except subprocess.TimeoutExpired:
        yield _report_unknown(f"Spark did not start in {PATIENCE_S} s")
        return
    except OSError as failed:  # no temporary folder, no memory
        yield _report_unknown(str(failed))
        return
    message = done.stdout.strip()
    if done.returncode == SettingsInvalid.exit_code:
        text = message.removeprefix(f"{SETTING}: ").rstrip(".")
        raise SettingsInvalid(text, f"Correct {SETTING}")
    if done.returncode:
        lines = message or done.stderr.strip() or f"exit code {done.returncode}"
        yield _report_unknown(lines.splitlines()[-1])
    else:
        yield report_ok(SETTING, "Spark takes the condition")


def _start_spark(settings: Settings) -> subprocess.CompletedProcess[str]:
    """What Spark leaves behind when it is killed goes with the folder."""
    inherited = {name: value for name, value in os.environ.items() if not is_ours(name)}
    with tempfile.TemporaryDirectory(prefix="reo-check-") as folder:
        own = {"TMPDIR": folder, "PYTHONIOENCODING": "utf-8"}
        return subprocess.run(
            [sys.executable, "-m", __name__],
            env=inherited | settings.build_environment() | own,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
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


def main() -> int:
    """Start Spark, which checks the condition; returns the exit code."""
    from replicator.spark import session

    logging.getLogger().addHandler(logging.NullHandler())
    try:
        session.start_session(reo_settings.load(os.environ), partitions=1)
    except ReoError as error:
        print(error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    kill_children()  # the JVM
    os._exit(exit_code)
