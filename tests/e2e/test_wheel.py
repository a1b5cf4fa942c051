"""The wheel, as `pipx install` and `uv tool install` take it: what is in it, and that it copies."""

from __future__ import annotations

import re
from pathlib import Path
from zipfile import ZipFile

import pytest

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


def test_the_wheel_has_the_service_and_nothing_else(wheel: Path) -> None:
    """Every module, the data that they read, and stage two's library, for every Python 3 on this
    kind of machine.
    """
    libraries = {name for name in files_of(wheel) if name.endswith(".so")}
    assert len(libraries) == 1
    assert files_of(wheel) - libraries == modules() | DATA
    assert wheel.name.startswith(f"reo-{VERSION}-py3-none-linux_")


def test_links_of_the_readme_work_on_a_package_index(wheel: Path) -> None:
    """None is relative: an index has README and no other file of the repository."""
    with ZipFile(wheel) as archive:
        text = archive.read(f"reo-{VERSION}.dist-info/METADATA").decode()
    assert "](https://reo.example.com/docs/how-to/deploy.md)" in text
    assert re.findall(r"\]\((?!https://)[^)]*\)", text) == []


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
    assert f"jars      5 from {ROOT / 'jars' / 'spark'}: {folder}\n" in said
    assert (folder / "spark.jsa").exists()
    assert "sink      compiled in" in said
    assert "compiled  yes" in said
    assert installed.reo("setup").stdout.count("there already") == 3

    installed.reo("run", "--stop-at-end", environment=environment)
    assert f"{RECORDS} records compared" in installed.reo("verify", environment=environment).stdout
    assert list((installed.folder / "elsewhere").iterdir()) == [], (
        "nothing is left where it was started"
    )
