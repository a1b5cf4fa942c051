"""Scripts for `tests.broker.test_simulated_kafka`: topics, their configuration, their end and their
return.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.harness.kafka_scripts import LONG_S, ScriptContext


def topics(context: ScriptContext) -> None:
    """Described, created, recreated, extended, deleted."""
    name, none = context.create(2), f"{context.name}-none"
    described = context.admin.describe_topics(
        TopicCollection([name, none]), include_authorized_operations=True
    )
    found = described[name].result()
    context.note(
        "described",
        [
            found.name,
            found.is_internal,
            [partition.id for partition in found.partitions],
            sorted(operation.name for operation in found.authorized_operations),
        ],
    )
    context.note_call("none", lambda: described[none].result().name)
    context.note_call(
        "list none",
        lambda: [
            context.admin.list_topics(none, LONG_S).topics[none].error,
            len(context.admin.list_topics(none, LONG_S).brokers),
        ],
    )
    note_refused_changes(context, name, none)
    note_refused_offsets(context, name, none)
    context.note_call("delete none", context.admin.delete_topics([none])[none].result)
    note_configuration(context, name, none)
    before = str(found.topic_id)
    context.admin.delete_topics([name])[name].result()
    context.until(
        lambda: name not in context.admin.list_topics(timeout=LONG_S).topics, "it is gone"
    )
    context.create(1)
    now = str(context.admin.describe_topics(TopicCollection([name]))[name].result().topic_id)
    context.note("another id", [now != before, len(now)])
    metadata = context.admin.list_topics(none, LONG_S)
    context.note("cluster", [len(metadata.cluster_id), len(metadata.brokers)])


def note_refused_changes(context: ScriptContext, name: str, none: str) -> None:
    """Topics that cannot be created, partitions that cannot be added."""
    for what, new in (
        ("existing", NewTopic(name, 1, 1)),
        ("factor", NewTopic(none, 1, 3)),
        ("config", NewTopic(none, 1, 1, config={"no.such": "1"})),
    ):
        context.note_call(f"create {what}", context.admin.create_topics([new])[new.topic].result)
        context.note_call(
            f"may create {what}",
            context.admin.create_topics([new], validate_only=True)[new.topic].result,
        )
    for what, number in ((name, 2), (name, 1), (none, 3)):
        context.note_call(
            f"extend {number}",
            context.admin.create_partitions([NewPartitions(what, number)])[what].result,
        )


def note_refused_offsets(context: ScriptContext, name: str, none: str) -> None:
    """Offsets of a topic or a partition that is not there."""
    context.note_call("offsets of none", context.offsets, OffsetSpec.latest(), 1, name=none)
    context.note_call("offsets of a partition too many", context.offsets, OffsetSpec.latest(), 3)
    context.note_call(
        "offsets of one of two topics",
        lambda: [
            answer.exception() and answer.exception().args[0]
            for answer in context.admin.list_offsets(
                {
                    TopicPartition(name, 0): OffsetSpec.latest(),
                    TopicPartition(none, 0): OffsetSpec.latest(),
                }
            ).values()
        ],
    )


def note_configuration(context: ScriptContext, name: str, none: str) -> None:
    """A topic's configuration after one change, and that of a topic that is not there."""
    resource, of_none = (ConfigResource(ResourceType.TOPIC, one) for one in (name, none))
    context.note_call("config of none", context.admin.describe_configs([of_none])[of_none].result)
    changed = ConfigResource(
        ResourceType.TOPIC,
        name,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "5000", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    context.note_call("alter", context.admin.incremental_alter_configs([changed])[changed].result)

    def find_altered() -> Any:
        found = context.admin.describe_configs([resource])[resource].result()
        return found if found["max.message.bytes"].value == "5000" else None

    entries = context.until(find_altered, "it is altered")
    context.note(
        "config",
        {
            key: (
                entry.value,
                getattr(entry.source, "value", entry.source)
                == ConfigSource.DYNAMIC_TOPIC_CONFIG.value,
            )
            for key, entry in sorted(entries.items())
        },
    )


def a_recreated_topic(context: ScriptContext) -> None:
    """Under a reader and a producer: what they are told, and what is left."""
    context.create()
    producer = context.transactional()
    producer.init_transactions(LONG_S)
    producer.begin_transaction()
    context.write(producer, "abc")
    producer.commit_transaction(LONG_S)
    context.wait_until_decided()
    producer.begin_transaction()
    context.write(producer, "d")
    producer.flush(LONG_S)
    context.admin.delete_topics([context.name])[context.name].result()
    context.until(
        lambda: context.name not in context.admin.list_topics(timeout=LONG_S).topics, "it is gone"
    )
    context.create()
    context.note_call("commit", producer.commit_transaction, LONG_S)
    context.note("offsets", context.offsets(OffsetSpec.earliest()))
    again = context.transactional()
    context.note_call("init", again.init_transactions, LONG_S)
    again.begin_transaction()
    context.write(again, "e")
    context.note_call("commit anew", again.commit_transaction, LONG_S)
    values = context.until(
        lambda: [record[2] for record in context.read([0])[0] if len(record) > 2],
        "what was written anew is read",
    )
    context.note("has the new record", b"e" in values)
    context.note("from 9", context.read([9]))


SCRIPTS = (topics, a_recreated_topic)
