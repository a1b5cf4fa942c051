"""Where the fuzzer starts from: values as the service itself encodes them; and the words that it
may put in.

A fuzzer that starts from nothing spends its time on learning JSON. Starting from real values, it
changes what is in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from common.envelope import HEAD, OFFSET_MAX, EnvelopeRecord, Head
from common.frontier import KEPT, Frontier, LastRecord
from common.settings import client_options, foreign_variables, guarded_options
from common.settings.schema import SETTINGS
from tools.envelope_encoder import encode
from tools.fuzz.messages import FOREIGN, IDENTITY, OLD_FORMAT, TOMBSTONE, frame
from tools.fuzz.rounds import REQUIRED_SETTINGS
from tools.fuzz.targets import COMMITTED_FRONTIER, FILE_SUFFIXES

EPOCH = COMMITTED_FRONTIER.epoch


def build_envelope(
    partition: int = 0,
    after: int = 41,
    through: int = 46,
    offsets: Sequence[int] = (42, 43, 46),
    epoch: int = EPOCH,
    has_left_out: bool = False,
    identity: str = IDENTITY,
) -> bytes:
    """What stage one's sink writes; the records have all that a record can have."""
    records = (
        EnvelopeRecord(0, 1_357_034_400_000, 0, b"key", b"value", (("h\u00e9".encode(), b"1"),)),
        EnvelopeRecord(0, 1_357_034_400_007, 0, None, b"", ((b"a", None), (b"a", b""))),
        EnvelopeRecord(0, 0, 1, b"", None),
        EnvelopeRecord(0, -1, -1, b"k" * 70, b"v" * 200, ((b"", b"x" * 64),)),
    )
    head = Head(identity, epoch, partition, after, through, has_left_out=has_left_out)
    return encode(
        head,
        [
            records[number % len(records)]._replace(source_offset=offset)
            for number, offset in enumerate(offsets)
        ],
    )


