"""The envelope: what was written is read again, unchanged; and whatever a value is, it is an
envelope or an EnvelopeInvalid. (`test_compiled` has C's reader beside this one.)
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.envelope import (
    HEAD,
    OFFSET_MAX,
    VERSION,
    EnvelopeInvalid,
    EnvelopeRecord,
    Head,
    compute_identity,
    encode_empty,
    parse_head,
    read_last_record,
    read_records,
)
from tests.harness.envelopes import (
    EXAMPLES,
    IDENTITY,
    Envelope,
    damage_everywhere,
    encode_examples,
    generate_envelopes,
)
from tests.harness.properties import property_test
from tools.envelope_encoder import encode

HEADER = Head(IDENTITY, 5, 0, 9, 12)
RECORD = EnvelopeRecord(10, 1000, 0, b"k", b"v", ((b"name", b"own"),))
GOLDEN = bytes.fromhex(
    # version, flags, identity, epoch, source partition
    "02 01 0123456789abcdef 0000000000700005 00000003"
    # after 41, through 46
    "0000000000000029 000000000000002e"
    # base timestamp, number of records, position of the last one
    "0000018bcfe56800 00000002 00000045"
    # 14 bytes; create time; +0 ms; after + 1; key of 1 byte; value of 2; one header, null
    "1c 01 00 02 02 6b 04 7676 02 06 6e616d 01"
    # 6 bytes; no timestamp; -1 ms; after + 3; null key; empty value; no header
    "0c 00 01 06 01 00 00"
)
GOLDEN_HEAD = Head(IDENTITY, 7 << 20 | 5, 3, 41, 46, 1_700_000_000_000, 2, 69, has_left_out=True)
GOLDEN_RECORDS = [
    EnvelopeRecord(42, 1_700_000_000_000, 0, b"k", b"vv", ((b"nam", None),)),
    EnvelopeRecord(44, 1_699_999_999_999, -1, None, b""),
]


def read(value: bytes) -> Envelope:
    """All of it."""
    head = parse_head(value)
    return head, read_records(value, head)


def strip_head(head: Head) -> Head:
    """Without the fields that depend on the records."""
    return head._replace(base_timestamp_ms=0, record_count=0, last_position=0)


def test_the_bytes_are_where_the_page_says() -> None:
    """One envelope, byte by byte: the layout cannot change without its version."""
    assert encode(GOLDEN_HEAD, GOLDEN_RECORDS) == GOLDEN
    assert read(GOLDEN) == (GOLDEN_HEAD, GOLDEN_RECORDS)


@given(generate_envelopes())
@property_test(examples=600)
def test_an_envelope_is_read_as_it_was_written(envelope: Envelope) -> None:
    """Null and empty, repeated headers and those without a value, any offset and timestamp."""
    head, records = envelope
    value = encode(head, records)
    found, found_records = read(value)
    assert found_records == records
    assert strip_head(found) == head
    assert found.record_count == len(records)
    if records:
        assert found.base_timestamp_ms == records[0].timestamp_ms
        assert read_last_record(value, found) == records[-1]


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_a_damaged_envelope_is_refused_or_another_envelope(number: int) -> None:
    """Cut anywhere, any bit changed: EnvelopeInvalid and no other exception; or each record is
    where the head says, and what was read can be written and read again.
    """
    refused = accepted = 0
    for damaged in damage_everywhere(encode_examples()[number]):
        try:
            head, records = read(damaged)
        except EnvelopeInvalid:
            refused += 1
            continue
        accepted += 1
        offsets = [record.source_offset for record in records]
        assert offsets == sorted(set(offsets))
        assert all(head.after < offset <= head.through for offset in offsets)
        again = encode(head, records)
        assert read(again) == (head._replace(last_position=read(again)[0].last_position), records)
    assert refused > 100
    assert accepted > 100, "a changed epoch is an epoch"


@given(st.binary(max_size=120) | st.binary(max_size=80).map(lambda rest: GOLDEN[:54] + rest))
@property_test(examples=1500)
def test_random_bytes_are_refused_or_an_envelope(value: bytes) -> None:
    """EnvelopeInvalid, and no other exception."""
    try:
        head, records = read(value)
    except EnvelopeInvalid:
        return
    assert head.record_count == len(records)


def test_an_empty_envelope_is_only_a_head() -> None:
    """With a stretch, or, to install an epoch, without one."""
    for after, through in ((-1, -1), (-1, 7), (41, 41)):
        head = Head(IDENTITY, 5, 0, after, through)
        value = encode(head)
        assert len(value) == HEAD.size == 54
        assert read(value) == (head, [])


def change_head(value: bytes, **fields: int) -> bytes:
    """With other numbers in its head."""
    names = ("flags", "identity", "epoch", "partition", "after", "through", "base", "count", "last")
    version, *numbers = HEAD.unpack_from(value)
    changed = [fields.get(name, number) for name, number in zip(names, numbers, strict=True)]
    return HEAD.pack(version, *changed) + value[HEAD.size :]


@pytest.mark.parametrize(
    "fields",
    [
        {"flags": 2},
        {"flags": 255},
        {"epoch": -1},
        {"partition": -1},
        {"after": -2},
        {"after": 47},
        {"through": 40},
        {"through": OFFSET_MAX},
        {"count": -1},
        {"count": 0},
        {"last": 53},
        {"last": 0},
        {"last": -1},
        {"last": 76},
    ],
)
def test_a_number_out_of_range_is_refused(fields: dict[str, int]) -> None:
    """By the head alone: the rule never sees it."""
    assert len(GOLDEN) == 76
    with pytest.raises(EnvelopeInvalid, match="out of range"):
        parse_head(change_head(GOLDEN, **fields))


@pytest.mark.parametrize("fields", [{"count": 1}, {"last": 54}, {"count": 3}, {"base": 1}])
def test_an_empty_envelope_has_nothing_that_records_have(fields: dict[str, int]) -> None:
    """And nothing behind its head."""
    empty = encode(HEADER)
    for value in (change_head(empty, **fields), empty + b"\0"):
        with pytest.raises(EnvelopeInvalid, match="out of range"):
            parse_head(value)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"count": 1}, "by its head these are 1 and 69"),
        ({"count": 3}, "by its head these are 3 and 69"),
        ({"last": 54}, "by its head these are 2 and 54"),
        ({"after": 45}, r"has source offset 48, which is not above 46 and up to 46"),
        ({"through": 43}, "has source offset 44, which is not above 42 and up to 43"),
        ({"base": -(2**63)}, "timestamp of the record at position 69 is out of range"),
    ],
)
def test_records_that_the_head_does_not_describe_are_refused(
    fields: dict[str, int], reason: str
) -> None:
    """Number, last position, stretch, timestamps."""
    value = change_head(GOLDEN, **fields)
    with pytest.raises(EnvelopeInvalid, match=reason):
        read_records(value, parse_head(value))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("00", "impossible length: 0"),
        ("01", "impossible length: -1"),
        ("10 01 00 02 01 01 00", "impossible length: 8"),
        ("0c 03 00 02 01 01 00", "no kind of timestamp: 2"),
        ("0c 01 00 00 01 01 00", "source offset 9, which is not above 9"),
        ("0c 01 00 08 01 01 00", "source offset 13, which is not above 9 and up to 12"),
        ("0c 01 00 01 01 01 00", "source offset 8, which is not above 9"),
        ("0c 01 00 02 03 01 00", "length at position 59 is out of range: -2"),
        ("0c 01 00 02 06 01 00", "length at position 59 is out of range: 3"),
        ("0c 01 00 02 01 01 01", "cannot have -1 headers"),
        ("0c 01 00 02 01 01 02", "cannot have 1 headers"),
        ("0e 01 00 02 01 01 00 00", "ends at 61, not at 62"),
        ("0a 01 00 02 01 01", "no number at position 60"),
        ("10 01 00 02 01 01 02 01 01", "has the name None"),
        ("12 01 00 02 01 01 02 02 00 01", r"has the name b'\\x00'"),
        ("12 01 00 02 01 01 02 02 ff 01", r"has the name b'\\xff'"),
        ("16 01 00 02 01 01 02 06 eda080 01", r"has the name b'\\xed"),
        ("1e 01 00 ffffffffffffffffff02 01 01 00", "more than 64 bits"),
        ("1e 01 00 ffffffffffffffffff80 01 01 00", "no number at position"),
    ],
)
def test_a_damaged_record_is_refused(body: str, reason: str) -> None:
    """Each with its reason, in the words of this layout."""
    value = change_head(encode(HEADER) + bytes.fromhex(body), count=1, last=HEAD.size)
    head = parse_head(value)
    with pytest.raises(EnvelopeInvalid, match=reason):
        read_records(value, head)
    with pytest.raises(EnvelopeInvalid):
        read_last_record(value, head)


def test_the_base_timestamp_is_that_of_the_first_record() -> None:
    """Who reads only the head takes it for one."""
    value = GOLDEN[:56] + b"\2" + GOLDEN[57:]
    with pytest.raises(EnvelopeInvalid, match="base timestamp is not that of the first record"):
        read_records(value, parse_head(value))


def test_a_number_may_be_longer_than_it_needs_to_be() -> None:
    """As in Kafka's format: 1 in ten bytes is 1."""
    body = bytes.fromhex("1e 01 00 82808080808080808000 01 01 00")
    value = change_head(encode(HEADER) + body, count=1, last=HEAD.size)
    assert [record.source_offset for record in read(value)[1]] == [10]


