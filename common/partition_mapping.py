"""Mappings: which partition of the destination topic a record goes to. `deduplicator.partitioner`
applies them.

Whatever the mapping, the records of one source partition that come to the same destination
partition keep their order.

    same              the source partition's number
    3                 partition 3, whatever the source partition
    key               as the Java client's default partitioner: murmur2 of the key, modulo the
                      number of partitions. A record without a key goes
                      to its source partition's number, modulo the number of partitions; the Java
                      client chooses any partition
    module:function   a Python function, called with a `SourceRecord` and the number of partitions,
                      that returns a partition

The number of partitions is asked for when a worker starts with a source partition (`key`: as the
client sees it), so when partitions are added to a destination, a key goes to another partition from
then on, as with every producer.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

from common.records import Headers
from common.routes import SAME

KEY = "key"
NUMBER = re.compile(r"[0-9]{1,5}")
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class SourceRecord(NamedTuple):
    """The record that a user's function receives."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


Function = Callable[[SourceRecord, int], int]


def parse_fixed_partition(mapping: str) -> int | None:
    """The partition number, when the mapping is one; None for another mapping."""
    return int(mapping) if NUMBER.fullmatch(mapping) else None


def load_function(mapping: str) -> Function:
    """The function of `module:function`; ValueError when it cannot be imported."""
    module, _, name = mapping.partition(":")
    try:
        user_function = getattr(importlib.import_module(module), name)
    except Exception as failed:  # an import can raise anything
        raise ValueError(f"{type(failed).__name__}: {failed}") from None
    return cast(Function, user_function)


def get_min_partitions(mapping: str, source_partitions: int) -> int:
    """The minimum number of partitions of the destination topic."""
    fixed = parse_fixed_partition(mapping)
    if fixed is not None:
        return fixed + 1
    return source_partitions if mapping == SAME else 1


def count_new_partitions(mapping: str, source_partitions: int) -> int:
    """The number of partitions of a destination topic that reo creates."""
    return (
        source_partitions
        if parse_fixed_partition(mapping) is None
        else get_min_partitions(mapping, source_partitions)
    )


def find_errors(mapping: str) -> Iterator[str]:
    """Why the text is no mapping; `common.settings.user_code` imports a function."""
    if (
        mapping not in (SAME, KEY)
        and parse_fixed_partition(mapping) is None
        and not FUNCTION.fullmatch(mapping)
    ):
        yield (
            f"{mapping!r} is no mapping: {SAME}, a partition's number, {KEY} or module:function is"
            " expected"
        )
