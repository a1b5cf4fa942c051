"""The origin header: what stage one adds to a record and stage two takes off again.

One header, last, named `__origin`, holding compact JSON of ASCII digits and one fixed string. Stage one builds it inside
Spark (`replicator.wrap`, by `concat` of casts); this module is its only reader. A user's header of the same name is not
ours unless it is the last one, and it survives.

    p  source partition             e  epoch of the run that wrote the record
    o  source offset                b  batch: Spark's batch timestamp, ms
    t  source timestamp, ms         s  sequence in the Spark task: 0, 1, 2 …
    k  kind of the timestamp        i  identity of the source topic

The reader takes nothing on trust: whoever can write to the intermediate topic could otherwise move a frontier. But it runs
once per record, so the checks are two expressions. Kinds are compared by identity: `true` counts as 1 in Python and 1.0 equals
it, and a frontier at `true` is committed and never read again. `|` keeps the sign of each of its numbers.
"""

from __future__ import annotations

import hashlib
from operator import itemgetter
from typing import TypedDict

import orjson

HEADER = "__origin"
OFFSET_MAX = 2**63 - 1
TIMESTAMP_KINDS = (-1, 0, 1)
"""Spark's `timestampType`: none, create time, log-append time."""

FIELDS = itemgetter("p", "o", "t", "k", "e", "b", "s", "i")
"""All of them at once, in C: it is done for every record."""


class Origin(TypedDict):
    """One parsed origin header; the keys are the wire's."""

    p: int
    o: int
    t: int
    k: int
    e: int
    b: int
    s: int
    i: str


def parse(header: bytes | None) -> Origin:
    """The origin in a header's value; ValueError when it is not one, with the reason."""
    if header is None:
        raise ValueError("the header has no value")
    origin: Origin = orjson.loads(header)
    try:
        p, o, t, k, e, b, s, i = FIELDS(origin)
    except (KeyError, TypeError, IndexError) as wrong:
        raise ValueError(f"a field is missing: {wrong}") from None
    of_kind = type(p) is type(o) is type(t) is type(k) is type(e) is type(b) is type(s) is int and type(i) is str
    if not of_kind or not 0 <= p | o | e | b | s <= OFFSET_MAX or not -OFFSET_MAX <= t <= OFFSET_MAX or k not in TIMESTAMP_KINDS:
        raise ValueError("a field is not of its kind or out of range")
    return origin


def identity_of(cluster_id: str, topic: str, topic_id: str) -> str:
    """The short identity of a topic: equal only for the same topic, with the same creation, of the same cluster.

    Brokers before 2.8 have no topic ids (KIP-516): there the name stands in, and a recreated topic is not recognised.
    """
    return hashlib.sha256(f"{cluster_id}/{topic_id or topic}".encode()).hexdigest()[:16]
