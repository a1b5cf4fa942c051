"""What a producer says to the compiled path is what it says to Python."""

from __future__ import annotations

import ctypes

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, cimpl

from common.envelope import OFFSET_MAX, EnvelopeRecord, Head
from common.routes import TopicPartition
from deduplicator.compiled_path import forward, get_rd_kafka_pointer
from tests.harness.envelopes import IDENTITY
from tools.envelope_encoder import encode

TP = TopicPartition("t", 0)
VALUE = encode(
    Head(IDENTITY, 5, 0, -1, 3),
    [EnvelopeRecord(number, 1, 0, None, b"v" * 2000, ((b"h", None),)) for number in range(3)],
)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.INVALID_TXN_STATE,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.INVALID_PRODUCER_EPOCH,
    ],
)
def test_a_fatal_error_of_a_producer_is_the_one_that_python_gets(code: int) -> None:
    """Else a producer would be replaced whose process has to end."""
    producer = Producer(
        {"bootstrap.servers": "127.0.0.1:1", "enable.idempotence": True, "log_level": 0}
    )
    ctypes.CDLL(cimpl.__file__).rd_kafka_test_fatal_error(
        ctypes.c_void_p(get_rd_kafka_pointer(producer)), int(code), b"test"
    )
    with pytest.raises(KafkaException) as by_python:
        producer.produce("t", b"v", partition=0)
    with pytest.raises(KafkaException) as compiled:
        forward(producer, TP, VALUE, -1, OFFSET_MAX, None)
    assert compiled.value.args[0].code() == by_python.value.args[0].code() == KafkaError._FATAL


def test_a_record_that_is_too_large_is_refused_as_python_has_it() -> None:
    """With the partition in the message."""
    producer = Producer({"message.max.bytes": 1000, "log_level": 0})
    with pytest.raises(KafkaException) as by_python:
        producer.produce("t", b"v" * 2000, partition=0)
    with pytest.raises(KafkaException, match="a record for t-0 was not accepted") as compiled:
        forward(producer, TP, VALUE, -1, OFFSET_MAX, None)
    assert compiled.value.args[0].code() == by_python.value.args[0].code()
    assert compiled.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_topic_that_cannot_be_is_refused() -> None:
    """A name that is too long: librdkafka makes no topic of it."""
    producer = Producer({"log_level": 0})
    with pytest.raises(KafkaException, match="was not accepted"):
        forward(producer, TopicPartition("t" * 600, 0), VALUE, -1, OFFSET_MAX, None)
