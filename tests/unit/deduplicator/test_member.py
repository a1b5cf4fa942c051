"""The fence of group members is read out of librdkafka's own bytes."""

from __future__ import annotations

import struct

import pytest
from confluent_kafka import Consumer

from common.errors import StageFailed
from deduplicator.group_metadata import parse_group_metadata
from deduplicator.intermediate_consumer import Intermediate
from deduplicator.partitions import Partitions

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "group", "log_level": 0}


def metadata(generation: int, member: bytes, rest: bytes = b"\0") -> bytes:
    """The bytes as librdkafka 2.16 writes them."""
    return b"CGMDv2:" + struct.pack("=i", generation) + b"group\0" + member + b"\0" + rest


@pytest.mark.parametrize("more", [{}, {"group.instance.id": "instance"}])
def test_a_consumer_that_is_no_member_has_no_generation(more: dict[str, str]) -> None:
    """Real bytes from a real consumer, dynamic and static: generation -1 before it has joined."""
    consumer = Consumer(NOWHERE | more)
    try:
        assert parse_group_metadata(consumer.consumer_group_metadata())[0] == -1
    finally:
        consumer.close()


def test_the_loop_refuses_to_commit_without_a_membership() -> None:
    """A broker takes offsets without generation unchecked, so the worker must not send any:
    StageFailed.
    """
    consumer = Consumer(NOWHERE)
    try:
        seam = Intermediate(consumer, Partitions())
        assert not seam.is_member
        with pytest.raises(StageFailed, match="generation -1"):
            seam.member_metadata.get()
    finally:
        consumer.close()


@pytest.mark.parametrize("generation", [-1, 0, 1, 10, 256, 0x67000000, 2**31 - 1])
@pytest.mark.parametrize(
    ("member", "rest"),
    [
        (b"rdkafka-1b2c", b"\0"),
        (b"rdkafka-1b2c", b"\1instance\0"),
        (b"", b"\0"),
        ("Mitglied-ü".encode(), b"\0"),
    ],
)
def test_generation_and_member_are_read_from_any_form(
    generation: int, member: bytes, rest: bytes
) -> None:
    """Generations whose bytes are NULs or letters do not shift what follows; an instance id behind
    does not matter.
    """
    assert parse_group_metadata(metadata(generation, member, rest)) == (generation, member.decode())


@pytest.mark.parametrize("unknown", [b"", b"CGMDv1:group\0", b"CGMDv3:" + bytes(20), b"x" * 40])
def test_an_unknown_form_is_a_typed_error(unknown: bytes) -> None:
    """Another version of the client: said so, nothing guessed."""
    with pytest.raises(StageFailed, match="not supported"):
        parse_group_metadata(unknown)


class Named:
    """A consumer whose group metadata is given."""

    def __init__(self, given: bytes) -> None:
        self.given = given

    def subscribe(self, *_: object, **__: object) -> None:
        """Nothing to do."""

    def consumer_group_metadata(self) -> bytes:
        """What was given."""
        return self.given


@pytest.mark.parametrize(
    ("generation", "member", "fenced"),
    [(4, b"rdkafka-1", True), (0, b"rdkafka-1", True), (-1, b"rdkafka-1", False), (4, b"", False)],
)
def test_only_a_full_membership_is_sent(generation: int, member: bytes, fenced: bool) -> None:
    """Both halves are needed: a generation and an id."""
    seam = Intermediate(Named(metadata(generation, member)), Partitions())
    if fenced:
        assert seam.member_metadata.get() == metadata(generation, member)
    else:
        with pytest.raises(StageFailed, match="not a member"):
            seam.member_metadata.get()
