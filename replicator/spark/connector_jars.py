"""The jars of Spark's Kafka connector: fetched by checksum, installed, and found.

Stage one adds them to PySpark's own.

`jars.xml` names their versions for Ivy, which is inside PySpark; `jars.sha256` has their checksums.
`reo setup` fetches them once, so no service downloads anything when it starts. An installed reo (a
wheel) keeps them in the user's data directory. The folder's name is a checksum of `jars.sha256`:
another version of reo uses the same folder if it needs the same jars, and never finds jars of two
versions in it. A checkout and the image have `jars/spark` beside the packages.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from common.errors import SettingsInvalid, StageFailed

VARIABLE = "REO_JARS"
PACKAGES = Path(__file__).parent.parent.parent
DEPENDENCIES = Path(__file__).with_name("jars.xml")
CHECKSUMS = Path(__file__).with_name("jars.sha256")


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
    return base / "reo" / f"jars-{hashlib.sha256(CHECKSUMS.read_bytes()).hexdigest()[:12]}"


def is_installed() -> bool:
    """Whether this code was installed from a wheel; pip then leaves its metadata beside the
    packages (PEP 376).
    """
    return any(PACKAGES.glob("reo-*.dist-info"))


def list_jars() -> list[Path]:
    """All jars in the folder, also those that an operator added; SettingsInvalid when one of the
    connector's is missing.
    """
    folder = get_jars_folder()
    missing = [name for name in read_checksums() if not (folder / name).exists()]
    if missing:
        raise SettingsInvalid(
            f"{folder} lacks {', '.join(missing)} of Spark's Kafka connector: run `reo setup` (in a"
            f" checkout `make setup`), or set {VARIABLE} to the folder that has them"
        )
    return sorted(folder.glob("*.jar"))


def read_checksums() -> dict[str, str]:
    """By file name: the SHA-256 checksum of each of the connector's jars, in hexadecimal."""
    return {name: checksum for checksum, name in map(str.split, CHECKSUMS.read_text().splitlines())}


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
    try:
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
    except OSError as reason:
        raise SettingsInvalid(
            f"the jars of Spark's Kafka connector cannot be put into {folder}: {reason.filename}: "
            f"{reason.strerror}. Correct it, or set {VARIABLE} to another folder, for this command "
            "and for the service"
        ) from None
    return names


def _compute_checksum(file: Path) -> str:
    """Empty when there is no such file."""
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""


def _fetch_jars(folder: Path) -> None:
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None
    (ivy,) = (Path(str(spark.origin)).parent / "jars").glob("ivy-*.jar")
    files = f"{folder}/[artifact]-[revision].[ext]"
    options = ["-ivy", str(DEPENDENCIES), "-cache", f"{folder}/cache", "-warn", "-retrieve", files]
    command = ["java", "-jar", str(ivy), *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise StageFailed(
            "the jars of Spark's Kafka connector cannot be fetched from Maven Central:"
            f" {(result.stdout + result.stderr).strip()[-1500:]}\nBehind a proxy set"
            " JAVA_TOOL_OPTIONS (-Dhttps.proxyHost=…); without a network use `reo setup --from"
            " FOLDER`"
        )
