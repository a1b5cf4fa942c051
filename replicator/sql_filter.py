"""Checks the condition of `filter.sql`, and adds its result to each record as the column `kept`.

It is a column and no filter of Spark's: the sink has to see what is left out, because an envelope
says up to where everything was copied or left out (SourceRow.java, OpenEnvelope.java).

A start refuses what Spark refuses in WHERE, and conditions that can give another result when a
record is read again: functions that are not deterministic, and subqueries. A condition that is
neither true nor false (SQL's NULL) leaves a record out, as WHERE does.
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from common.errors import SettingsInvalid

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
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
KEPT = "kept"


def add_condition(records: DataFrame, condition: str) -> DataFrame:
    """The records, and whether the condition is true for them; without a condition there is no such
    column.
    """
    if not condition:
        return records
    return _fill_headers(records).withColumn(KEPT, f.coalesce(f.expr(condition), f.lit(False)))


def check_condition(spark: SparkSession, condition: str) -> None:
    """SettingsInvalid, with Spark's message, when the condition cannot be used."""
    if not condition:
        return
    no_records = spark.range(0).select(
        *(f.lit(None).cast(kind).alias(name) for name, kind in COLUMNS.items())
    )
    try:
        filtered = _fill_headers(no_records).where(f.expr(condition))
        plan = filtered._jdf.queryExecution().analyzed()
    except PySparkException as refused:
        reason = next(line for line in str(refused).splitlines() if line.strip())
        raise SettingsInvalid(f"filter.sql: Spark refuses {condition!r}: {reason}") from None
    if not plan.condition().deterministic() or not plan.subqueries().isEmpty():
        raise SettingsInvalid(
            f"filter.sql: {condition!r} can give different results for the same record: use only"
            " the record's columns, no functions like rand() and no subqueries"
        )


def _fill_headers(records: DataFrame) -> DataFrame:
    """In a condition, a record without headers has an empty array."""
    return records.withColumn("headers", f.coalesce(f.col("headers"), f.array().cast(HEADERS_TYPE)))
