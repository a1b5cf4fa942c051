"""Which records a filtered copy has: a rule on the numbers that `System._create_record` gives to
the records.

The function is slow with some of them: that long its worker is away from `poll`, while its group
rebalances.
"""

from __future__ import annotations

from common import runtime
from common.partition_mapping import SourceRecord

SLOW_S = 18.0
"""Less than `deduplicator.user_call_timeout` allows."""
SLOW_EVERY = 7


def is_value_copied(value: bytes | None) -> bool:
    """Two of three records, and every record without a value."""
    return value is None or _get_number(value) % 3 > 0


def is_record_copied(record: SourceRecord) -> bool:
    """The function for the setting `filter.function`."""
    if record.value is not None and _get_number(record.value) % SLOW_EVERY == 0:
        runtime.sleep(SLOW_S)
    return is_value_copied(record.value)


def _get_number(value: bytes) -> int:
    return int(value.split(b"-")[1])
