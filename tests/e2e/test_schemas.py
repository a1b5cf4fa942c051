"""Schemas beside the copy, with a real registry: the ways of docs/how-to/schemas.md keep the ids,
and `reo check` says whether they did.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Start
from tests.harness.commands import as_json
from tests.harness.findings import list_findings
from tests.harness.kafka import COPY_S, Clusters
from tests.harness.registry import OWN, Registry, make_framed
from tests.harness.service import stopped

pytestmark = pytest.mark.long


def test_a_registry_on_the_copy_of_its_topic_has_the_same_ids(
    clusters: Clusters, topic: str, start: Start, tmp_path: Path
) -> None:
    """And `reo check` sees it; then what is missing there, and what is another schema. The registry
    writes to its topic at its start: until then it may be copied, afterwards that is a stop.
    """
    journal, words = f"{topic}-journal", {"topics": f"{topic},{topic}-journal"}
    clusters.source.create(topic, 1)
    clusters.source.create(journal, 1)
    copied = words | {"application": f"reo-{topic}", "source_topic": ""}
    with Registry(tmp_path, "source", clusters.source, journal) as source:
        for number in range(3):
            source.register(f"other-{number}", f"field_{number}")
        first = source.register(f"{topic}-value", "a")
        assert first > 1
        clusters.source.write(topic, [make_framed(first)])
        start(topic, "--stop-at-end", **copied).wait_for_exit(COPY_S)
        assert clusters.differences(topic) == clusters.differences(journal) == []

        with Registry(tmp_path, "destination", clusters.destination, journal) as destination:
            assert destination.list_schemas() == source.list_schemas() != []
            urls = {"schemas_source_url": source.url, "schemas_destination_url": destination.url}

            def check(**more: str) -> dict[str, Any]:
                return as_json(clusters, topic, "check", **more)

            (said,) = list_findings(check(), "warning", "schemas of")
            assert f"begin with a schema id ({first})" in said
            (said,) = list_findings(check(**urls), "ok", "schemas of")
            assert said.endswith(f"the same schemas under the ids {first}")

            second = source.register(f"{topic}-value", "a", "b")
            clusters.source.write(topic, [make_framed(second)])
            (said,) = list_findings(check(**urls), "warning", "schemas of")
            assert f"schema {second} is missing in the destination's registry" in said
            assert destination.register("another", "c") == second
            (said,) = list_findings(check(**urls), "warning", "schemas of")
            assert f"schema {second} is another one in the destination's registry" in said
        stopped(start(topic, **copied), 25, "ForeignWriter", journal)


def test_what_apicurio_exports_is_imported_with_its_ids(tmp_path: Path) -> None:
    """By its own API; Confluent's mode IMPORT is accepted and not heeded."""
    with Registry(tmp_path, "source") as source, Registry(tmp_path, "destination") as destination:
        for number in range(3):
            source.register(f"orders-{number}", f"field_{number}")
        exported = source.send("GET", f"{OWN}/admin/export", None, "zip")
        destination.send("POST", f"{OWN}/admin/import", exported, "zip")
        assert destination.list_schemas() == source.list_schemas() != []
        destination.call("PUT", "/mode/later", {"mode": "IMPORT"})
        assert destination.register("later", "d", id=500, version=7) != 500
