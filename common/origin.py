"""The origin header: what stage one adds to a record and stage two takes off again.

One header, last, named `__origin`, holding compact JSON of ASCII digits and one fixed string. Stage one builds it inside
Spark (`replicator.wrap`, by `concat` of casts); this module is its only reader. A user's header of the same name is not
ours unless it is the last one, and it survives.

    p  source partition             e  epoch of the run that wrote the record
    o  source offset                b  batch: Spark's batch timestamp, ms
    t  source timestamp, ms         s  sequence in the Spark task: 0, 1, 2 …
    k  kind of the timestamp        i  identity of the source topic

The reader takes nothing on trust: whoever can write to the intermediate topic could otherwise move a frontier. It runs once per record,
so the types and ranges are those of `Origin`, and msgspec checks them while it decodes (a third of the time of decoding to a dict and
looking at its fields afterwards, measured). It tells `true` and 1.0 from 1; Python does not, and a frontier at `true` is committed and never read again.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

HEADER = "__origin"
OFFSET_MAX = 2**63 - 1
Natural = Annotated[int, Meta(ge=0, le=OFFSET_MAX)]


class Origin(Struct, frozen=True, gc=False):
    """One origin header; on the wire the fields have the names of the table above."""

    source_partition: Natural = field(name="p")
    source_offset: Natural = field(name="o")
    timestamp_ms: Annotated[int, Meta(ge=-OFFSET_MAX, le=OFFSET_MAX)] = field(name="t")
    timestamp_kind: Annotated[int, Meta(ge=-1, le=1)] = field(name="k")
    """Spark's `timestampType`: -1 none, 0 create time, 1 log-append time."""
    epoch: Natural = field(name="e")
    batch: Natural = field(name="b")
    sequence: Natural = field(name="s")
    source_identity: str = field(name="i")


parse = msgspec.json.Decoder(Origin).decode
"""The origin in a header's value; ValueError when it is not one, with the reason; TypeError when there is no value."""


def identity_of(cluster_id: str, topic: str, topic_id: str) -> str:
    """The short identity of a topic: equal only for the same topic, with the same creation, of the same cluster.

    Brokers before 2.8 have no topic ids (KIP-516): there the name stands in, and a recreated topic is not recognised.
    """
    return hashlib.sha256(f"{cluster_id}/{topic_id or topic}".encode()).hexdigest()[:16]
