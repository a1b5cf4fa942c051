"""The requests of a simulated AdminClient about consumer groups and their offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclOperation,
    ConsumerGroupDescription,
    MemberAssignment,
    MemberDescription,
)

from tools.simulator.kafka.admin_requests import AdminRequests
from tools.simulator.kafka.errors import BrokerError, create_topic_partition
from tools.simulator.kafka.future import Future

GROUP_OPERATIONS = (
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)


class GroupAdmin(AdminRequests):
    """The part of an AdminClient that manages consumer groups."""

    def _ask_coordinator(
        self, api: str, calls: Mapping[Any, Callable[[], Any]], options: Mapping[str, Any]
    ) -> dict[Any, Future]:
        return self.request_for_each(api, calls, options, is_sent=not self.has_lost_coordinator())

    def describe_consumer_groups(
        self, group_ids: Sequence[str], **options: Any
    ) -> dict[str, Future]:
        """States and members. A group that does not exist is DEAD."""
        operations: Any = (
            [*GROUP_OPERATIONS] if options.get("include_authorized_operations") else None
        )

        def describe(name: str) -> ConsumerGroupDescription:
            group = self.cluster.groups.get(name)
            members = (
                [
                    MemberDescription(
                        member.id,
                        member.client_id,
                        "/127.0.0.1",
                        MemberAssignment(
                            [TopicPartition(*partition) for partition in member.assigned]
                        ),
                        member.instance_id,
                    )
                    for member in group.members.values()
                ]
                if group
                else []
            )
            state = ConsumerGroupState[group.state] if group else ConsumerGroupState.DEAD
            assignor = "roundrobin" if members else ""
            return ConsumerGroupDescription(
                name, False, members, assignor, state, self.node(), operations
            )

        return self._ask_coordinator(
            "DescribeConsumerGroups", {name: partial(describe, name) for name in group_ids}, options
        )

    def list_consumer_group_offsets(
        self,
        request: Sequence[ConsumerGroupTopicPartitions],
        require_stable: bool = False,
        **options: Any,
    ) -> dict[str, Future]:
        """By group."""

        def fetch(group_request: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            keys = (
                None
                if group_request.topic_partitions is None
                else [
                    (partition.topic, partition.partition)
                    for partition in group_request.topic_partitions
                ]
            )
            group = self.cluster.find_group(group_request.group_id)
            answers = [
                create_topic_partition(
                    *key, offset if offset >= 0 else OFFSET_INVALID, metadata or None, code
                )
                for key, (offset, metadata, code) in group.fetch(keys, require_stable).items()
            ]
            return ConsumerGroupTopicPartitions(group_request.group_id, answers)

        return self._ask_coordinator(
            "OffsetFetch",
            {group_request.group_id: partial(fetch, group_request) for group_request in request},
            options,
        )

    def alter_consumer_group_offsets(
        self, request: Sequence[ConsumerGroupTopicPartitions], **options: Any
    ) -> dict[str, Future]:
        """Commit for a group that has no members."""

        def commit(group_request: ConsumerGroupTopicPartitions) -> ConsumerGroupTopicPartitions:
            offsets = {
                (partition.topic, partition.partition): (partition.offset, partition.metadata or "")
                for partition in group_request.topic_partitions or ()
            }
            try:
                codes = self.cluster.group(group_request.group_id).commit(offsets)
            except BrokerError as error:
                codes = dict.fromkeys(offsets, error.code)
            return ConsumerGroupTopicPartitions(
                group_request.group_id,
                [
                    create_topic_partition(*key, offset, metadata or None, codes[key])
                    for key, (offset, metadata) in offsets.items()
                ],
            )

        return self._ask_coordinator(
            "OffsetCommit",
            {group_request.group_id: partial(commit, group_request) for group_request in request},
            options,
        )

    def delete_consumer_groups(self, group_ids: Iterable[str], **options: Any) -> dict[str, Future]:
        """Groups without members, with their offsets."""

        def delete(name: str) -> None:
            group = self.cluster.groups.get(name)
            if group is None:
                raise BrokerError(KafkaError.GROUP_ID_NOT_FOUND)
            if group.members:
                raise BrokerError(KafkaError.NON_EMPTY_GROUP)
            self.cluster.delete_group(name)

        return self._ask_coordinator(
            "DeleteGroups", {name: partial(delete, name) for name in group_ids}, options
        )
