"""What a broker answers when it does not do what was asked, and what a client knows when no answer came."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition


class BrokerError(Exception):
    """An error code of the protocol, as a broker answers it."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class RequestTimedOut(Exception):
    """None came in time."""


class ConnectionLost(Exception):
    """It broke before the answer came, and the client does not ask again by itself."""


class FailedTopicPartition(TopicPartition):
    """A TopicPartition with an error, which the real class lets only C code set."""

    error: Any = None


def create_exception(code: int, reason: str = "", fatal: bool = False, retriable: bool = False, aborts: bool = False) -> KafkaException:
    """As the clients raise it; without a reason, with librdkafka's text for the code."""
    return KafkaException(create_error(code, reason, fatal, retriable, aborts))


def create_error(code: int, reason: str = "", fatal: bool = False, retriable: bool = False, aborts: bool = False) -> KafkaError:
    """The error itself."""
    return KafkaError(code, reason or KafkaError(code).str(), fatal, retriable, aborts)


def create_topic_partition(topic: str, partition: int, offset: int, metadata: str | None = None, code: int = 0) -> TopicPartition:
    """An answer about a partition, with an error where there is one."""
    kind = FailedTopicPartition if code else TopicPartition
    answer = kind(topic, partition, offset) if metadata is None else kind(topic, partition, offset, metadata)
    if code:
        answer.error = create_error(code)
    return answer
