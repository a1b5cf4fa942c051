"""The query of a run: Spark's Kafka source, the condition of `filter.sql` as a column, the sink.

In Real-Time Mode Spark allows only the operators and sinks of a list of its own, and the sink of
stage one is not on it, so the list is switched off (`replicator.spark.session`). What the list is
for is checked here: the plan has a source of Kafka records and columns computed from each record,
and nothing that keeps, orders or joins records.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from common.errors import StageFailed
from replicator import sink_options, source, sql_filter
from replicator.runs.run import Plan, Query

SOURCE = "org.apache.spark.sql.catalyst.streaming.StreamingRelationV2"
KAFKA = "kafka"
COLUMNS = "org.apache.spark.sql.catalyst.plans.logical.Project"


def start_query(spark: SparkSession, plan: Plan) -> Query:
    """Start the run's query: Real-Time Mode to follow the source, `availableNow` to read what is
    there and end.
    """
    settings = plan.settings
    records = sql_filter.add_condition(
        source.read_records(spark, settings, plan.map_source_offsets()), settings.filter.sql
    )
    check_plan(records)
    writer = sink_options.create_writer(records, plan)
    if settings.stop_at_end:
        writer = writer.outputMode("append").trigger(availableNow=True)
    else:
        writer = writer.outputMode("update").trigger(
            realTime=f"{settings.replicator.batch_s} seconds"
        )  # type: ignore[call-overload]  # newer than its stub
    return writer.start()


def check_plan(records: DataFrame) -> None:
    """StageFailed when the records do not come from Kafka one by one."""
    node: Any = records._jdf.queryExecution().analyzed()
    while node.getClass().getName() == COLUMNS and node.subqueries().isEmpty():
        node = node.child()
    if node.getClass().getName() != SOURCE or node.sourceName() != KAFKA:
        raise StageFailed(
            f"stage one's query has {node.nodeName()}, which is no source of Kafka records: the"
            " sink could not say what it has written"
        )
