"""The software bill of materials (SBOM) of an installation, in CycloneDX format, for vulnerability
scanners.

`python -m reo.sbom` lists Debian packages, Python distributions, and the jars of Spark and the
connector, each with the package URL that vulnerability databases use. The image has it as
/opt/reo/sbom.cdx.json. It has no times or random numbers: the same components give the same list.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

from reo.version import VERSION
from replicator.spark import connector_jars

Component = dict[str, object]
JAR = re.compile(r"(.+)-(\d+\.[^/]*)\.jar")
"""Name and version; `1.5.7-7` is a version."""
BY_GROUP = {
    "org.apache.kafka": "kafka-clients",
    "org.apache.hadoop": "hadoop-client-runtime",
    "org.xerial.snappy": "snappy-java",
    "com.github.luben": "zstd-jni",
    "org.scala-lang": "scala-library scala-reflect scala-compiler",
    "org.apache.ivy": "ivy",
    "org.tukaani": "xz",
    "com.google.crypto.tink": "tink",
    "org.scala-lang.modules": (
        "scala-parallel-collections_2.13 scala-parser-combinators_2.13 scala-xml_2.13"
    ),
    "org.apache.thrift": "libthrift libfb303",
    "org.json4s": (
        "json4s-ast_2.13 json4s-core_2.13 json4s-jackson_2.13 json4s-jackson-core_2.13"
        " json4s-scalap_2.13"
    ),
    "com.twitter": "chill_2.13 chill-java",
    "com.fasterxml.jackson.module": "jackson-module-scala_2.13",
    "org.roaringbitmap": "RoaringBitmap",
    "com.google.code.findbugs": "jsr305",
    "org.objenesis": "objenesis",
    "javax.transaction": "jta transaction-api",
    "javax.jdo": "jdo-api",
    "stax": "stax-api",
    "oro": "oro",
}
GROUPS = {name: group for group, names in BY_GROUP.items() for name in names.split()}
"""Of jars without Maven's metadata."""


def build_component(kind: str, name: str, version: str, purl: str, sha256: str = "") -> Component:
    """One component."""
    entry: Component = {
        "type": "library" if kind != "deb" else "application",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }
    return entry | ({"hashes": [{"alg": "SHA-256", "content": sha256}]} if sha256 else {})


def list_debian_packages() -> Iterator[Component]:
    """The installed packages; none when there is no dpkg."""
    if not shutil.which("dpkg-query"):
        return
    form = "${Package}\t${Version}\t${Architecture}\n"
    for line in subprocess.run(
        ["dpkg-query", "-W", "-f", form], capture_output=True, text=True, check=True
    ).stdout.splitlines():
        name, version, architecture = line.split("\t")
        yield build_component(
            "deb", name, version, f"pkg:deb/debian/{name}@{quote(version)}?arch={architecture}"
        )


def list_python_packages() -> Iterator[Component]:
    """The distributions that this interpreter can import."""
    for distribution in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", distribution.name).lower()
        yield build_component(
            "pypi", name, distribution.version, f"pkg:pypi/{name}@{quote(distribution.version)}"
        )


def list_jars(jars: Iterable[Path]) -> Iterator[Component]:
    """Jars by the Maven coordinates in them; jars without coordinates are identified by name and
    content.
    """
    for jar in jars:
        sha256 = hashlib.sha256(jar.read_bytes()).hexdigest()
        match = JAR.fullmatch(jar.name)
        name, version = (match[1], match[2]) if match else (jar.stem, "")
        group = _find_group(jar, name)
        purl = (
            f"pkg:maven/{group}/{name}@{quote(version)}"
            if group
            else f"pkg:generic/{quote(jar.name)}?checksum=sha256:{sha256}"
        )
        yield build_component("maven", name, version, purl, sha256)


def _find_group(jar: Path, name: str) -> str:
    """The Maven group of the artifact after which the jar is named; a shaded jar has the groups of
    others too.
    """
    with zipfile.ZipFile(jar) as archive_file:
        for entry in archive_file.namelist():
            match = re.fullmatch(
                rf"META-INF/maven/([^/]+)/{re.escape(name)}/pom\.properties", entry
            )
            if match:
                return match[1]
    return GROUPS.get(name, "")


def build_sbom() -> dict[str, object]:
    """All components, sorted by package URL."""
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None
    jars = sorted(
        [*(Path(str(spark.origin)).parent / "jars").glob("*.jar"), *connector_jars.jars()]
    )
    components = {
        str(component["purl"]): component
        for component in (*list_debian_packages(), *list_python_packages(), *list_jars(jars))
    }
    reo = {"type": "application", "bom-ref": "reo", "name": "reo", "version": VERSION}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": reo},
        "components": [components[purl] for purl in sorted(components)],
    }


if __name__ == "__main__":
    print(json.dumps(build_sbom(), indent=1))
