"""librdkafka itself, for what confluent-kafka does not let through: a header's name of any
bytes.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_size_t, c_ssize_t, c_void_p
from pathlib import Path

import confluent_kafka

END, TOPIC, PARTITION, VALUE, HEADERS = 0, 1, 3, 4, 10
"""Of rd_kafka_vtype_t."""


def write(address: str, topic: str, partition: int, names: list[bytes]) -> None:
    """A record for each name, which is that of its only header; waits until all are there."""
    package = Path(confluent_kafka.__file__).parent
    library = ctypes.CDLL(str(next(package.with_name("confluent_kafka.libs").glob("librdkafka*"))))
    for function in (library.rd_kafka_conf_new, library.rd_kafka_new, library.rd_kafka_headers_new):
        function.restype = c_void_p
    said = ctypes.create_string_buffer(512)
    settings = c_void_p(library.rd_kafka_conf_new())
    assert (
        library.rd_kafka_conf_set(
            settings, b"bootstrap.servers", address.encode(), said, c_size_t(512)
        )
        == 0
    ), said.value
    producer = c_void_p(library.rd_kafka_new(0, settings, said, c_size_t(512)))
    assert producer.value, said.value
    for name in names:
        headers = c_void_p(library.rd_kafka_headers_new(c_size_t(1)))
        assert (
            library.rd_kafka_header_add(headers, name, c_ssize_t(len(name)), b"v", c_ssize_t(1))
            == 0
        )
        assert (
            library.rd_kafka_producev(
                producer,
                TOPIC,
                c_char_p(topic.encode()),
                PARTITION,
                c_int(partition),
                VALUE,
                b"v",
                c_size_t(1),
                HEADERS,
                headers,
                END,
            )
            == 0
        )
    assert library.rd_kafka_flush(producer, 30_000) == 0
    library.rd_kafka_destroy(producer)
