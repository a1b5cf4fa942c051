"""A real Prometheus (`make prometheus`) with this repository's configuration, scraping a service
that was started here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from common.parent_death_signal import set_parent_death_signal
from tests.harness.admin_requests import ANSWER_S
from tests.harness.kafka import ROOT
from tools.demo.broker import free_port

FOLDER = ROOT / "deploy" / "prometheus"
PROMETHEUS, PROMTOOL = (
    shutil.which(name, path=f"{ROOT / 'build' / '.bin'}{os.pathsep}{os.environ['PATH']}") or ""
    for name in ("prometheus", "promtool")
)


class Prometheus:
    """Our configuration but for the address, and the interval where another one is given."""

    def __init__(self, folder: Path, target: str, interval: str = "5s") -> None:
        self.port = free_port()
        shutil.copy(FOLDER / "rules.yml", folder)
        configuration = (
            (FOLDER / "prometheus.yml")
            .read_text()
            .replace("reo:7081", target)
            .replace("5s", interval)
        )
        (folder / "prometheus.yml").write_text(configuration)
        self.process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            preexec_fn=set_parent_death_signal,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, path: str, **words: str) -> Any:
        """The data of one answer."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(words)}",
            timeout=ANSWER_S,
        ) as answer:
            return json.load(answer)["data"]

    def value(self, expression: str) -> list[Any]:
        """The samples of an expression now."""
        return list(self.ask("query", query=expression)["result"])

    def scrapes(self) -> bool:
        """Whether it has seen the service."""
        try:
            return bool(self.value("up == 1"))
        except OSError:
            return False

    def end(self) -> None:
        """SIGTERM; returns when it is gone."""
        self.process.terminate()
        self.process.wait()
