"""The archive of Spark's classes: stage one's JVM maps it at its start instead of reading and
verifying 16,000 classes from jars.

It is HotSpot's class data sharing (JEP 310). `classes.gz` names the classes that a start loads up
to the first record (`make classes` updates it for a new Spark). `reo setup` creates the archive
from it once, also for a checkout and for the image. Time from the start to the first record: 9.7 s
without the archive, 5.7 s with it (measured).

An archive fits one JVM, one class path and unchanged jars. If any of these differs, the JVM starts
without it, and more slowly.
"""

from __future__ import annotations

import gzip
import importlib.util
import subprocess
import tempfile
from pathlib import Path

from common.errors import StageFailed
from replicator.spark import java
from replicator.spark.connector_jars import get_jars_folder, list_jars

CLASSES = Path(__file__).with_name("classes.gz")
COLLECTOR = "-XX:+UseParallelGC"


def get_archive_path() -> Path:
    """The archive."""
    return get_jars_folder() / "spark.jsa"


def build_options() -> list[str]:
    """The JVM's options for it. The JVM does not log why an archive does not fit: a user cannot
    repair that.
    """
    return (
        [f"-XX:SharedArchiveFile={get_archive_path()}", "-Xlog:cds=off"]
        if get_archive_path().exists()
        else []
    )


def build_class_path() -> str:
    """What the class path of stage one's JVMs begins with: each jar by its name, in order. Spark's
    launcher adds `jars/*` after it, which the JVM expands in the order of the folder's entries on
    the disk: the archive of an image would fit on the disk alone that it was built on.
    """
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    jars = Path(str(spec.origin)).resolve().parent / "jars"
    # first, as in Spark's launcher (AbstractCommandBuilder.buildClassPath)
    logging = sorted(jars.glob("slf4j-api-*.jar"))
    others = sorted(set(jars.glob("*.jar")) - set(logging))
    return ":".join(map(str, [*list_jars(), *logging, *others]))


def is_current() -> bool:
    """Whether the archive is there and the JVM can map it: it was made by this JVM, for this class
    path and for these jars.
    """
    return (
        get_archive_path().exists()
        and not _run_java(
            "-Xshare:on",
            f"-XX:SharedArchiveFile={get_archive_path()}",
            "-cp",
            build_class_path(),
            "-version",
        ).returncode
    )


def create_archive() -> None:
    """Dump the archive, which takes half a minute; StageFailed with the JVM's own words when it
    cannot. It appears when it is complete.
    """
    with (
        tempfile.NamedTemporaryFile("wb") as names,
        tempfile.TemporaryDirectory(dir=get_jars_folder()) as folder,
    ):
        names.write(gzip.decompress(CLASSES.read_bytes()))
        names.flush()
        new_file = Path(folder) / get_archive_path().name
        result = _run_java(
            "-Xshare:dump",
            f"-XX:SharedClassListFile={names.name}",
            f"-XX:SharedArchiveFile={new_file}",
            "-Xlog:cds=off",
            "-cp",
            build_class_path(),
        )
        if result.returncode:
            raise StageFailed(
                "the archive of Spark's classes cannot be created:"
                f" {result.stdout[-2000:]}{result.stderr[-2000:]}"
            )
        new_file.replace(get_archive_path())


def _run_java(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [java.get_command(), COLLECTOR, *words],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
