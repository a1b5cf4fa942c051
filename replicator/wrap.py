"""Wrap a record: key, value and its own headers stay as they are, and the origin header is added
after them.

The origin's bytes are those of `common.origin`, built with `concat` of casts. Spark casts an
integer to its bytes (big-endian) only when ANSI mode is off, and decides that when it resolves the
expression. So `select` is called with ANSI mode off; everything else, above all a user's
`filter.sql`, keeps the session's mode.

With one route, the fixed beginning of the origin and the name of the intermediate topic are
literals. With more routes they are looked up by source topic.

`s` is `monotonically_increasing_id()` without its upper bits, which hold the Spark partition: 0, 1,
2 … within one task. Spark refuses that expression in a stream unless
`spark.sql.streaming.unsupportedOperationCheck` is false (`replicator.spark.session`), because it is
not unique across batches. Here it must not be unique: it restarts with every attempt of a task, and
`a` distinguishes attempts. Spark puts the attempt's name ("task 0.1 in stage 2.0 (TID 7)"; a driver
gives each TID once) into the log context of the thread that runs it (`Executor.setMDCForTask`); no
expression of Spark's own has it.

The query fails at a record whose header names stage two could not read unchanged
(`_refuse_header_names`), and at one whose timestamp Spark has changed (`_refuse_old_timestamps`).
At a timestamp that Spark cannot hold at all, Spark's own source fails. Spark generates code for
this expression; with `exists` it would generate code for no part of the plan. For a record without
headers the expression only asks whether there are any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from common import origin
from common.errors import RecordRefused
from common.routes import Route

SEQUENCE_BITS = (1 << 33) - 1
"""The lower bits of monotonically_increasing_id() count the records of a task (Spark's API
documentation).
"""
ANSI = "spark.sql.ansi.enabled"
HEADERS_TYPE = "array<struct<key:string,value:binary>>"
REFUSED = "a header's name cannot be copied unchanged in the source record of"
"""The error of a query that met such a name begins with this text; partition and offset follow."""
TOO_OLD = "Spark changes timestamps before 1582-10-15, as in the source record of"
"""The same for a timestamp that Spark changes."""
ATTEMPT = "reflect('org.slf4j.MDC', 'get', 'task_name')"
NAMELESS = "this task attempt has no name: spark.log.legacyTaskNameMdc.enabled has to be false"
ATTEMPT_BITS = (1 << 63) - 1
"""Numbers of the origin are not negative."""
GREGORIAN_MS = -12_219_292_800_000
"""1582-10-15T00:00:00Z. Spark treats an earlier timestamp as a date of the Julian calendar and
moves it by days (measured).
"""


def wrap_records(records: DataFrame, identities: Mapping[Route, str], epoch: int) -> DataFrame:
    """The records in the form that is written to the intermediate topics: key, value, headers,
    partition, topic.
    """
    own = f.coalesce(
        _refuse_old_timestamps(),
        _refuse_header_names(),
        f.col("headers"),
        f.array().cast(HEADERS_TYPE),
    )
    header = f.struct(
        f.lit(origin.HEADER).alias("key"), _build_origin(epoch, identities).alias("value")
    )
    with _disable_ansi(records.sparkSession):
        return records.select(
            "key",
            "value",
            f.concat(own, f.array(header)).alias("headers"),
            "partition",
            _choose_by_topic(identities, lambda route: route.intermediate_topic).alias("topic"),
        )


@contextmanager
def _disable_ansi(session: SparkSession) -> Iterator[None]:
    before = session.conf.get(ANSI) or "true"
    session.conf.set(ANSI, "false")
    try:
        yield
    finally:
        session.conf.set(ANSI, before)


def _refuse_old_timestamps() -> Column:
    """NULL, or an expression that fails the query."""
    return f.when(
        f.col("timestamp") < f.timestamp_millis(f.lit(GREGORIAN_MS)),
        f.raise_error(_record_position(TOO_OLD)),
    )


def _record_position(message: str) -> Column:
    return _concat(
        f"{message} ", f.col("topic"), "-", f.col("partition"), " at offset ", f.col("offset")
    )


def _refuse_header_names() -> Column:
    """NULL, or an expression that fails the query: for a name with a NUL, where librdkafka's C
    string ends, and for a name with U+FFFD, which Kafka's Java client returns in place of bytes
    that are not UTF-8 (`RecordHeader.key`).
    """
    names = f.concat_ws("", f.col("headers.key"))
    changed = f.contains(names, f.lit("\0")) | f.contains(names, f.lit("\ufffd"))
    return f.when(f.col("headers").isNotNull() & changed, f.raise_error(_record_position(REFUSED)))


def find_refused_record(failure: str) -> RecordRefused | None:
    """The error of a query that failed at a record which cannot be copied unchanged; None for any
    other failure.
    """
    why = {
        REFUSED: (
            "it holds a NUL, or is not UTF-8 (or holds U+FFFD, which Java returns in place of"
            " invalid bytes)"
        ),
        TOO_OLD: "it would arrive with another one",
    }
    match = re.search(rf"({'|'.join(map(re.escape, why))}) (\S+)-(\d+) at offset (\d+)", failure)
    if match is None:
        return _find_timestamp_overflow(failure)
    message, topic, partition, offset = match.groups()
    return RecordRefused(
        f"{match[0]}: {why[message]}. Neither this record nor what follows it was written; nothing"
        ' is lost. To go on without this record, leave it out, for example with filter.sql="not'
        f" (topic = '{topic}' and partition = {partition} and offset = {offset})\"",
        names_the_record=True,
    )


def _find_timestamp_overflow(failure: str) -> RecordRefused | None:
    """The error for a timestamp outside the range of Spark's microseconds: Spark's Kafka source
    fails, before any filter.
    """
    match = re.search(
        r"Record at topic (\S+) partition (\d+) offset (\d+) has timestamp value (-?\d+) that"
        r" overflows",
        failure,
    )
    if match is None:
        return None
    topic, partition, offset, timestamp_ms = match.groups()
    return RecordRefused(
        f"the source record of {topic}-{partition} at offset {offset} has the timestamp"
        f" {timestamp_ms}, which is out of the range that Spark can read (2^63 microseconds around"
        " 1970). Neither this record nor what follows it was written; nothing is lost. A filter"
        " does not help: Spark cannot read the record. To copy what follows it, begin a copy to a"
        f" new destination.topic with source.start at {partition}={int(offset) + 1}",
        names_the_record=True,
    )


def _choose_by_topic(
    routes: Collection[Route], literal: Callable[[Route], str | bytearray]
) -> Column:
    """A text, or bytes, of the record's route."""
    if len(routes) == 1:
        return f.lit(literal(next(iter(routes))))
    return f.element_at(
        f.create_map(
            *(f.lit(part) for route in routes for part in (route.source_topic, literal(route)))
        ),
        f.col("topic"),
    )


def _build_origin(epoch: int, identities: Mapping[Route, str]) -> Column:
    sequence = f.monotonically_increasing_id().bitwiseAND(f.lit(SEQUENCE_BITS))
    numbers = (
        f.col("partition").cast("int"),
        f.col("timestampType").cast("tinyint"),
        f.col("offset"),
        f.unix_millis("timestamp"),
        _hash_attempt(),
        sequence,
    )
    fixed = _choose_by_topic(
        identities, lambda route: bytearray(origin.encode_fixed_part(identities[route], epoch))
    )
    return f.concat(fixed, *(number.cast("binary") for number in numbers))


def _hash_attempt() -> Column:
    """Which attempt of a task evaluates this. An attempt without a name fails the query."""
    name = f.coalesce(f.expr(ATTEMPT), f.raise_error(f.lit(NAMELESS)))
    batch_ms = f.unix_millis(f.current_timestamp())
    return f.xxhash64(batch_ms, name).bitwiseAND(f.lit(ATTEMPT_BITS))


def _concat(*parts: str | Column) -> Column:
    return f.concat(
        *(f.lit(part) if isinstance(part, str) else part.cast("string") for part in parts)
    )
