"""Which filters are set (`filter.sql`, `filter.function`), and loading their functions. A filter
says which records are copied, in every topic of the service.

    filter.sql        a condition in Spark's SQL, over key, value, headers, timestamp, partition,
                      offset and topic; stage one (`replicator.sql_filter`)
    filter.function   Python functions `module:function`, called with a `SourceRecord`, that return
                      a bool; stage two (`deduplicator.record_filter`)
    filter.options    keyword arguments of these functions

A record that stage one leaves out is never sent: the frontier stays at the last record that was
sent. Over a record that stage two leaves out the frontier moves, in one transaction with the
records around it.

Both must always give the same result for the same record, because a record is read again after
every restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import orjson

from common import partition_mapping
from common.partition_mapping import SourceRecord

if TYPE_CHECKING:
    from common.settings import Settings

Filter = Callable[[SourceRecord], bool]


def list_filter_settings(settings: Settings) -> list[str]:
    """The settings with which the copy does not have exactly the source's records, by name, so far
    as they are set.
    """
    settings_by_name = {
        "filter.sql": settings.filter.sql,
        "filter.function": settings.filter.function,
        "provenance.header": settings.provenance.header,
    }
    return [name for name, value in settings_by_name.items() if value]


def split_names(text: str) -> list[str]:
    """The functions of `filter.function`, in the order in which they are called."""
    return [name.strip() for name in text.split(",")] if text.strip() else []


def load_functions(text: str, options: str) -> dict[str, Filter]:
    """The functions by name, each with its options; ValueError when one cannot be imported."""
    by_name = parse_options(options)
    return {
        name: cast(Filter, partial(partition_mapping.load_function(name), **by_name.get(name, {})))
        for name in split_names(text)
    }


def parse_options(text: str) -> dict[str, dict[str, Any]]:
    """The keyword arguments of each function, of `filter.options`."""
    return dict(orjson.loads(text)) if text else {}


def find_errors(settings: Settings) -> Iterator[str]:
    """One message for each reason why the filters, or the provenance header, cannot be used.
    `common.settings.user_code` imports the functions.
    """
    if settings.failover and settings.provenance.header:
        yield (
            "provenance.header and source.mode=failover: the header names the cluster of a record,"
            " and stage two does not know which candidate it was"
        )
    if settings.provenance.header.startswith("__"):
        yield "provenance.header may not begin with __: such headers are reo's own"
    names = split_names(settings.filter.function)
    if not names and settings.filter.on_error != "stop":
        yield (
            f"filter.on_error is {settings.filter.on_error!r}, but there is no filter.function that"
            " could fail"
        )
    options = parse_options(settings.filter.options)
    yield from (
        f"filter.options has {name!r}, which is none of filter.function"
        for name in options
        if name not in names
    )
    for name, times in Counter(names).items():
        if not partition_mapping.FUNCTION.fullmatch(name):
            yield f"filter.function: module:function is expected, not {name!r}"
        elif times > 1:
            yield f"filter.function names {name} {times} times"
        elif not isinstance(options.get(name, {}), dict):
            yield (
                f"filter.function {name} cannot be used: its filter.options are {options[name]!r},"
                " and an object is expected"
            )
