"""Wrapping a record: key, value and its own headers untouched, and the origin header behind them.

The bytes are those of `common.origin`, built by `concat` of casts. Spark casts an integer to its bytes (big-endian) only where ANSI mode is off, and it
is decided when the expression is resolved: so `select` is called with that mode off, and all else, a user's `filter.sql` above all, keeps the session's.

The origin's fixed beginning and the intermediate topic's name are literals where there is one route, and looked up by the source topic's name where
there are more.

`s` is `monotonically_increasing_id()` without its upper bits, which hold the Spark partition: 0, 1, 2 … within one task. Spark
refuses that expression in a stream unless `spark.sql.streaming.unsupportedOperationCheck` is false (`replicator.session`),
because across batches it is not unique. Here it must not be: it starts again with every batch, and `b` tells batches apart.

The query fails at a record whose header names stage two could not read unchanged (`_refuse_header_names`), and at one whose timestamp Spark has changed
(`_refuse_old_timestamps`). At a timestamp that Spark cannot hold at all, Spark's own source fails. Spark generates code for this expression; with `exists` it
would generate code for no part of the plan. For a record without headers the expression only asks whether there are any.
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
"""The lower bits of monotonically_increasing_id() count the records of a task (Spark's API documentation)."""
ANSI = "spark.sql.ansi.enabled"
HEADERS_TYPE = "array<struct<key:string,value:binary>>"
REFUSED = "a header's name cannot be copied unchanged in the source record of"
"""Begins what a query fails with that met such a name; partition and offset follow."""
TOO_OLD = "Spark changes timestamps before 1582-10-15, as in the source record of"
"""The same for such a timestamp."""
GREGORIAN_MS = -12_219_292_800_000
"""1582-10-15T00:00:00Z. Spark takes what is before it for a date of the Julian calendar, and moves it by days (measured)."""


def wrap_records(records: DataFrame, identities: Mapping[Route, str], epoch: int) -> DataFrame:
    """The records as the intermediate topics take them: key, value, headers, partition, topic."""
    own = f.coalesce(_refuse_old_timestamps(), _refuse_header_names(), f.col("headers"), f.array().cast(HEADERS_TYPE))
    header = f.struct(f.lit(origin.HEADER).alias("key"), _build_origin(epoch, identities).alias("value"))
    with _without_ansi(records.sparkSession):
        return records.select("key", "value", f.concat(own, f.array(header)).alias("headers"), "partition",
                              _choose_by_topic(identities, lambda route: route.intermediate_topic).alias("topic"))


@contextmanager
def _without_ansi(session: SparkSession) -> Iterator[None]:
    before = session.conf.get(ANSI) or "true"
    session.conf.set(ANSI, "false")
    try:
        yield
    finally:
        session.conf.set(ANSI, before)


def _refuse_old_timestamps() -> Column:
    """NULL, or the failure of the query."""
    return f.when(f.col("timestamp") < f.timestamp_millis(f.lit(GREGORIAN_MS)), f.raise_error(_record_position(TOO_OLD)))


def _record_position(said: str) -> Column:
    return _concat(f"{said} ", f.col("topic"), "-", f.col("partition"), " at offset ", f.col("offset"))


def _refuse_header_names() -> Column:
    """NULL, or the failure of the query: at a name with a NUL, which librdkafka hands out as a C string that ends there, and at one with U+FFFD, which is what
    Kafka's Java client reads in place of bytes that are not UTF-8 (`RecordHeader.key`).
    """
    names = f.concat_ws("", f.col("headers.key"))
    changed = f.contains(names, f.lit("\0")) | f.contains(names, f.lit("\ufffd"))
    return f.when(f.col("headers").isNotNull() & changed, f.raise_error(_record_position(REFUSED)))


def find_refused_record(failure: str) -> RecordRefused | None:
    """The error for a query that failed at a record which cannot be carried unchanged; None for any other failure."""
    why = {REFUSED: "it holds a NUL, or is not UTF-8 (or holds U+FFFD, which is what Java reads in place of that)", TOO_OLD: "it would arrive with another one"}
    found = re.search(rf"({'|'.join(map(re.escape, why))}) (\S+)-(\d+) at offset (\d+)", failure)
    if found is None:
        return _find_timestamp_overflow(failure)
    said, topic, partition, offset = found.groups()
    return RecordRefused(f"{found[0]}: {why[said]}. Neither it "
                         "nor what follows it was written; nothing is lost. To go on without this record, leave it out, for example with "
                         f"filter.sql=\"not (topic = '{topic}' and partition = {partition} and offset = {offset})\"", names_the_record=True)


def _find_timestamp_overflow(failure: str) -> RecordRefused | None:
    """For a timestamp that has no room in Spark's microseconds: its source fails, in front of any filter."""
    found = re.search(r"Record at topic (\S+) partition (\d+) offset (\d+) has timestamp value (-?\d+) that overflows", failure)
    if found is None:
        return None
    topic, partition, offset, timestamp_ms = found.groups()
    return RecordRefused(f"the source record of {topic}-{partition} at offset {offset} has the timestamp {timestamp_ms}, which is out of the range that Spark "
                         "can read (2^63 microseconds around 1970). Neither it nor what follows it was written; nothing is lost. A filter does not help: the "
                         "record cannot even be read. To copy what follows it, begin a copy to a new destination.topic with source.start at "
                         f"{partition}={int(offset) + 1}", names_the_record=True)


def _choose_by_topic(routes: Collection[Route], literal: Callable[[Route], str | bytearray]) -> Column:
    """A text, or bytes, that are the route's."""
    if len(routes) == 1:
        return f.lit(literal(next(iter(routes))))
    return f.element_at(f.create_map(*(f.lit(part) for route in routes for part in (route.source_topic, literal(route)))), f.col("topic"))


def _build_origin(epoch: int, identities: Mapping[Route, str]) -> Column:
    sequence = f.monotonically_increasing_id().bitwiseAND(f.lit(SEQUENCE_BITS))
    numbers = (f.col("partition").cast("int"), f.col("timestampType").cast("tinyint"), f.col("offset"), f.unix_millis("timestamp"),
               f.unix_millis(f.current_timestamp()), sequence)
    fixed = _choose_by_topic(identities, lambda route: bytearray(origin.fixed(identities[route], epoch)))
    return f.concat(fixed, *(number.cast("binary") for number in numbers))


def _concat(*parts: str | Column) -> Column:
    return f.concat(*(f.lit(part) if isinstance(part, str) else part.cast("string") for part in parts))
