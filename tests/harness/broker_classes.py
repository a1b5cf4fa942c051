"""Classes of ours for a broker of the tests, in `broker_java/`, compiled as stage one's sink is."""

from __future__ import annotations

import subprocess
from pathlib import Path

from replicator.spark import sink_jar
from tests.harness.kafka import ROOT

SOURCES = Path(__file__).with_name("broker_java")


def compile_classes(folder: Path) -> Path:
    """The folder of the compiled classes, for a broker's class path."""
    (compiler,) = (ROOT / "jars" / "spark").glob(sink_jar.COMPILER)
    jars = ":".join(map(str, sorted((ROOT / "jars" / "broker").glob("*.jar"))))
    subprocess.run(
        [
            *("java", "-jar", str(compiler), "-17", "-proc:none", "-nowarn", "-cp", jars),
            *("-d", str(folder), *map(str, sorted(SOURCES.glob("*.java")))),
        ],
        check=True,
    )
    return folder
