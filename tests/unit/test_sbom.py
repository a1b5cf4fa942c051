"""The list of what an installation is made of: complete, with checksums, and the same each time."""

from __future__ import annotations

import re
from typing import Any

import pytest

from reo import sbom
from tests.harness.kafka import ROOT


@pytest.fixture(scope="module")
def parts() -> list[dict[str, Any]]:
    """All of this installation's."""
    found = sbom.build_sbom()["components"]
    assert isinstance(found, list)
    return found


def test_every_locked_package_is_listed(parts: list[dict[str, Any]]) -> None:
    """Each of requirements.lock, in its version."""
    locked = dict(
        re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    )
    listed = {
        part["name"]: part["version"] for part in parts if part["purl"].startswith("pkg:pypi/")
    }
    assert locked
    assert {name: listed.get(name) for name in locked} == locked


def test_every_jar_that_was_fetched_is_listed_with_its_checksum(
    parts: list[dict[str, Any]],
) -> None:
    """The connector's, as replicator/spark/jars.sha256 has them, with the coordinates by which
    defects are reported.
    """
    fetched = dict(
        re.findall(
            r"^([0-9a-f]{64})  (\S+)\.jar$",
            (ROOT / "replicator" / "spark" / "jars.sha256").read_text(),
            re.MULTILINE,
        )
    )
    listed = {part["hashes"][0]["content"]: part["purl"] for part in parts if "hashes" in part}
    assert fetched
    assert set(fetched) <= set(listed)
    (clients,) = (
        checksum for checksum, name in fetched.items() if name.startswith("kafka-clients")
    )
    assert listed[clients].startswith("pkg:maven/org.apache.kafka/kafka-clients@")
    (zstd,) = (part["purl"] for part in parts if part["name"] == "zstd-jni")
    assert re.fullmatch(r"pkg:maven/com\.github\.luben/zstd-jni@\d+\.\d+\.\d+-\d+", zstd), (
        "a version with a hyphen in it"
    )
    assert [part["purl"] for part in parts if part["name"] == "spark-core_2.13"] == [
        "pkg:maven/org.apache.spark/spark-core_2.13@4.2.0"
    ]


def test_nothing_is_listed_twice_and_nothing_depends_on_the_moment(
    parts: list[dict[str, Any]],
) -> None:
    """References are unique, and a second look finds the same."""
    assert len({part["bom-ref"] for part in parts}) == len(parts)
    assert sbom.build_sbom()["components"] == parts
