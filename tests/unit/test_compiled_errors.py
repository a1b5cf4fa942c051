"""Errors where the compiled path meets them: librdkafka's own mock cluster, in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition

from common.routes import TopicPartition
from deduplicator import compiled_library
from deduplicator.compiled_batch import CompiledRecords, FetchedMessages
from deduplicator.compiled_queue import UNKNOWN_TOPIC, Queue
from tests.harness.kafka import until

TP = TopicPartition("t", 0)
AUTHORIZATION_FAILED = int(KafkaError.TOPIC_AUTHORIZATION_FAILED)


class MockedConsumer:
    """A consumer of one partition of a mock cluster, forwarded to a queue of the compiled path."""

    def __init__(self) -> None:
        self.rd_kafka = compiled_library.load_library().rd_kafka
        self.consumer = Consumer(
            {
                "test.mock.num.brokers": 1,
                "bootstrap.servers": "mock:1",
                "group.id": "g",
                "auto.offset.reset": "error",
                "topic.metadata.refresh.interval.ms": 200,
                "topic.metadata.propagation.max.ms": 0,
                "error_cb": lambda _: None,
                "log_level": 0,
            }
        )
        find_cluster = self.rd_kafka.rd_kafka_handle_mock_cluster
        find_cluster.restype, find_cluster.argtypes = ctypes.c_void_p, (ctypes.c_void_p,)
        self.cluster = ctypes.c_void_p(
            find_cluster(compiled_library.get_rd_kafka_pointer(self.consumer))
        )
        self.rd_kafka.rd_kafka_mock_topic_create(self.cluster, b"t", 1, 1)
        self.noted: list[KafkaError] = []
        self.queue = Queue(self.consumer, self.noted.append)
        self.queue.forward_partitions([TP])
        self.consumer.assign([ClientTopicPartition(*TP, 0)])
        until(
            lambda: self.consumer.list_topics(TP.topic, 10).topics[TP.topic].partitions,
            "the consumer knows the topic",
        )

    def fail_topic(self, code: int) -> None:
        """From now on the cluster says this of the topic."""
        self.rd_kafka.rd_kafka_mock_topic_set_error(self.cluster, b"t", code)

    def take(self) -> FetchedMessages:
        """What the loop does."""
        self.queue.renew_forwarding()
        self.consumer.poll(0)
        return self.queue.consume(100, 0.05)

    def close(self) -> None:
        """Queue first."""
        self.queue.close()
        self.consumer.close()


@pytest.fixture
def mocked() -> Iterator[MockedConsumer]:
    """One for each test."""
    made = MockedConsumer()
    yield made
    made.close()


def test_a_topic_that_is_gone_is_noted(mocked: MockedConsumer) -> None:
    """As where the consumer is polled; a callback from here would abort the process."""
    mocked.fail_topic(int(KafkaError.UNKNOWN_TOPIC_OR_PART))

    def is_noted() -> bool:
        fetched = mocked.take()
        assert (len(fetched), fetched.error) == (0, None)
        return bool(mocked.noted)

    until(is_noted, "the error is noted")
    assert {error.code() for error in mocked.noted} <= {*UNKNOWN_TOPIC}


def test_another_error_of_a_topic_is_handed_out(mocked: MockedConsumer) -> None:
    """With its code and librdkafka's text."""
    mocked.fail_topic(AUTHORIZATION_FAILED)
    error = until(lambda: mocked.take().error, "the error is there")
    assert error.code() == AUTHORIZATION_FAILED
    assert "authorization failed" in error.str()


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
    library = compiled_library.load_library()
    producer = Producer(
        {"bootstrap.servers": "127.0.0.1:1", "enable.idempotence": True, "log_level": 0}
    )
    library.rd_kafka.rd_kafka_test_fatal_error(
        ctypes.c_void_p(compiled_library.get_rd_kafka_pointer(producer)), int(code), b"test"
    )
    with pytest.raises(KafkaException) as by_python:
        producer.produce("t", b"v", partition=0)
    fetched, memory = FetchedMessages(library), ctypes.create_string_buffer(4096)
    fetched.raw.messages[0] = ctypes.addressof(memory)
    records = CompiledRecords(fetched, (ctypes.c_int32 * 1)(0), 1)
    with pytest.raises(KafkaException) as compiled:
        records.forward(producer, TP, 0, 1)
    assert compiled.value.args[0].code() == by_python.value.args[0].code() == KafkaError._FATAL