@pytest.mark.parametrize("value", [None, b""])
def test_no_value_is_no_envelope(value: bytes | None) -> None:
    """A tombstone."""
    with pytest.raises(EnvelopeInvalid, match="it has no value"):
        parse_head(value)


@pytest.mark.parametrize("version", [0, 1, VERSION + 1, 255, ord("{")])
def test_an_unknown_version_is_named(version: int) -> None:
    """Of an older or a newer reo, of any length: nothing of it is guessed."""
    for value in (GOLDEN, GOLDEN[:5]):
        with pytest.raises(
            EnvelopeInvalid, match=rf"version is {version}, and this version of reo reads {VERSION}"
        ):
            parse_head(bytes([version]) + value[1:])


@pytest.mark.parametrize(
    ("head", "record"),
    [
        (HEADER._replace(source_identity="0123"), None),
        (HEADER._replace(source_identity="no identity"), None),
        (HEADER._replace(epoch=2**63), None),
        (HEADER._replace(epoch=-1), None),
        (HEADER._replace(source_partition=2**31), None),
        (HEADER._replace(after=-2), None),
        (HEADER._replace(after=13), None),
        (HEADER._replace(through=OFFSET_MAX), None),
        (HEADER, RECORD._replace(timestamp_kind=2)),
        (HEADER, RECORD._replace(timestamp_ms=2**63)),
        (HEADER, RECORD._replace(source_offset=2**64)),
        (HEADER, RECORD._replace(headers=((b"\0", None),))),
        (HEADER, RECORD._replace(headers=((b"\xff", None),))),
    ],
)
def test_what_does_not_fit_is_not_written(head: Head, record: EnvelopeRecord | None) -> None:
    """One exception, whatever it is."""
    with pytest.raises(ValueError, match=r"."):
        encode(head, [record] if record else [])


def test_identities_are_equal_only_for_the_same_topic() -> None:
    """Another cluster, another creation of the topic, or, where topics have no ids, another name:
    another identity.
    """
    identity = compute_identity("cluster", "orders", "id")
    assert identity == compute_identity("cluster", "renamed-view", "id")
    others = {
        compute_identity("other", "orders", "id"),
        compute_identity("cluster", "orders", "id2"),
        compute_identity("cluster", "orders", ""),
        compute_identity("cluster", "orders2", ""),
    }
    assert len({identity, *others}) == 5


def test_an_empty_envelope_is_that_of_the_sink() -> None:
    """The same bytes as with no records; a head with records, or without an identity, is none."""
    head = Head("1d" * 8, 7, 3, 40, 41, has_left_out=True)
    assert encode_empty(head) == encode(head)
    for wrong in (
        head._replace(record_count=1),
        head._replace(source_identity="1d"),
        head._replace(source_partition=2**31),
        head._replace(through=39),
    ):
        with pytest.raises(ValueError, match=r"head|format|range|argument"):
            encode_empty(wrong)
