"""Spark's errors about a record that cannot be carried unchanged (`replicator.wrap`); with Spark:
`tests/e2e/test_header_names.py`.
"""

from __future__ import annotations

from replicator import wrap


def test_the_errors_that_name_a_record() -> None:
    """As Spark says them; anything else that fails is none of them."""
    overflow = (
        "org.apache.spark.sql.kafka010.KafkaIllegalStateException: Record at topic a-1 partition 3"
        " offset 77 has timestamp value -9223372036854776 that overflows when converting to Spark's"
        " microsecond-precision TimestampType."
    )
    assert "a-1-3 at offset 77 has the timestamp -9223372036854776" in str(
        wrap.find_refused_record(overflow)
    )
    assert "source.start at 3=78" in str(wrap.find_refused_record(overflow))
    assert "it would arrive with another one" in str(
        wrap.find_refused_record(
            f"[USER_RAISED_EXCEPTION] {wrap.TOO_OLD} a-1-3 at offset 77 SQLSTATE: P0001"
        )
    )
    assert wrap.find_refused_record("java.lang.ArithmeticException: long overflow") is None
