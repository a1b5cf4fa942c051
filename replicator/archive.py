"""The archive of Spark's classes: stage one's JVM maps it at its start instead of reading and verifying 16,000 classes from jars.

It is HotSpot's class data sharing (JEP 310). `classes.gz` names the classes that a start loads up to the first record (`make classes` updates it for a new
Spark). `python -m replicator.archive` creates the archive from it once, when reo is set up or its image is built. Time from the start to the first
record: 9.7 s without the archive, 5.7 s with it (measured).

An archive fits one JVM, one class path and unchanged jars. If any of these differs, the JVM starts without it, and more slowly.
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


def jars_folder() -> Path:
    """The folder of the connector's jars and of the archive: REO_JARS, or `jars/spark` beside the packages."""
    return Path(os.environ.get(JARS_VARIABLE) or Path(__file__).parent.parent / "jars" / "spark")


def jars() -> list[Path]:
    """The jars of Spark's Kafka connector, which `make setup` and the image provide."""
    files = sorted(jars_folder().glob("*.jar"))
    if not files:
        raise StageFailed(f"no jars of Spark's Kafka connector in {jars_folder()}: run `make setup`, or set {JARS_VARIABLE}")
    return files


def archive_file() -> Path:
    """The archive."""
    return jars_folder() / "spark.jsa"


def options() -> list[str]:
    """The JVM's options for it. The JVM does not log why an archive does not fit: a user cannot repair that."""
    return [f"-XX:SharedArchiveFile={archive_file()}", "-Xlog:cds=off"] if archive_file().exists() else []


def class_path() -> str:
    """The class path of the JVM in local mode, as Spark's launcher builds it (AbstractCommandBuilder.buildClassPath)."""
    spark = Path(pyspark.__file__).resolve().parent
    logging = sorted((spark / "jars").glob("slf4j-api-*.jar"))
    return ":".join(map(str, [*jars(), spark / "conf", *logging, spark / "jars" / "*"]))


def create_archive() -> None:
    """Dump the archive, which takes half a minute."""
    with tempfile.NamedTemporaryFile("wb") as names:
        names.write(gzip.decompress(CLASSES.read_bytes()))
        names.flush()
        result = subprocess.run(["java", "-Xshare:dump", COLLECTOR, f"-XX:SharedClassListFile={names.name}", f"-XX:SharedArchiveFile={archive_file()}",
                                 "-Xlog:cds=off", "-cp", class_path()], capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"the archive of Spark's classes cannot be created: {result.stdout[-2000:]}{result.stderr[-2000:]}")


if __name__ == "__main__":
    create_archive()
