"""The archive of Spark's classes: it is made, stage one's JVM maps it, and a JVM that it does not
fit starts without it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from replicator.spark import class_archive
from tests.harness.commands import run_python
from tools.demo import fair_share

START = """
from pathlib import Path
from common.settings import load
from replicator.spark import session
environment = {"REO_SOURCE_BOOTSTRAP_SERVERS": "a:1", "REO_SOURCE_TOPIC": "t"}
environment["REO_DESTINATION_BOOTSTRAP_SERVERS"] = "b:1"
spark = session.start_session(load(environment), 1)
process = spark.sparkContext._jvm.java.lang.ProcessHandle.current()
maps = Path(f"/proc/{process.pid()}/maps").read_text()
print("mapped", "spark.jsa" in maps)
spark.stop()
"""


def source_of(loaded: str, class_path: str) -> str:
    """Where a JVM with this class path has a class from, as its log of loaded classes says."""
    log = fair_share.run(
        [
            "java",
            *class_archive.build_options(),
            class_archive.COLLECTOR,
            "-Xlog:class+load",
            "-cp",
            class_path,
            "org.apache.spark.deploy.SparkSubmit",
            "--version",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout_s=60,
    ).stdout
    assert "[warning]" not in log
    return next(
        line.split("source: ")[1] for line in log.splitlines() if f" {loaded} source: " in line
    )


def test_it_fits_the_class_path() -> None:
    """What `make setup` has made holds Spark's classes and is taken for them."""
    assert (
        source_of("org.apache.spark.deploy.SparkSubmit", class_archive.build_class_path())
        == "shared objects file"
    )


def test_the_order_of_a_folders_entries_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk that an image runs on lists them in another order than the one it was built on.
    Every jar is named, and what Spark's launcher adds behind them changes nothing.
    """
    path, glob = class_archive.build_class_path(), Path.glob
    monkeypatch.setattr(Path, "glob", lambda *words: reversed(list(glob(*words))))
    assert class_archive.build_class_path() == path
    jars = Path(path.split(":")[-1]).parent
    assert {file for file in jars.iterdir() if file.suffix == ".jar"} <= set(
        map(Path, path.split(":"))
    )
    launched = f"{path}:{jars.parent / 'conf'}:{jars / '*'}"
    assert source_of("org.apache.spark.deploy.SparkSubmit", launched) == "shared objects file"


def test_another_class_path_does_without() -> None:
    """The JVM says nothing and reads the jars."""
    other = ":".join(class_archive.build_class_path().split(":")[1:])
    assert source_of("org.apache.spark.deploy.SparkSubmit", other).startswith("file:")


def test_the_jvm_of_stage_one_maps_it() -> None:
    """Spark's launcher builds the class path that the archive was made for."""
    said = run_python(START, check=True).stdout
    assert "mapped True" in said
