"""The archive of Spark's classes: what stage one's JVM maps at its start instead of reading and verifying 16,000 classes from jars.

It is HotSpot's class data sharing (JEP 310). `classes.gz` names the classes that a start loads, up to the first record (`make classes`
renews it with Spark); `python -m replicator.archive` makes the archive of them once, when reo is set up or its image is built. First record after a
start: 9.7 s without, 5.7 s with it (measured).

An archive holds for one JVM, one class path and the jars as they were. Where any of that differs the JVM does without, and is slower to start.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from common.errors import StageFailed

JARS_VARIABLE = "REO_JARS"
CLASSES = Path(__file__).with_name("classes.gz")
COLLECTOR = "-XX:+UseParallelGC"


def folder() -> Path:
    """Where the connector's jars are, and the archive beside them: REO_JARS, or `jars/spark` beside the packages."""
    return Path(os.environ.get(JARS_VARIABLE) or Path(__file__).parent.parent / "jars" / "spark")


def jars() -> list[Path]:
    """The connector's jars, which `make` and the image put there."""
    found = sorted(folder().glob("*.jar"))
    if not found:
        raise StageFailed(f"no jars of Spark's Kafka connector in {folder()}: run `make setup`, or set {JARS_VARIABLE}")
    return found


def file() -> Path:
    """The archive."""
    return folder() / "spark.jsa"


def options() -> list[str]:
    """What the JVM is told of it. Why one does not fit is nothing that a user can mend: it is not logged."""
    return [f"-XX:SharedArchiveFile={file()}", "-Xlog:cds=off"] if file().exists() else []


def class_path() -> str:
    """That of the JVM in local mode, as Spark's launcher builds it (AbstractCommandBuilder.buildClassPath)."""
    spark = Path(pyspark.__file__).resolve().parent
    logging = sorted((spark / "jars").glob("slf4j-api-*.jar"))
    return ":".join(map(str, [*jars(), spark / "conf", *logging, spark / "jars" / "*"]))


def make() -> None:
    """Dump the archive; takes half a minute."""
    with tempfile.NamedTemporaryFile("wb") as names:
        names.write(gzip.decompress(CLASSES.read_bytes()))
        names.flush()
        made = subprocess.run(["java", "-Xshare:dump", COLLECTOR, f"-XX:SharedClassListFile={names.name}", f"-XX:SharedArchiveFile={file()}",
                               "-Xlog:cds=off", "-cp", class_path()], capture_output=True, text=True, check=False)
    if made.returncode:
        sys.exit(f"the archive of Spark's classes cannot be made: {made.stdout[-2000:]}{made.stderr[-2000:]}")


if __name__ == "__main__":
    make()
