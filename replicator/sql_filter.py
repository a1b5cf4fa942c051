"""Checks the condition of `filter.sql` (`common.filters`), and applies it between reading and
wrapping.

The sequence number counts written records, so the filter must run before it in Spark's plan. It
does: Spark moves filters towards the source, and never past a column that is not deterministic;
`tests/e2e/test_filter_sql.py` checks the numbers.

A start refuses what Spark refuses, and conditions that can give another result when a record is
read again: functions that are not deterministic, and subqueries. A condition that is neither true
nor false (SQL's NULL) leaves a record out, as WHERE does.
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from common.errors import SettingsInvalid
from replicator.wrap import HEADERS_TYPE

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": HEADERS_TYPE,
}
"""The columns of Spark's Kafka source (Structured Streaming + Kafka Integration Guide)."""


def apply_filter(records: DataFrame, condition: str) -> DataFrame:
    """The records for which the condition is true; all records when it is empty. In a condition, a
    record without headers has an empty array.
    """
    if not condition:
        return records
    return records.withColumn(
        "headers", f.coalesce(f.col("headers"), f.array().cast(HEADERS_TYPE))
    ).where(f.expr(condition))


def check_condition(spark: SparkSession, condition: str) -> None:
    """SettingsInvalid, with Spark's message, when the condition cannot be used."""
    if not condition:
        return
    no_records = spark.range(0).select(
        *(f.lit(None).cast(kind).alias(name) for name, kind in COLUMNS.items())
    )
    try:
        plan = apply_filter(no_records, condition)._jdf.queryExecution().analyzed()
    except PySparkException as refused:
        reason = next(line for line in str(refused).splitlines() if line.strip())
        raise SettingsInvalid(f"filter.sql: Spark refuses {condition!r}: {reason}") from None
    if not plan.condition().deterministic() or not plan.subqueries().isEmpty():
        raise SettingsInvalid(
            f"filter.sql: {condition!r} can give different results for the same record: use only"
            " the record's columns, no functions like rand() and no subqueries"
        )
