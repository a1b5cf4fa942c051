"""What an installation is made of: a bill of materials (SBOM) in CycloneDX's form, for scanners that look for known defects.

`python -m reo.sbom` lists Debian's packages, Python's, and the JVM's jars, Spark's and the connector's, each with the package URL by which the
databases of defects know it. The image has it as /opt/reo/sbom.cdx.json. Nothing in it is a time or a random number: the same parts make the same list.
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

from replicator import archive

Component = dict[str, object]
JAR = re.compile(r"(.+)-(\d+\.[^/]*)\.jar")
"""Name and version; `1.5.7-7` is one."""
BY_GROUP = {
    "org.apache.kafka": "kafka-clients", "org.apache.hadoop": "hadoop-client-runtime", "org.xerial.snappy": "snappy-java", "com.github.luben": "zstd-jni",
    "org.scala-lang": "scala-library scala-reflect scala-compiler", "org.apache.ivy": "ivy", "org.tukaani": "xz", "com.google.crypto.tink": "tink",
    "org.scala-lang.modules": "scala-parallel-collections_2.13 scala-parser-combinators_2.13 scala-xml_2.13", "org.apache.thrift": "libthrift libfb303",
    "org.json4s": "json4s-ast_2.13 json4s-core_2.13 json4s-jackson_2.13 json4s-jackson-core_2.13 json4s-scalap_2.13", "com.twitter": "chill_2.13 chill-java",
    "com.fasterxml.jackson.module": "jackson-module-scala_2.13", "org.roaringbitmap": "RoaringBitmap", "com.google.code.findbugs": "jsr305",
    "org.objenesis": "objenesis", "javax.transaction": "jta transaction-api", "javax.jdo": "jdo-api", "stax": "stax-api", "oro": "oro",
}
GROUPS = {name: group for group, names in BY_GROUP.items() for name in names.split()}
"""Of jars in which Maven has left nothing."""


def build_component(kind: str, name: str, version: str, purl: str, sha256: str = "") -> Component:
    """One part."""
    found: Component = {"type": "library" if kind != "deb" else "application", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    return found | ({"hashes": [{"alg": "SHA-256", "content": sha256}]} if sha256 else {})


def list_debian_packages() -> Iterator[Component]:
    """What dpkg has installed; nothing where there is no dpkg."""
    if not shutil.which("dpkg-query"):
        return
    form = "${Package}\t${Version}\t${Architecture}\n"
    for line in subprocess.run(["dpkg-query", "-W", "-f", form], capture_output=True, text=True, check=True).stdout.splitlines():
        name, version, architecture = line.split("\t")
        yield build_component("deb", name, version, f"pkg:deb/debian/{name}@{quote(version)}?arch={architecture}")


def list_python_packages() -> Iterator[Component]:
    """The distributions that this interpreter can import."""
    for found in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", found.name).lower()
        yield build_component("pypi", name, found.version, f"pkg:pypi/{name}@{quote(found.version)}")


def list_jars(jars: Iterable[Path]) -> Iterator[Component]:
    """Jars, by the coordinates that Maven has left in them; those without are known by their name and content alone."""
    for jar in jars:
        sha256 = hashlib.sha256(jar.read_bytes()).hexdigest()
        named = JAR.fullmatch(jar.name)
        name, version = (named[1], named[2]) if named else (jar.stem, "")
        group = _find_group(jar, name)
        purl = f"pkg:maven/{group}/{name}@{quote(version)}" if group else f"pkg:generic/{quote(jar.name)}?checksum=sha256:{sha256}"
        yield build_component("maven", name, version, purl, sha256)


def _find_group(jar: Path, name: str) -> str:
    """Of the artifact that the jar is named after; a shaded jar has those of others too."""
    with zipfile.ZipFile(jar) as opened:
        for entry in opened.namelist():
            found = re.fullmatch(rf"META-INF/maven/([^/]+)/{re.escape(name)}/pom\.properties", entry)
            if found:
                return found[1]
    return GROUPS.get(name, "")


def build_sbom() -> dict[str, object]:
    """The whole list, in order."""
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None
    jars = sorted([*(Path(str(spark.origin)).parent / "jars").glob("*.jar"), *archive.jars()])
    parts = {str(part["purl"]): part for part in (*list_debian_packages(), *list_python_packages(), *list_jars(jars))}
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": {"type": "application", "bom-ref": "reo", "name": "reo"}},
            "components": [parts[purl] for purl in sorted(parts)]}


if __name__ == "__main__":
    print(json.dumps(build_sbom(), indent=1))
