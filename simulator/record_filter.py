"""Which records a filtered copy has: a rule on the numbers that `System._create_record` gives to
the records.
"""

from __future__ import annotations

from common.partition_mapping import SourceRecord


def is_value_copied(value: bytes | None) -> bool:
    """Two of three records, and every record without a value."""
    return value is None or int(value.split(b"-")[1]) % 3 > 0


def is_record_copied(record: SourceRecord) -> bool:
    """The function for the setting `filter.function`."""
    return is_value_copied(record.value)
