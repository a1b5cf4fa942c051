"""`build/publish`, with stand-ins for the programs that it calls: nothing is published by mistake,
and what is published is signed by its digest.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from reo.version import VERSION
from tests.harness.kafka import ROOT

DIGESTS = {"docker": "a" * 64, "helm": "b" * 64}
FILES = (
    f"reo-{VERSION}-image.tar.gz",
    f"reo-{VERSION}.cdx.json",
    f"reo-{VERSION}.tgz",
    f"reo-{VERSION}.tar.gz",
    f"reo-{VERSION}-py3-none-any.whl",
)
READY = {"PUBLISH": "yes", "REGISTRY": "registry.example.com/team"}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder with a release that may be published, and programs that write what they are told."""
    for name in ("build/.bin", "reo", "dist", "bin"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(ROOT / "build" / "publish", tmp_path / "build")
    shutil.copy(ROOT / "reo" / "version.py", tmp_path / "reo")
    (tmp_path / "pyproject.toml").write_text("[project.urls]\n")
    for name in FILES:
        (tmp_path / "dist" / name).write_text(name)
    sums = (f"{hashlib.sha256(name.encode()).hexdigest()}  {name}\n" for name in FILES)
    (tmp_path / "dist" / "SHA256SUMS").write_text("".join(sums))
    for program in ("docker", "cosign", "uv", "git", "helm"):
        file = tmp_path / ("build/.bin" if program == "helm" else "bin") / program
        called = f'echo {program} "$@" >>{tmp_path}/called; echo Digest: sha256:{{}}\n'
        said = "echo v$TAG\n" if program == "git" else called.format(DIGESTS.get(program, ""))
        file.write_text(f"#!/bin/sh\n{said}")
        file.chmod(0o755)
    return tmp_path


def publish(release: Path, **environment: str) -> tuple[int, str, list[str]]:
    """Its exit code, what it says, and the calls of the programs."""
    own = {"PATH": f"{release / 'bin'}:{os.environ['PATH']}", "TAG": VERSION}
    done = subprocess.run(
        [release / "build" / "publish"],
        env=own | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    called = release / "called"
    calls = called.read_text().splitlines() if called.exists() else []
    called.unlink(missing_ok=True)
    return done.returncode, done.stderr, calls


def test_without_a_word_nothing_is_published(release: Path) -> None:
    """A dry run calls nothing, and says the commands that would run."""
    code, said, calls = publish(release)
    assert (code, calls) == (0, [])
    dry = [line.removeprefix("+ ") for line in said.splitlines() if line.startswith("+ ")]
    code, said, calls = publish(release, **READY)
    assert code == 0, said
    assert [line.split()[0].rpartition("/")[2] for line in dry] == [
        call.split()[0] for call in calls
    ]
    assert all(any(f"dist/{name}" in line for line in dry) for name in FILES)


def test_signatures_are_of_what_was_pushed(release: Path) -> None:
    """By the digests that the registry has answered; the package, which cannot be taken back, comes
    last.
    """
    _, _, calls = publish(release, **READY)
    registry = READY["REGISTRY"]
    image = f"{registry}/reo@sha256:{DIGESTS['docker']}"
    assert f"cosign sign --yes {image}" in calls
    predicate = f"--type cyclonedx --predicate dist/reo-{VERSION}.cdx.json"
    assert f"cosign attest --yes {predicate} {image}" in calls
    assert f"helm push dist/reo-{VERSION}.tgz oci://{registry}/charts" in calls
    assert f"cosign sign --yes {registry}/charts/reo@sha256:{DIGESTS['helm']}" in calls
    assert calls[-1] == f"uv publish dist/{FILES[3]} dist/{FILES[4]}"


def test_what_is_not_ready_is_not_published(release: Path) -> None:
    """Another commit than the tag's, files that are not the release's, no image, no address."""
    for environment, said in (({"TAG": "0.0.1"}, "no tag"), ({"REGISTRY": ""}, "REGISTRY")):
        code, text, calls = publish(release, **READY | environment)
        assert (code, calls) == (1, [])
        assert said in text
    for name, content, said in (
        ("pyproject.toml", "# [project.urls]\n", "project.urls"),
        (f"dist/{FILES[0]}", "another", "not what make release has made"),
    ):
        before = (release / name).read_text()
        (release / name).write_text(content)
        code, text, calls = publish(release, **READY)
        assert (code, calls) == (1, [])
        assert said in text
        (release / name).write_text(before)
    assert publish(release, **READY)[0] == 0


def test_a_push_that_fails_ends_it(release: Path) -> None:
    """Nothing is signed, and no package is published after it."""
    (release / "bin" / "docker").write_text("#!/bin/sh\necho denied; exit 1\n")
    code, said, calls = publish(release, **READY)
    assert (code, calls) == (1, [])
    assert "denied" in said
