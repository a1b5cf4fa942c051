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

from collections.abc import Callable
from functools import partial
from typing import cast

from common import partition_mapping
from common.partition_mapping import SourceRecord
from common.settings import Settings

Filter = Callable[[SourceRecord], bool]


def load_functions(settings: Settings) -> dict[str, Filter]:
    """The functions by name, each with its options; ValueError when one cannot be imported."""
    keywords = settings.filter.keywords
    return {
        name: cast(Filter, partial(partition_mapping.load_function(name), **keywords.get(name, {})))
        for name in settings.filter.functions
    }
