"""The Dockerfile and what Docker is given to build it."""

from __future__ import annotations

from tests.harness.kafka import ROOT


def test_the_context_is_what_is_copied() -> None:
    """.dockerignore lets through what a COPY names, and nothing else: a file that it lacks breaks
    the build of the image, which only `build/image-check` makes.
    """
    copied = {
        name
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from=" not in line
        for name in line.split()[1:-1]
    }
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert copied == {line.removeprefix("!") for line in lines if line.startswith("!")}