ENVELOPES = (
    build_envelope(),
    build_envelope(offsets=()),
    build_envelope(3, -1, -1, (), EPOCH + 1),
    build_envelope(1, -1, OFFSET_MAX - 1, (0, 41, 42, 44, OFFSET_MAX - 1), 2**63 - 1),
    build_envelope(0, 46, 60, range(47, 57), has_left_out=True),
    build_envelope(2**31 - 1, 40, 44, (44,), 0),
)
BATCHES = (
    frame(0, build_envelope()) + frame(1, build_envelope(1)) + frame(0, ENVELOPES[4]),
    # a run, a zombie
    frame(2, build_envelope(2, -1, -1, (), EPOCH + 1))
    + frame(2, build_envelope(2))
    + frame(2, build_envelope(2, 41, 45, (43, 44), EPOCH + 1)),
    # a duplicate, a part of one, one that ends with records that are left out
    frame(0, build_envelope(0, 30, 41, (31, 41)))
    + frame(0, build_envelope(0, 39, 46, (40, 41, 42, 43)))
    + frame(0, build_envelope(0, 46, 50, (), has_left_out=True)),
    # a gap, and what fills it
    frame(0, ENVELOPES[4]) + frame(0, build_envelope()) + frame(0, ENVELOPES[4]),
    frame(1, b"", OLD_FORMAT) + frame(1, build_envelope(1)),
    frame(3, build_envelope(3)),
    frame(0, build_envelope(1)),
    frame(0, build_envelope(), FOREIGN),
    frame(0, b"", TOMBSTONE),
    frame(0, build_envelope(identity="f" * 16)),
)
FRONTIERS = (
    COMMITTED_FRONTIER,
    Frontier(-1, 0, IDENTITY, 1, "", -1, 0),
    Frontier(
        2**63 - 1,
        2**63 - 1,
        '\u00e9\u2028\U0001f600"\\',
        2**31 - 1,
        "A" * 22,
        2**63 - 1,
        90_000,
        2**63 - 1,
        LastRecord(2**63 - 1, "0" * 16, left_out=True),
        "0" * 16 + KEPT,
        is_known_written=True,
    ),
)
FRONTIER_OF_VERSION_1 = (
    b'{"v":1,"f":41,"e":1882255441297409381,"l":[41,1790000000123,7],"h":[43,57],'
    b'"i":"9f86d081884c7d65","c":4,"t":"q7aN1Y0hQ2aD9v1m4bC3xA","d":39,"n":2,'
    b'"r":[40,"5f1d7a84db00d2fc",true],"w":"5f1d7a84db00d2fc+","p":3,'
    b'"m":"Zr2c0u4uT3W1pF5y8n7bQg","k":true}'
)
ENVIRONMENTS = (
    b"REO_APPLICATION=copy\0REO_STOP_AT_END=yes\0REO_METRICS_PORT=0",
    b"APPLICATION_NAME=copy\0KAFKA_CLUSTERS_SOURCE_TOPIC=orders\0KAFKA_CONFIG_CONSUMER_AUTO_RESET=latest\0STREAMS_NUM_STREAM_THREADS=3",
    b"REO_SETTINGS_FILE=/nowhere/reo.toml\0REO_PORT=tcp://10.0.0.1:7081\0KAFKA_CLUSTERS_SERVICE_HOST=10.0.0.1",
    b"\0".join(
        f"{setting.environment[0]}={setting.default}".encode()
        for setting in SETTINGS
        if setting.default not in (None, "")
    ),
    b"REO_SOURCE_CONSUMER_OPTIONS_CLIENT_RACK=a\0REO_DESTINATION_PRODUCER_OPTIONS_LOG__LEVEL=7\0REO_ALLOW_UNSAFE_OPTIONS=true\0REO_SOURCE_START=0=1,1=2",
    b"INPUT_TOPIC=orders\0OUTPUT_TOPIC=orders-copy\0NEWEST_OFFSET=false\0PROM_SERVER_ADDR=:9095\0REO_SOURCE_START=2026-01-31T08:00:00Z",
)
TREE: Mapping[str, object] = {
    "application": "2024",
    "source": {"start": 1_700_000_000_000},
    "log": {"level": "DEBUG"},
    "replicator": {"master": "spark://a:7077"},
    "stop_at_end": True,
}
FILES = (
    (
        b'application = "2024"\nconnect_timeout_s = 5\nstop_at_end = true\n[source]\nstart ='
        b' "latest"\n[log]\nlevel = "DEBUG"\n'
    ),
    (
        b'application: "2024"\nstop_at_end: yes\nintermediate: {consumer_options: {a.b: c, d: {e:'
        b" 7}}}\nsource: {start: 1700000000000}\nlog:\n  level: DEBUG\n"
    ),
    orjson.dumps(TREE),
    b"application = 2024\n[source]\nbootstrap_servers = a:1,b:2\n[log]\nlevel = DEBUG\n",
)
SEEDS: Mapping[str, tuple[bytes, ...]] = {
    # first, from and to which offset (all, a part), and in which way
    "envelope": tuple(
        bytes([choice]) + envelope for envelope in ENVELOPES for choice in (0, 0x10, 0x15)
    ),
    "records": tuple(bytes([choice]) + batch for batch in BATCHES for choice in (2, 15)),
    "metadata": (
        *(frontier.encode().encode() for frontier in FRONTIERS),
        FRONTIER_OF_VERSION_1,
    ),
    "environment": ENVIRONMENTS,
    "settings_file": tuple(bytes([number]) + file for number, file in enumerate(FILES)),
}
_JSON = (
    b"true",
    b"false",
    b"null",
    b"1.0",
    b"-1",
    b"-0",
    b"1e3",
    b"9223372036854775807",
    b"9223372036854775808",
    b"[]",
    b"{}",
    b'"',
    b"\\ud800",
    b"\\u0000",
    b":",
    b",",
)
_NUMBERS = (
    *(
        sign + rest * length
        for sign, rest in ((b"\x7f", b"\xff"), (b"\x80", b"\0"), (b"\xff", b"\xff"), (b"\0", b"\0"))
        for length in (0, 3, 7)
    ),
    b"\x01",
    b"\x02",
)
"""The ends of the ranges of integers, in network byte order."""
_NAMES = (
    *(name.encode() + b"=" for setting in SETTINGS for name in setting.environment),
    *(name.encode() + b"=" for name in sorted(foreign_variables.VARIABLES)),
    *(client_options.get_variable_prefix(name).encode() for name in guarded_options.GUARDED),
)
_KEYS = tuple(
    part.encode()
    for part in sorted({part for setting in SETTINGS for part in setting.name.split(".")})
)
_VALUES = (
    b"@none",
    b"@int ",
    b"@json ",
    b"@format {this.X}",
    b"@read_file /etc/hostname",
    b"dynaconf_merge",
    b"dynaconf_include",
    b"\xff",
    b"\0",
    b"\n[source]\n",
    b"topic",
    b"None",
    b"- ",
    b": ",
    b" = ",
    b"&a ",
    b"*a",
    b"<<: ",
    *(choice.encode() for setting in SETTINGS for choice in setting.choices if choice),
)
_VARINTS = tuple(
    bytes.fromhex(text)
    for text in ("01", "03", "80", "8001", "ffff03", "ff" * 9 + "01", "fe" + "ff" * 8 + "01")
)
"""The ends of the ranges of numbers in records."""
_ENVELOPE_WORDS = (*_NUMBERS, *_VARINTS, *(value[HEAD.size :] for value in ENVELOPES[:1]))
WORDS: Mapping[str, tuple[bytes, ...]] = {
    "envelope": _ENVELOPE_WORDS,
    "records": (
        *_ENVELOPE_WORDS,
        *(frame(0, value) for value in ENVELOPES),
        *(frame(partition, b"", kind) for partition in range(4) for kind in range(4)),
    ),
    "metadata": tuple(f'"{name}":'.encode() for name in "vfegictdnrwk") + _JSON,
    "environment": _NAMES + _VALUES + tuple(value.encode() for value in REQUIRED_SETTINGS.values()),
    "settings_file": _KEYS + _VALUES + _JSON + tuple(form.encode() for form in FILE_SUFFIXES),
}
