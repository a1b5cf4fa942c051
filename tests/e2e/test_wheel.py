"""The wheel, as `pipx install` and `uv tool install` take it: what is in it, and that it copies."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.metadata import Metadata

from reo.version import VERSION
from replicator.spark import sink_jar
from tests.harness.installed import Installation, build_wheel, files_of
from tests.harness.kafka import ROOT, Clusters, make_records, until
from tests.harness.service import build_environment
from tests.unit.common.settings.test_settings import GOOD

pytestmark = pytest.mark.long
PRODUCT = ("common", "replicator", "deduplicator", "reo")
DATA = {
    "replicator/spark/classes.gz",
    "replicator/spark/executor-pod.yaml",
    "replicator/spark/jars.xml",
    "replicator/spark/jars.sha256",
    *(f"replicator/spark/sink/{source.name}" for source in sink_jar.list_sources()),
}
RECORDS = 300


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def modules() -> set[str]:
    """What the service is made of; what verifies the project is not installed."""
    return {
        str(path.relative_to(ROOT))
        for package in PRODUCT
        for path in (ROOT / package).rglob("*.py")
    }


def test_the_wheel_has_the_service_and_nothing_else(wheel: Path, tmp_path: Path) -> None:
    """Every module, the data that they read, and stage two's library, for every Python 3 on this
    kind of machine. The library needs no C library newer than manylinux2014's, wherever it was
    built, so an index takes it (`auditwheel repair` in `make release`).
    """
    libraries = {name for name in files_of(wheel) if name.endswith(".so")}
    assert len(libraries) == 1
    assert files_of(wheel) - libraries == modules() | DATA
    assert wheel.name.startswith(f"reo-{VERSION}-py3-none-linux_")
    with ZipFile(wheel) as archive:
        (library,) = libraries
        (tmp_path / "library.so").write_bytes(archive.read(library))
    symbols = subprocess.run(
        ["objdump", "-T", "library.so"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert "reo_forward" in symbols
    needed = [tuple(map(int, text.split("."))) for text in re.findall(r"GLIBC_([0-9.]+)", symbols)]
    assert max(needed, default=(2, 0)) <= (2, 17)


def read_metadata(wheel: Path) -> Metadata:
    """As a package index reads it: InvalidMetadata for what it would refuse."""
    with ZipFile(wheel) as archive:
        assert f"reo-{VERSION}.dist-info/licenses/LICENSE" in archive.namelist()
        text = archive.read(f"reo-{VERSION}.dist-info/METADATA")
    return Metadata.from_email(text, validate=True)


def test_an_index_takes_it_and_no_link_is_dead(wheel: Path, tmp_path: Path) -> None:
    """Its metadata are valid. An index has README and no other file of the repository: without an
    address of the documentation there are no links into it, with one they lead there.
    """
    metadata = read_metadata(wheel)
    assert (metadata.license_expression, metadata.license_files) == ("Apache-2.0", ["LICENSE"])
    assert metadata.provides_extra
    assert {"postgresql"} <= set(metadata.provides_extra)
    assert metadata.classifiers
    assert not metadata.project_urls
    plain = metadata.description or ""
    assert "pipx install" in plain
    assert re.findall(r"\]\((?!https://)[^)]*\)", plain) == []

    served = "https://docs.example.com/reo/docs"
    urls = f'[project.urls]\nDocumentation = "{served}"\n'
    led = read_metadata(build_wheel(tmp_path, append=urls))
    assert led.project_urls == {"Documentation": served}
    assert f"]({served}/how-to/deploy.md)" in (led.description or "")
    assert "](https://docs.example.com/reo/CHANGELOG.md)" in (led.description or "")
    assert re.findall(r"\]\((?!https://)[^)]*\)", led.description or "") == []


def test_it_is_built_without_a_compiler(tmp_path: Path) -> None:
    """The same wheel but for the library; the service says that Python does its work
    (`test_setup`).
    """
    assert files_of(build_wheel(tmp_path, CC="/bin/false")) == modules() | DATA


def test_an_installed_reo_is_set_up_and_copies(
    wheel: Path, clusters: Clusters, topic: str, tmp_path: Path
) -> None:
    """From a folder without a checkout and with an empty home: commands, the jars by checksum (from
    the checkout, for speed), a copy, and its proof.
    """
    installed = Installation.of(wheel, tmp_path)
    assert installed.reo("--version").stdout == f"reo {VERSION}\n"
    assert "orders" in installed.reo("config", "show", environment=GOOD).stdout
    until(  # the client may not have been told yet why nobody answers
        lambda: (
            "cannot be reached"
            in installed.reo(  # the code of its first error: the jars are not there
                "check", exit_code=2, environment=GOOD | {"REO_CONNECT_TIMEOUT_S": "1"}
            ).stdout
        ),
        "it says that the cluster cannot be reached",
    )

    clusters.source.create(topic, 2)
    clusters.source.write(topic, make_records(range(RECORDS), 2))
    environment = build_environment(clusters, topic, {})
    assert "run `reo setup`" in installed.reo("run", exit_code=2, environment=environment).stderr
    assert f"{topic}-proxy" not in clusters.destination.admin.list_topics(timeout=30).topics, (
        "nothing was made on the clusters"
    )

    said = installed.reo("setup", "--from", str(ROOT / "jars" / "spark")).stdout
    (folder,) = (installed.folder / "home" / ".local" / "share" / "reo").iterdir()
    # five, and that of the extra `msk` where its library is installed
    jars = len(list(folder.glob("*.jar"))) - len(list(folder.glob("reo-sink-*.jar")))
    assert jars in (5, 6)
    assert f"jars      {jars} from {ROOT / 'jars' / 'spark'}: {folder}\n" in said
    assert (folder / "spark.jsa").exists()
    assert "sink      compiled in" in said
    assert "compiled  yes" in said
    assert installed.reo("setup").stdout.count("there already") == 3

    installed.reo("run", "--stop-at-end", environment=environment)
    assert f"{RECORDS} records compared" in installed.reo("verify", environment=environment).stdout
    assert list((installed.folder / "elsewhere").iterdir()) == [], (
        "nothing is left where it was started"
    )
