"""Requests of an admin client that tests repeat: each function makes one attempt, or a few, and
tells errors that pass from those that do not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from common.kafka.consumer_group import list_group_offsets

Result = TypeVar("Result")
ANSWER_S, ATTEMPTS = 30.0, 3
CREATION_S = 5.0
RETRIABLE_ERRORS = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._NOENT,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError.REQUEST_TIMED_OUT,
)
"""Errors of a partition or broker that is not available yet, or again; the request is repeated
until a timeout.
"""
COORDINATOR_STARTS = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
"""The coordinator of a group is not there yet; so it is at first where there never was a group."""


def call_with_retry(call: Callable[[], Future[Result]]) -> Result:
    """The result of an admin request; repeat the request when it times out."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(TimeoutError):
            return call().result(ANSWER_S)
    return call().result(ANSWER_S)


def is_creation_accepted(
    admin: AdminClient, new_topic: NewTopic, timed_out_topics: set[str]
) -> bool:
    """Whether the cluster has accepted the topic, now or in an attempt that timed out; that is what
    `timed_out_topics` remembers.
    """
    topic = new_topic.topic
    try:
        admin.create_topics([new_topic], request_timeout=CREATION_S)[topic].result()
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.TOPIC_ALREADY_EXISTS and timed_out_topics:
            return True
        # a client that knows no controller does not retry
        if code == KafkaError._TIMED_OUT:
            timed_out_topics.add(topic)
        # a broker that was stopped is fenced until its next heartbeat to the controller
        elif code != KafkaError.INVALID_REPLICATION_FACTOR:
            raise
        return False
    return True


def try_to_list_offsets(
    admin: AdminClient,
    topic: str,
    requests: dict[TopicPartition, OffsetSpec],
    isolation: IsolationLevel,
) -> list[tuple[int, int]] | None:
    """The offset of each partition; None while a partition has no leader, or nobody answers."""
    try:
        futures = admin.list_offsets(requests, isolation_level=isolation)
        return [
            (partition.partition, future.result(ANSWER_S).offset)
            for partition, future in futures.items()
        ]
    except TimeoutError:
        return None
    except KafkaException as error:
        if error.args[0].code() in RETRIABLE_ERRORS:
            with contextlib.suppress(KafkaException):
                # a client does not ask for the new leader by itself
                admin.list_topics(topic, ANSWER_S)
            return None
        raise


def try_to_list_group_offsets(
    admin: AdminClient, group: str
) -> tuple[dict[tuple[str, int], tuple[int, str | None]]] | None:
    """Offset and metadata of each partition of a group, in a tuple, because there may be none; None
    while nobody answers.
    """
    asked = ConsumerGroupTopicPartitions(group)
    try:
        answers = list_group_offsets(admin, asked, require_stable=False)
    except KafkaException as error:
        code = error.args[0].code()
        if code in COORDINATOR_STARTS:  # there never was a group
            return ({},)
        if code in RETRIABLE_ERRORS:
            return None
        raise
    return ({(one.topic, one.partition): (one.offset, one.metadata) for one in answers},)
