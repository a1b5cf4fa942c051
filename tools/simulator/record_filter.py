"""Which records a filtered copy has: rules on the numbers that `Clusters._create_record` gives to
the records. No rule leaves out a record without a value.

The function is slow with some of them: that long its worker is away from `poll`, while its group
rebalances.
"""

from __future__ import annotations

from common import clock
from common.partition_mapping import SourceRecord

SLOW_S = 18.0
"""Less than `deduplicator.user_call_timeout` allows."""
SLOW_EVERY = 7


CONDITIONS = ("", "value % 3 > 0", "value % 2 > 0")
"""What `filter.sql` can be. The simulated Spark decides as `is_row_copied` does."""


def is_row_copied(condition: str, value: bytes | None) -> bool:
    """Whether a record passes one of CONDITIONS."""
    if not condition or value is None:
        return True
    return _get_number(value) % (3 if condition == CONDITIONS[1] else 2) > 0


def is_value_copied(value: bytes | None) -> bool:
    """Two of three records, and every record without a value."""
    return value is None or _get_number(value) % 3 > 0


def is_record_copied(record: SourceRecord) -> bool:
    """The function for the setting `filter.function`."""
    if record.value is not None and _get_number(record.value) % SLOW_EVERY == 0:
        clock.sleep(SLOW_S)
    return is_value_copied(record.value)


def _get_number(value: bytes) -> int:
    return int(value.split(b"-")[1])
