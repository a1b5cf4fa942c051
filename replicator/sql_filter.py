"""The condition of `filter.sql` (`common.filters`), applied between reading and wrapping.

The sequence number counts what is written, so the condition has to stand below it in Spark's plan. It does: Spark moves filters towards the source, never
past a column that is not deterministic, and `tests/test_filter_sql.py` looks at the numbers.

Refused at the start is what Spark refuses, and what could say something else of a record that is read again: functions that are not deterministic, and
subqueries. A condition that is neither true nor false (SQL's NULL) leaves a record out, as WHERE does.
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from common.errors import SettingsInvalid
from replicator.wrap import HEADERS_TYPE

COLUMNS = {"key": "binary", "value": "binary", "topic": "string", "partition": "int", "offset": "bigint", "timestamp": "timestamp", "timestampType": "int",
           "headers": HEADERS_TYPE}
"""What Spark's Kafka source reads (Structured Streaming + Kafka Integration Guide)."""


def apply_filter(records: DataFrame, condition: str) -> DataFrame:
    """The records for which the condition is true; all of them when it is empty. A record without headers has an empty array of them."""
    if not condition:
        return records
    return records.withColumn("headers", f.coalesce(f.col("headers"), f.array().cast(HEADERS_TYPE))).where(f.expr(condition))


def check_condition(spark: SparkSession, condition: str) -> None:
    """SettingsInvalid, with what Spark says, when the condition cannot be used."""
    if not condition:
        return
    nothing = spark.range(0).select(*(f.lit(None).cast(kind).alias(name) for name, kind in COLUMNS.items()))
    try:
        plan = apply_filter(nothing, condition)._jdf.queryExecution().analyzed()
    except PySparkException as refused:
        said = next(line for line in str(refused).splitlines() if line.strip())
        raise SettingsInvalid(f"filter.sql: Spark does not take {condition!r}: {said}") from None
    if not plan.condition().deterministic() or not plan.subqueries().isEmpty():
        raise SettingsInvalid(f"filter.sql: {condition!r} can say different things of the same record: use only what the record itself has, "
                              "no functions like rand() and no subqueries")
