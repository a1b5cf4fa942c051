"""What the tests of the command line do: run a command as an operator does, on a pipe or on a
terminal, and see that it changed nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from common.errors import ClusterUnreachable
from tests.harness.admin_requests import ATTEMPTS, try_to_list_group_offsets
from tests.harness.kafka import ROOT, Cluster, Clusters, until
from tests.harness.service import build_environment
from tools.demo import fair_share

COMMAND_S = 60
LONG_COMMAND_S = 120
"""For one that reads topics."""
ESCAPE = "\x1b["


def reo(
    clusters: Clusters,
    topic: str,
    *words: str,
    exit_code: int | None = 0,
    timeout_s: float = COMMAND_S,
    **more: str,
) -> subprocess.CompletedProcess[str]:
    """A command of its own process, its output on pipes; `more` are settings. It has to end with
    this code, if one is given.
    """
    return reo_with(
        build_environment(clusters, topic, more), *words, exit_code=exit_code, timeout_s=timeout_s
    )


def run_python(
    program: str,
    *words: str,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = LONG_COMMAND_S,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, with this environment alone if one is given. With `check`
    it has to end with 0.
    """
    return fair_share.run(
        [sys.executable, "-c", program, *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout_s=timeout_s,
        check=check,
    )


def reo_with(
    environment: Mapping[str, str],
    *words: str,
    exit_code: int | None = 0,
    timeout_s: float = COMMAND_S,
) -> subprocess.CompletedProcess[str]:
    """The same with this environment alone. On a machine that stands still, a command can rightly
    say that a cluster does not answer: it is run again, unless that is expected.
    """
    for _ in range(ATTEMPTS):
        done = fair_share.run(
            [sys.executable, "-m", "reo", *words],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            text=True,
            timeout_s=timeout_s,
            check=False,
        )
        print(f"--- reo {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
        assert "Traceback" not in done.stderr
        assert ESCAPE not in done.stdout + done.stderr, "colours or a bar on a pipe"
        if done.returncode == exit_code or done.returncode != ClusterUnreachable.exit_code:
            break
    assert exit_code is None or done.returncode == exit_code
    return done


def as_json(
    clusters: Clusters, topic: str, *words: str, exit_code: int | None = 0, **more: str
) -> Any:
    """What a command says with `--json`."""
    return json.loads(reo(clusters, topic, *words, "--json", exit_code=exit_code, **more).stdout)


def on_a_terminal(environment: Mapping[str, str], *words: str, until: str | None = None) -> str:
    """What a command writes on a terminal of 200 columns; when it has said `until` three times it
    is interrupted, as Ctrl-C does. It has to end with 0.
    """
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "reo", *words],
        cwd=ROOT,
        stdin=its,
        stdout=its,
        stderr=its,
        env={
            "PATH": os.environ["PATH"],
            "TERM": "xterm-256color",
            "COLUMNS": "200",
            "LINES": "40",
            **environment,
        },
    )
    os.close(its)
    written, interrupted, limit = "", False, fair_share.Limit(COMMAND_S)
    with contextlib.suppress(OSError):  # the end of a terminal is an error
        while True:
            if limit.is_over():
                process.kill()
            if not select.select([ours], [], [], 1)[0]:
                continue
            part = os.read(ours, 65_536)
            if not part:
                break
            written += part.decode(errors="replace")
            if until is not None and not interrupted and written.count(until) >= 3:
                process.send_signal(signal.SIGINT)
                interrupted = True
    os.close(ours)
    assert fair_share.wait(process, COMMAND_S) == 0, written
    return written


def everything(cluster: Cluster, topic: str) -> dict[str, Any]:
    """All that a command could have changed of this test's: topics and groups with this name in
    theirs; identity, configuration and offsets of the topics; the group's offsets with their
    metadata. What other tests left on the brokers may go away meanwhile.
    """
    own = sorted(name for name in cluster.admin.list_topics(timeout=30).topics if topic in name)
    groups = sorted(
        group.group_id
        for group in cluster.admin.list_consumer_groups().result().valid
        if topic in group.group_id
    )
    found: dict[str, Any] = {"topics": own, "groups": groups}
    found |= {
        name: (
            cluster.topic_id(name),
            cluster.config(name),
            cluster.beginning_offsets(name),
            cluster.end_offsets(name),
        )
        for name in own
    }
    (found["offsets"],) = until(
        lambda: try_to_list_group_offsets(cluster.admin, f"reo-{topic}"), "its offsets"
    )
    return found
