"""`reo check` looks for schema ids in the last records of the source."""

from __future__ import annotations

from tests.harness.commands import as_json
from tests.harness.copy_judge import Record
from tests.harness.findings import list_findings
from tests.harness.kafka import Clusters, make_records
from tests.harness.registry import frame, make_framed


def test_schema_ids_are_a_warning(clusters: Clusters, topic: str) -> None:
    """In keys and values of the last records of any partition; not in records without. A registry
    that does not answer is a warning too, and none has its password.
    """
    clusters.source.create(topic, 2)
    clusters.source.write(topic, make_records(range(30), 2))
    assert list_findings(as_json(clusters, topic, "check"), "warning") == []
    key = 1, Record(frame(11), None, (), 1_700_000_000_000)
    clusters.source.write(topic, [make_framed(100_001), key])
    (said,) = list_findings(as_json(clusters, topic, "check"), "warning")
    assert said.startswith("records begin with a schema id (11, 100001), which the copy keeps")
    urls = {
        f"schemas_{side}_url": "http://a:secret@127.0.0.1:1" for side in ("source", "destination")
    }
    (said,) = list_findings(as_json(clusters, topic, "check", **urls), "warning", "schemas of")
    assert "the source's registry at http://127.0.0.1:1 does not answer as expected" in said
    assert "secret" not in said
