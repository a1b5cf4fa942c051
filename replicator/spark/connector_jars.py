"""The jars that stage one adds to PySpark's own: those of Spark's Kafka connector, fetched by
checksum, and the one of its sink, compiled from reo's sources (`replicator.spark.sink_jar`).

`jars.xml` names their versions for Ivy, which is inside PySpark; `jars.sha256` has their checksums.
The compiler of the sink comes with them. `reo setup` fetches them once, so no service downloads
anything when it starts. One more jar signs the tokens of Amazon MSK: it is fetched where the Python
library for that is installed, and stands on the class path, behind all others, where a cluster asks
for such tokens. An installed reo (a wheel) keeps them in the user's data directory. The
folder's name has the checksum that the sink's jar has, of all this: another version of reo uses the
same folder if it needs the same jars, and never finds jars of two versions in it. A checkout and
the image have `jars/spark` beside the packages.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import SettingsInvalid, StageFailed
from common.kafka import msk_iam
from common.settings import Settings
from replicator.spark import java, sink_jar

VARIABLE = "REO_JARS"
PACKAGES = Path(__file__).parent.parent.parent
DEPENDENCIES = Path(__file__).with_name("jars.xml")
MSK = "aws-msk-iam-auth-*.jar"
NOT_OF_SPARK = (sink_jar.NAMES, sink_jar.COMPILER, MSK)
"""What Spark's class path does not have, but for the sink of this version."""


def get_jars_folder() -> Path:
    """The folder of the jars and of the class archive: REO_JARS; for an installed reo a folder in
    XDG_DATA_HOME (XDG Base Directory Specification, by default ~/.local/share); otherwise
    `jars/spark` beside the packages.
    """
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]).absolute()
    if not is_installed():
        return PACKAGES / "jars" / "spark"
    data_home = os.environ.get("XDG_DATA_HOME", "")
    base = Path(data_home) if Path(data_home).is_absolute() else Path("~/.local/share").expanduser()
    return base / "reo" / sink_jar.compute_name().removesuffix(".jar").replace("sink", "jars")


def is_installed() -> bool:
    """Whether this code was installed from a wheel; pip then leaves its metadata beside the
    packages (PEP 376).
    """
    return any(PACKAGES.glob("reo-*.dist-info"))


def list_jars() -> list[Path]:
    """The jars of Spark's class path: all in the folder, also those that an operator added, but not
    the compiler, nor MSK's, nor the sink of another version. SettingsInvalid when one that is
    needed is missing.
    """
    folder, sink = get_jars_folder(), sink_jar.compute_name()
    missing = [
        name
        for name in (*read_checksums(), sink)
        if not (folder / name).exists() and not Path(name).match(sink_jar.COMPILER)
    ]
    if missing:
        raise SettingsInvalid(
            f"{folder} lacks {', '.join(missing)} of stage one: run `reo setup` (in a checkout"
            f" `make setup`), or set {VARIABLE} to the folder that has them"
        )
    return [
        jar
        for jar in sorted(folder.glob("*.jar"))
        if jar.name == sink or not any(map(jar.match, NOT_OF_SPARK))
    ]


def list_msk_jars(settings: Settings) -> list[Path]:
    """The jar that signs tokens for Amazon MSK, where one of the clusters asks for them. It has
    copies of libraries that Spark has too: it comes last, so Spark finds its own.
    """
    clusters = (*settings.sources, settings.destination_cluster)
    is_used = any(cluster.security.has_iam for cluster in clusters)
    return list(get_jars_folder().glob(MSK)) if is_used else []


def read_checksums() -> dict[str, str]:
    """By file name: the SHA-256 checksum, in hexadecimal, of each jar that is fetched."""
    lines = map(str.split, sink_jar.CHECKSUMS.read_text(encoding="utf-8").splitlines())
    return {
        name: checksum
        for checksum, name in lines
        if msk_iam.is_installed() or not Path(name).match(MSK)
    }


def install_jars(source: Path | None = None) -> list[str]:
    """Bring the jars that are missing, or are not the ones of `jars.sha256`, into the folder;
    returns their names.

    They come from the folder `source`, or from Maven Central (settings of Java for proxies apply).
    SettingsInvalid when `source` lacks one or the folder cannot be written, StageFailed when they
    cannot be fetched. A jar with another checksum is never put into the folder.
    """
    folder = get_jars_folder()
    names = [
        name
        for name, checksum in read_checksums().items()
        if _compute_checksum(folder / name) != checksum
    ]
    if not names:
        return []
    with explain_unwritable():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            for name in names if source else ():
                shutil.copyfile(Path(str(source)) / name, Path(temporary) / name)
            if not source:
                _fetch_jars(Path(temporary))
            wrong = [
                name
                for name in names
                if _compute_checksum(Path(temporary) / name) != read_checksums()[name]
            ]
            if wrong:
                raise StageFailed(
                    f"{', '.join(wrong)} from {source or 'Maven Central'}: not the file whose"
                    " checksum reo has, so it is not used. Find out who changed it: a mirror, a"
                    " proxy"
                )
            for name in names:
                (Path(temporary) / name).replace(folder / name)
    return names


@contextmanager
def explain_unwritable() -> Iterator[None]:
    """What `reo setup` makes in this block goes into the folder; SettingsInvalid when it cannot."""
    try:
        yield
    except OSError as reason:
        where = f"{reason.filename}: " if reason.filename else ""
        raise SettingsInvalid(
            f"what stage one needs cannot be put into {get_jars_folder()}: {where}"
            f"{reason.strerror or reason}. Correct it, or set {VARIABLE} to another folder, for"
            " this command and for the service"
        ) from None


def _compute_checksum(file: Path) -> str:
    """Empty when there is no such file."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def _fetch_jars(folder: Path) -> None:
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None
    (ivy,) = (Path(str(spark.origin)).parent / "jars").glob("ivy-*.jar")
    files = f"{folder}/[artifact]-[revision](-[classifier]).[ext]"
    options = ["-ivy", str(DEPENDENCIES), "-cache", f"{folder}/cache", "-warn", "-retrieve", files]
    options += ["-confs", "default", *(["msk"] if msk_iam.is_installed() else [])]
    command = [java.get_command(), "-jar", str(ivy), *options]
    result = subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if result.returncode:
        raise StageFailed(
            "the jars of stage one cannot be fetched from Maven Central:"
            f" {(result.stdout + result.stderr).strip()[-1500:]}\nBehind a proxy set"
            " JAVA_TOOL_OPTIONS (-Dhttps.proxyHost=…); without a network use `reo setup --from"
            " FOLDER`"
        )
