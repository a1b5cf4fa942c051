"""reo as a user installs it: a wheel of this tree, in a virtual environment of its own, with an
empty home and no checkout around it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.harness.kafka import ROOT
from tools.demo import fair_share

COMMAND_S = 240


def build_wheel(folder: Path, append: str = "", **environment: str) -> Path:
    """The wheel, built from a copy of the repository's files, with this behind pyproject.toml's;
    setuptools comes from PyPI.
    """
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    for name in filter(lambda name: name and (ROOT / name).is_file(), names):
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / "tree" / name)
    with (folder / "tree" / "pyproject.toml").open("a") as settings:
        settings.write(f"\n{append}")
    done = fair_share.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "-w",
            str(folder),
            ".",
        ],
        cwd=folder / "tree",
        env=dict(os.environ) | environment,
        capture_output=True,
        text=True,
        timeout_s=COMMAND_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def files_of(wheel: Path) -> set[str]:
    """What is in a wheel, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@dataclass
class Installation:
    """A virtual environment with reo alone; the packages that reo needs are those of the tests' own
    environment (PySpark is large).
    """

    folder: Path

    @classmethod
    def of(cls, wheel: Path, folder: Path) -> Installation:
        """Install the wheel, as pipx and uv do it but for the dependencies."""
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True
        )
        (packages,) = (folder / "venv" / "lib").glob("python3*/site-packages")
        (packages / "dependencies.pth").write_text(
            "\n".join(path for path in sys.path if path.endswith("-packages"))
        )
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "--python",
                str(folder / "venv" / "bin" / "python"),
                "install",
                "--quiet",
                "--no-deps",
                "--no-index",
                "--disable-pip-version-check",
                str(wheel),
            ],
            check=True,
        )
        for name in ("home", "elsewhere", "tmp"):
            (folder / name).mkdir()
        return cls(folder)

    def reo(
        self, *words: str, exit_code: int = 0, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """`reo …` from another folder; of the tests' environment it has only PATH, for java."""
        path = os.pathsep.join([str(self.folder / "venv" / "bin"), os.environ["PATH"]])
        own = {"PATH": path, "HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / "tmp")}
        done = fair_share.run(
            ["reo", *words],
            cwd=self.folder / "elsewhere",
            env=own | dict(environment or {}),
            capture_output=True,
            text=True,
            timeout_s=COMMAND_S,
            check=False,
        )
        print(f"--- reo {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
        assert "Traceback" not in done.stderr
        assert done.returncode == exit_code
        return done
