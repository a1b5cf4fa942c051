"""Reads which operations the client's principal is authorized for, by topic and group (KIP-430).

A cluster that does not report permissions (before 2.3) is not checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.needed_acls import NeededPermission


@dataclass(slots=True)
class ResourceState:
    """What a cluster reports about one topic or group; `allowed` is None when it does not report
    permissions.
    """

    allowed: set[str] | None
    partitions: int = 0
    exists: bool = True


def describe_resources(
    client: AdminClient, rows: Iterable[NeededPermission]
) -> dict[tuple[str, str], ResourceState]:
    """The state of every topic and group of these rows."""
    asked = list(rows)
    resources: dict[tuple[str, str], ResourceState] = {}
    topics = sorted({name for row, name in asked if row.resource == "Topic"})
    if topics:
        answers = client.describe_topics(
            TopicCollection(topics),
            include_authorized_operations=True,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        resources |= {("Topic", name): _get_topic_state(answer) for name, answer in answers.items()}
    for name in sorted({name for row, name in asked if row.resource == "Group"}):
        answer = client.describe_consumer_groups(
            [name], include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S
        )[name]
        resources["Group", name] = _get_group_state(answer)
    to_make = sorted(
        {
            name
            for row, name in asked
            if row.operation == "Create" and not resources["Topic", name].exists
        }
    )
    if to_make:
        answers = client.create_topics(
            [NewTopic(name, 1, -1) for name in to_make],
            validate_only=True,
            request_timeout=REQUEST_TIMEOUT_S,
        )
        for name, answer in answers.items():
            resources["Topic", name].allowed = {"Create"} if _is_allowed(answer) else set()
    return resources


def _get_topic_state(answer: Future[Any]) -> ResourceState:
    """Without Describe on a topic, nothing is allowed except, perhaps, its configuration."""
    try:
        description = answer.result()
    except KafkaException as failed:
        if failed.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return ResourceState({"DescribeConfigs", "AlterConfigs"})
        if failed.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return ResourceState(set(), exists=False)
        raise
    return ResourceState(
        _get_operation_names(description.authorized_operations), len(description.partitions)
    )


def _get_group_state(answer: Future[Any]) -> ResourceState:
    try:
        return ResourceState(_get_operation_names(answer.result().authorized_operations))
    except KafkaException as failed:
        if failed.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return ResourceState(set())
        if failed.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            # its members subscribe to topics that this principal may not describe (KIP-848)
            return ResourceState(None)
        raise


def _is_allowed(answer: Future[Any]) -> bool:
    try:
        answer.result()
    except KafkaException as failed:
        return bool(
            failed.args[0].code()
            not in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
        )
    return True


def _get_operation_names(operations: Any) -> set[str] | None:
    """The names as in the table; None when the cluster does not report them."""
    return (
        {operation.name.title().replace("_", "") for operation in operations}
        if operations
        else None
    )
