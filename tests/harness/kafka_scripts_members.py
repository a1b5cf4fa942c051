"""Members of a group in the scripts for `tests.broker.test_simulated_kafka`, and what is seen of
their group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import TopicPartition

from deduplicator.group_metadata import parse_group_metadata
from tests.harness.kafka_scripts import LONG_S, ScriptContext


class GroupMember:
    """A consumer in a group, and the rebalance callbacks that it got."""

    def __init__(self, context: ScriptContext, **options: Any) -> None:
        self.context = context
        self.consumer = context.member(**options)
        self.events: list[tuple[str, list[int]]] = []
        self.errors: list[Any] = []
        self.values: list[tuple[int, Any]] = []
        self.assigned: set[int] = set()
        self.consumer.subscribe(
            [context.name], on_assign=self.on_assign, on_revoke=self.on_revoke, on_lost=self.on_lost
        )

    def on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """Read them from the beginning."""
        self.events.append(("assign", sorted(one.partition for one in partitions)))
        self.assigned |= {one.partition for one in partitions}
        consumer.assign([TopicPartition(one.topic, one.partition, 0) for one in partitions])

    def on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """Stop reading them."""
        self._on_partitions_removed("revoke", consumer, partitions)

    def on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """They are lost: stop reading them."""
        self._on_partitions_removed("lost", consumer, partitions)

    def _on_partitions_removed(
        self, event: str, consumer: Any, partitions: list[TopicPartition]
    ) -> None:
        self.events.append((event, sorted(one.partition for one in partitions)))
        self.assigned -= {one.partition for one in partitions}
        consumer.unassign()

    def poll(self) -> None:
        """Once."""
        for message in self.consumer.consume(10, 0.05):
            if message.error():
                self.errors.append(self.context.normalize(message.error()))
            else:
                self.values.append((message.partition(), message.value()))

    def member(self) -> tuple[int, str]:
        """Generation and member id."""
        return parse_group_metadata(self.consumer.consumer_group_metadata())


def poll_until(
    context: ScriptContext, members: list[GroupMember], condition: Callable[[], bool], what: str
) -> None:
    """Poll all members until the condition is true."""

    def is_settled() -> bool:
        for member in members:
            member.poll()
        return condition()

    context.until(is_settled, what)


def create_filled_topic(context: ScriptContext) -> None:
    """A topic of two partitions with a record each."""
    context.create(2)
    producer = context.producer()
    for partition in range(2):
        context.write(producer, "x", partition)
    producer.flush(LONG_S)


def describe_group(context: ScriptContext) -> Any:
    """The state and the members of the group, from DescribeConsumerGroups."""
    found = context.admin.describe_consumer_groups([context.name])[context.name].result()
    return [
        found.state.name,
        sorted(
            (
                sorted(tp.partition for tp in member.assignment.topic_partitions),
                member.group_instance_id,
            )
            for member in found.members
        ),
    ]
