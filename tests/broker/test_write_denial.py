"""The DENY of `reo cutover run --deny-writes`, with a source that has an authorizer: whatever ends
the run, its last line says whether writes are denied.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.conftest import Start
from tests.harness import moving
from tests.harness.authorized import Authorized
from tests.harness.commands import COMMAND_S, reo
from tests.harness.kafka import ROOT, Clusters, make_records
from tests.harness.service import build_environment
from tests.harness.stage_one import wait_for_frontiers
from tools.demo import fair_share


class DenyingRun:
    """`reo cutover run --deny-writes`; `lines` is what it says on standard error."""

    def __init__(self, clusters: Clusters, topic: str, quiet_s: int = 1) -> None:
        self.command = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "reo",
                "cutover",
                "run",
                "--deny-writes",
                "--quiet",
                str(quiet_s),
            ],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"]} | build_environment(clusters, topic, {}),
            text=True,
            stderr=subprocess.PIPE,
        )
        self.lines: list[str] = []

    def wait_for(self, words: str) -> None:
        """Until it says this."""
        assert self.command.stderr
        for line in self.command.stderr:
            self.lines.append(line.strip())
            if words in line:
                return
        raise AssertionError(f"no {words!r} in {self.lines}")

    def end(self) -> tuple[int, str]:
        """Its exit code, and its last line."""
        try:
            _, errors = fair_share.communicate(self.command, COMMAND_S)
        finally:
            self.command.kill()
        self.lines += errors.splitlines()
        return self.command.returncode, self.lines[-1]


def test_a_run_says_in_the_end_whether_writes_are_denied(
    clusters: Clusters, topic: str, start: Start, tmp_path: Path
) -> None:
    """It compares before it denies. A super user's writes, and a DENY that somebody removes, are
    noticed; after a signal the DENY stays, and the next run knows of it.
    """
    source = Authorized(tmp_path / "source", [])
    try:
        check_runs(
            Clusters(source.ready(), clusters.destination), topic, start, tmp_path / "number"
        )
    finally:
        source.broker.kill()


def check_runs(clusters: Clusters, topic: str, start: Start, number: Path) -> None:
    """One run after the other; `number` is the file of a producer."""
    clusters.source.create(topic, 2)
    service = start(topic, "deduplicator", environment=build_environment(clusters, topic, {}))
    wait_for_frontiers(service, 2)
    denied = f"writes to {topic} at the source are denied: `reo cutover back` removes the DENY"
    not_denied = "writes are not denied at the source"
    with moving.relay_records(clusters, topic):
        clusters.source.write(topic, make_records(range(5), 2))
        clusters.wait_for_copy(topic, 5)
        run = DenyingRun(clusters, topic, quiet_s=60)
        run.wait_for("1 before writes are denied: what is copied equals the source: 5 records")
        run.wait_for("1 writes denied")
        number.write_text("0")
        super_user = moving.start("count", clusters.source.address, topic, str(number))
        run.wait_for("although writes are denied: by a super user")
        reo(clusters, topic, "cutover", "back")
        assert run.end() == (38, not_denied)
        assert "was removed while the command relied on it" in run.lines[-2]
        moving.end(super_user)
        for begin, sent in (("1 writes denied", signal.SIGTERM), ("3 the copy", signal.SIGINT)):
            run = DenyingRun(clusters, topic)
            run.wait_for(begin)
            run.command.send_signal(sent)
            assert run.end() == (128 + sent, denied)
        reo(clusters, topic, "cutover", "back")
        clusters.destination.write(topic, make_records(range(1), 1))
        run = DenyingRun(clusters, topic)
        assert run.end() == (30, not_denied)
        assert "1 writes denied" not in " ".join(run.lines)
