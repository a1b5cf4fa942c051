"""Filters: which records are copied. They apply to every topic of the service.

    filter.sql        a condition in Spark's SQL, over key, value, headers, timestamp, partition, offset and topic; stage one (`replicator.sql_filter`)
    filter.function   a Python function `module:function`, called with a `SourceRecord`, that returns a bool; stage two (`deduplicator.record_filter`)

A record that stage one leaves out is never sent: the frontier stays at the last record that was sent. Over a record that stage two leaves out the frontier
moves, in one transaction with the records around it.

Both must always give the same result for the same record, because a record is read again after every restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import cast

from common import mapping
from common.mapping import SourceRecord

SETTINGS = ("filter.sql", "filter.function", "provenance.header")
"""With any of these settings the copy does not have exactly the source's records."""
Filter = Callable[[SourceRecord], bool]


def function(text: str) -> Filter:
    """The function of `module:function`; ValueError when it cannot be imported."""
    return cast(Filter, mapping.function(text))


def validation_errors(settings: Mapping[str, str], failover: bool) -> Iterator[str]:
    """One message for each reason why the filters, or the provenance header, cannot be used."""
    text, on_error = settings["filter.function"], settings["filter.on_error"]
    if failover and settings["provenance.header"]:
        yield "provenance.header and source.mode=failover: the header names the cluster of a record, and stage two does not know which candidate it was"
    if settings["provenance.header"].startswith("__"):
        yield "provenance.header may not begin with __: such headers are reo's own"
    if not text:
        if on_error != "stop":
            yield f"filter.on_error is {on_error!r}, but there is no filter.function that could fail"
    elif not mapping.FUNCTION.fullmatch(text):
        yield f"filter.function: module:function is expected, not {text!r}"
    else:
        yield from (f"filter.function {text} cannot be used: {reason}" for reason in mapping.uncallable(text))
