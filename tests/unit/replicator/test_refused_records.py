"""The errors of a query about a record that cannot be carried unchanged; with Spark:
`tests/e2e/test_sink.py`.
"""

from __future__ import annotations

from replicator import refused_records
from replicator.spark import sink_jar


def test_the_errors_that_name_a_record() -> None:
    """As Spark says them; anything else that fails is none of them."""
    overflow = (
        "org.apache.spark.sql.kafka010.KafkaIllegalStateException: Record at topic a-1 partition 3"
        " offset 77 has timestamp value -9223372036854776 that overflows when converting to Spark's"
        " microsecond-precision TimestampType."
    )
    assert "a-1-3 at offset 77 has the timestamp -9223372036854776" in str(
        refused_records.find_refused_record(overflow)
    )
    assert "source.start at 3=78" in str(refused_records.find_refused_record(overflow))
    assert "it would arrive with another one" in str(
        refused_records.find_refused_record(
            f"java.lang.IllegalArgumentException: {refused_records.TOO_OLD} a-1-3 at offset 77"
        )
    )
    assert (
        refused_records.find_refused_record("java.lang.ArithmeticException: long overflow") is None
    )


def test_the_sink_says_the_same_texts() -> None:
    """They are written in two languages."""
    source = (sink_jar.SOURCES / "SourceRow.java").read_text()
    assert all(f'"{text}"' in source for text in refused_records.REASONS)
