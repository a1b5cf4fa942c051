"""What `reo inspect` prints of topics that have nothing to print."""

from __future__ import annotations

from reo.progress.inspect import format_text

ROW = {"topic": "b-proxy", "partition": 0, "offset": 7, "bytes": 9, "old_format": True}


def test_a_topic_without_envelopes_is_said() -> None:
    """That of a healthy copy: stage two deletes what is copied. There is no table without rows."""
    empty = "nothing on a-proxy: what is copied is deleted"
    assert format_text([], ["a-proxy"], with_records=False) == empty
    assert format_text([], ["a-proxy"], with_records=True) == empty
    titles, row, line = format_text([ROW], ["a-proxy", "b-proxy"], with_records=False).splitlines()
    assert titles.startswith("intermediate ")
    assert row.startswith("b-proxy-0 ")
    assert line == empty
