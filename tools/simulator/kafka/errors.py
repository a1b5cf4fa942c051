"""The errors of requests: a broker's error code, a timeout, a lost connection."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition


class BrokerError(Exception):
    """A broker answered with an error code of the protocol."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class RequestTimedOut(Exception):
    """No response came in time."""


class ConnectionLost(Exception):
    """The connection broke before the response came, and the client does not retry by itself."""


class FailedTopicPartition(TopicPartition):
    """A TopicPartition with an error. On the real class, only C code can set it."""

    error: Any = None


def create_exception(
    code: int, reason: str = "", fatal: bool = False, retriable: bool = False, aborts: bool = False
) -> KafkaException:
    """The exception that the clients raise. Without a reason it has librdkafka's text for the
    code.
    """
    return KafkaException(create_error(code, reason, fatal, retriable, aborts))


def create_error(
    code: int, reason: str = "", fatal: bool = False, retriable: bool = False, aborts: bool = False
) -> KafkaError:
    """The KafkaError of a code."""
    return KafkaError(code, reason or KafkaError(code).str(), fatal, retriable, aborts)


def create_topic_partition(
    topic: str,
    partition: int,
    offset: int,
    metadata: str | None = None,
    code: int = 0,
    leader_epoch: int = -1,
) -> TopicPartition:
    """The answer for one partition, with an error if there is one."""
    kind = FailedTopicPartition if code else TopicPartition
    answer = (
        kind(topic, partition, offset, leader_epoch=leader_epoch)
        if metadata is None
        else kind(topic, partition, offset, metadata, leader_epoch)
    )
    if code:
        answer.error = create_error(code)
    return answer
