"""What identical sources of the tests are fed: records that are alike in each of them."""

from __future__ import annotations

from tests.harness.judge import Record
from tests.harness.kafka import make_record


def test_what_is_fed_has_its_own_timestamp() -> None:
    """What makes the candidates alike: a record's timestamp is its own, not the clock's."""
    assert (
        make_record(7)
        == make_record(7)
        == Record(
            make_record(7).key, make_record(7).value, make_record(7).headers, 1_700_000_000_007
        )
    )
