"""Consumer group metadata as librdkafka serializes it (rd_kafka_consumer_group_metadata_write);
applications pass it from the consumer to the producer.
"""

from __future__ import annotations

import sys

MAGIC = b"CGMDv2:"


def serialize_metadata(
    group: str, generation: int, member_id: str, instance_id: str | None
) -> bytes:
    """The magic, the generation in the host's order, and texts that end with NUL; a flag says
    whether there is no instance id.
    """
    instance = b"\x01" if instance_id is None else b"\x00" + instance_id.encode() + b"\0"
    return (
        MAGIC
        + generation.to_bytes(4, sys.byteorder, signed=True)
        + f"{group}\0{member_id}\0".encode()
        + instance
    )


def parse_metadata(metadata: bytes) -> tuple[str, tuple[int, str, str | None]]:
    """The group, and generation, member id and instance id."""
    begin = len(MAGIC)
    generation = int.from_bytes(metadata[begin : begin + 4], sys.byteorder, signed=True)
    group, member_id, rest = metadata[begin + 4 :].split(b"\0", 2)
    return group.decode(), (
        generation,
        member_id.decode(),
        rest[1:-1].decode() if rest[:1] != b"\x01" else None,
    )
