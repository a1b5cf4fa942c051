"""Mappings: which partition of the destination topic a record goes to. `deduplicator.partitioner` applies them.

Whatever the mapping, the records of one source partition that come to the same destination partition keep their order.

    same              the source partition's number
    3                 partition 3, whatever the source partition
    key               what the Java client's default partitioner says of the key: murmur2 of it, modulo the number of partitions. A record without a
                      key goes to its source partition's number, modulo the number of partitions: the Java client takes any
    module:function   a Python function, called with a `SourceRecord` and the number of partitions, that returns a partition

The number of partitions is asked for when a worker starts with a source partition (`key`: as the client sees it), so a destination whose
partitions are added to has each key in another place from then on, as with every producer.
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
    """The record as a user's function gets it."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


Function = Callable[[SourceRecord, int], int]


def number(mapping: str) -> int | None:
    """The partition that all records go to; None with another mapping."""
    return int(mapping) if NUMBER.fullmatch(mapping) else None


def function(mapping: str) -> Function:
    """The function of `module:function`; ValueError when it cannot be imported."""
    module, _, name = mapping.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as failed:  # an import can raise anything
        raise ValueError(f"{type(failed).__name__}: {failed}") from None
    return cast(Function, found)


def least_partitions(mapping: str, source_partitions: int) -> int:
    """The least number of partitions that the destination must have."""
    fixed = number(mapping)
    if fixed is not None:
        return fixed + 1
    return source_partitions if mapping == SAME else 1


def partitions_to_make(mapping: str, source_partitions: int) -> int:
    """The number of partitions with which a new destination is created."""
    return source_partitions if number(mapping) is None else least_partitions(mapping, source_partitions)


def validation_errors(mapping: str) -> Iterator[str]:
    """One message for each reason why the mapping cannot be used."""
    if mapping in (SAME, KEY) or number(mapping) is not None:
        return
    if not FUNCTION.fullmatch(mapping):
        yield f"{mapping!r} is no mapping: {SAME}, a partition's number, {KEY} or module:function is expected"
        return
    yield from (f"the mapping {mapping} cannot be used: {reason}" for reason in uncallable(mapping))


def uncallable(text: str) -> Iterator[str]:
    """Why the function of `module:function` cannot be called."""
    try:
        if not callable(function(text)):
            yield "it cannot be called"
    except ValueError as reason:
        yield str(reason)
