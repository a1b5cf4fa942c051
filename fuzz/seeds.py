"""Where the fuzzer starts from: values as the service itself encodes them; and the words that it
may put in.

A fuzzer that starts from nothing spends its time on learning JSON. Starting from real values, it
changes what is in them.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from common.frontier import KEPT, Frontier, Hole, LastRecord, Link, RuleState
from common.origin import Origin, encode
from common.settings import client_options, guarded_options, kafka_topic_mirror_variables
from common.settings.setting_index import SETTINGS
from fuzz.messages import IDENTITY, frame
from fuzz.targets import COMMITTED_FRONTIER, FILE_SUFFIXES, REQUIRED_SETTINGS

EPOCH = COMMITTED_FRONTIER.rule.epoch


def origin(
    partition: int = 0,
    source_offset: int = 11,
    epoch: int = EPOCH,
    attempt: int = 7,
    sequence: int = 4,
    timestamp_ms: int = 1_357_034_400_000,
) -> bytes:
    """What `replicator.wrap` builds inside Spark."""
    return encode(
        Origin(partition, source_offset, timestamp_ms, 0, epoch, attempt, sequence, IDENTITY)
    )


ORIGINS = (
    origin(),
    origin(3, 2**63 - 1, 2**63 - 1, 2**63 - 1, 2**33 - 1, -1),
    origin(timestamp_ms=0),
    origin(1, 0, EPOCH + 1, 0, 0),
)
BATCHES = (
    b"".join(
        (frame(0, 0, origin()), frame(1, 1, origin(1)), frame(0, 0, origin(0, 12, sequence=5)))
    ),
    # a run, a zombie
    b"".join(
        (
            frame(2, 1, origin(2, 30, EPOCH + 1, 9, 0)),
            frame(2, 0, origin(2, 31, EPOCH + 1, 9, 1)),
            frame(2, 0, origin(2, 40)),
        )
    ),
    # a duplicate becomes the link
    b"".join(
        (
            frame(0, 0, origin(0, 9, attempt=8, sequence=0)),
            frame(0, 0, origin(0, 11, attempt=8, sequence=1)),
        )
    ),
    # a hole, and a batch that cannot begin after it
    b"".join(
        (frame(0, 0, origin(0, 15, sequence=9)), frame(0, 0, origin(0, 16, attempt=8, sequence=0)))
    ),
    frame(3, 0, origin(3)),
    frame(0, 2, origin()),
    frame(0, 3, b""),
    frame(0, 3, b"x"),
    frame(1, 0, origin(0)),
)
FRONTIERS = (
    COMMITTED_FRONTIER,
    Frontier(RuleState(-1, 0, None), IDENTITY, 1, "", -1, 0),
    Frontier(
        RuleState(2**63 - 1, 2**63 - 1, Link(2**63 - 1, 2**63 - 1, 2**33 - 1), Hole(0, 2**63 - 1)),
        '\u00e9\u2028\U0001f600"\\',
        2**31 - 1,
        "A" * 22,
        2**63 - 1,
        90_000,
        LastRecord(2**63 - 1, "0" * 16, left_out=True),
        "0" * 16 + KEPT,
        2**31 - 1,
        "B" * 22,
        is_known_written=True,
    ),
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
    "origin_header": ORIGINS,
    "records": BATCHES,
    "compiled_scan": BATCHES,
    "metadata": tuple(frontier.encode().encode() for frontier in FRONTIERS),
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
    *(name.encode() + b"=" for name in sorted(kafka_topic_mirror_variables.VARIABLES)),
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
    *(choice.encode() for setting in SETTINGS for choice in setting.choices),
)
_BATCH_WORDS = (
    _NUMBERS
    + ORIGINS
    + tuple(frame(partition, layout, b"") for partition in range(4) for layout in range(4))
)
WORDS: Mapping[str, tuple[bytes, ...]] = {
    "origin_header": _NUMBERS,
    "records": _BATCH_WORDS,
    "compiled_scan": _BATCH_WORDS,
    "metadata": tuple(f'"{name}":'.encode() for name in "vfelhictdnrwpmk") + _JSON,
    "environment": _NAMES + _VALUES + tuple(value.encode() for value in REQUIRED_SETTINGS.values()),
    "settings_file": _KEYS + _VALUES + _JSON + tuple(form.encode() for form in FILE_SUFFIXES),
}
