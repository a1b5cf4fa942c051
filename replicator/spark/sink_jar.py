"""The jar of stage one's sink (`replicator/spark/sink/*.java`), compiled by `reo setup`.

The sources are in the wheel, not the jar: the sink reads Spark's internal rows, so it belongs to
one version of Spark and is compiled for the one that is installed. The compiler is Eclipse's (ECJ),
which is one jar and needs no JDK. It comes by checksum with the connector's jars, and is not on
Spark's class path.

The jar's name has a checksum of all that it is made of. So another version of reo, or of Spark,
does not use it, and a changed source needs `reo setup` again. Its bytes are the same wherever it is
made by the same Java.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import subprocess
import tempfile
import zipfile
from pathlib import Path

from common.errors import StageFailed
from replicator.spark import java

SOURCES = Path(__file__).with_name("sink")
CHECKSUMS = Path(__file__).with_name("jars.sha256")
NAMES = "reo-sink-*.jar"
COMPILER = "ecj-*.jar"
JAVA = java.VERSIONS[0]
BUILT_FOR = "reo/spark-version"
"""In the jar; the sink compares it with Spark's own version (EnvelopeSink.java)."""
FIRST_DATE, FIRST_S = (1980, 1, 1, 0, 0, 0), 315_532_800
"""The earliest that a zip file knows: the jar and every file in it have it. The archive of Spark's
classes notes the jar's.
"""


def list_sources() -> list[Path]:
    """The sink's sources."""
    return sorted(SOURCES.glob("*.java"))


def compute_name() -> str:
    """The jar's file name."""
    content = hashlib.sha256(f"{_get_spark_version()} {JAVA}\n".encode() + CHECKSUMS.read_bytes())
    for source in list_sources():
        content.update(f"\n{source.name}\n".encode() + source.read_bytes())
    return f"reo-sink-{content.hexdigest()[:12]}.jar"


def build(folder: Path) -> Path:
    """Compile the sink into this folder, which has the connector's jars and the compiler; returns
    the jar. It appears when it is complete. StageFailed, with the compiler's words, when it cannot
    be compiled.
    """
    (compiler,) = folder.glob(COMPILER)
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None
    class_path = [
        *sorted((Path(str(spark.origin)).parent / "jars").glob("*.jar")),
        *(jar for jar in sorted(folder.glob("*.jar")) if not jar.match(NAMES)),
    ]
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        classes = Path(temporary) / "classes"
        result = subprocess.run(
            [
                *(java.get_command(), "-jar", str(compiler), "-source", JAVA, "-target", JAVA),
                *("-encoding", "UTF-8", "-proc:none", "-nowarn", "-g"),
                *("-cp", ":".join(map(str, class_path)), "-d", str(classes)),
                *map(str, list_sources()),
            ],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        if result.returncode:
            raise StageFailed(
                f"the sink of stage one cannot be compiled for Spark {_get_spark_version()}:"
                f" {(result.stdout + result.stderr).strip()[-2000:]}"
            )
        new_file = Path(temporary) / compute_name()
        _write_jar(new_file, classes)
        os.utime(new_file, (FIRST_S, FIRST_S))
        return new_file.replace(folder / compute_name())


def _write_jar(jar: Path, classes: Path) -> None:
    contents = {
        str(path.relative_to(classes)): path.read_bytes() for path in classes.rglob("*.class")
    } | {BUILT_FOR: _get_spark_version().encode()}
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name, FIRST_DATE), content)


def _get_spark_version() -> str:
    return importlib.metadata.version("pyspark")
