"""Scripts for `tests.broker.test_simulated_kafka`: topics, offsets, groups and those who read."""

from __future__ import annotations

from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicCollection, TopicPartition
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


def deleted_records(context: ScriptContext) -> None:
    """What is deleted is gone: offsets, and a reader at a position that is gone, or not there
    yet.
    """
    context.create(2)
    producer = context.producer()
    context.write(producer, "abcdef")
    producer.flush(LONG_S)
    for partition, before in ((0, 4), (0, 2), (0, 9), (1, 0), (7, 1)):
        place = TopicPartition(context.name, partition, before)
        context.note_call(
            f"delete {partition} {before}",
            lambda place=place: context.admin.delete_records([place])[place].result().low_watermark,
        )
    context.note("earliest", context.offsets(OffsetSpec.earliest(), 2))
    for begin in (0, 4, 6, 7, -1, -2):
        context.note(f"from {begin}", context.read([begin]))
    context.note("from 0, earliest", context.read([0], auto_offset_reset="earliest"))
    context.note("from 9, latest", context.read([9], auto_offset_reset="latest"))
    context.note("from the commit", context.read([-1001]))
    place = TopicPartition(context.name, 0, -1)
    context.note_call(
        "delete all", lambda: context.admin.delete_records([place])[place].result().low_watermark
    )
    context.note(
        "offsets", [context.offsets(spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest())]
    )


def positions(context: ScriptContext) -> None:
    """Seek, pause, position, and assignments that change."""
    context.create(2)
    producer = context.producer()
    for partition in range(2):
        context.write(producer, "abc", partition)
    producer.flush(LONG_S)
    reader = context.reader(enable_partition_eof=False)
    first, second = (TopicPartition(context.name, partition, 0) for partition in range(2))
    context.note_call("seek without", reader.seek, first)
    context.note("nothing", reader.poll(0.1))
    reader.assign([first])
    context.note("position", reader.position([first, second]))
    context.note("first", [message.value() for message in reader.consume(3, LONG_S)])
    context.note("position", reader.position([first, second]))
    context.note_call("seek", reader.seek, TopicPartition(context.name, 0, 1))
    context.note("again", [message.value() for message in reader.consume(2, LONG_S)])
    reader.pause([first])
    reader.seek(TopicPartition(context.name, 0, 0))
    context.note("paused", reader.poll(0.5))
    reader.resume([first])
    context.note("resumed", [message.value() for message in reader.consume(3, LONG_S)])
    reader.incremental_assign([second])
    context.note(
        "more", [(message.partition(), message.value()) for message in reader.consume(3, LONG_S)]
    )
    context.note("assignment", sorted(place.partition for place in reader.assignment()))
    reader.incremental_unassign([first])
    context.note("assignment", sorted(place.partition for place in reader.assignment()))
    reader.unassign()
    context.note("position", reader.position([first]))
    reader.close()
    context.note_call("closed", reader.poll, 0.1)


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
    context.note_call("delete none", context.admin.delete_topics([none])[none].result)
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

    def altered() -> Any:
        found = context.admin.describe_configs([resource])[resource].result()
        return found if found["max.message.bytes"].value == "5000" else None

    entries = context.until(altered, "it is altered")
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
    before = str(found.topic_id)
    context.admin.delete_topics([name])[name].result()
    context.until(
        lambda: name not in context.admin.list_topics(timeout=LONG_S).topics, "it is gone"
    )
    context.create(1)
    now = str(context.admin.describe_topics(TopicCollection([name]))[name].result().topic_id)
    context.note("another id", [now != before, len(now)])
    cluster = context.admin.describe_cluster().result()
    context.note("cluster", [len(cluster.cluster_id), len(cluster.nodes)])


def commits(context: ScriptContext) -> None:
    """With metadata, without a member, pending in a transaction; of a group that is not there."""
    context.create(2)
    reader, first, group = context.reader(), TopicPartition(context.name, 0), context.name

    def listed(stable: bool, name: str = group, places: Any = (first,)) -> Any:
        asked = ConsumerGroupTopicPartitions(name, list(places) if places is not None else None)
        return (
            context.admin.list_consumer_group_offsets(
                [asked], require_stable=stable, request_timeout=LONG_S
            )[name]
            .result()
            .topic_partitions
        )

    def alter(offset: int, metadata: str, partition: int = 0) -> Any:
        asked = ConsumerGroupTopicPartitions(
            group, [TopicPartition(context.name, partition, offset, metadata)]
        )
        return (
            context.admin.alter_consumer_group_offsets([asked], request_timeout=LONG_S)[group]
            .result()
            .topic_partitions
        )

    context.until(
        lambda: context.admin.describe_consumer_groups([group])[group].exception() is None,
        "there is a coordinator",
    )
    state = context.admin.describe_consumer_groups([group])[group].result()
    context.note("described", [state.state.name, state.members])
    context.note_call("none", reader.committed, [first], LONG_S)
    context.note_call("listed none", listed, True)
    context.note_call("alter", alter, 3, "three")
    context.note_call("alter no partition", alter, 3, "three", 9)
    context.note_call("too much", alter, 3, "x" * 5000)
    context.note_call(
        "committed",
        reader.committed,
        [first, TopicPartition(context.name, 1), TopicPartition(context.name, 9)],
        LONG_S,
    )
    for stable in (True, False):
        context.note_call("listed", listed, stable)
        context.note_call("listed all", listed, stable, places=None)
    context.note_call(
        "commit",
        reader.commit,
        offsets=[TopicPartition(context.name, 0, 5, "five")],
        asynchronous=False,
    )
    context.note_call(
        "commit too much",
        reader.commit,
        offsets=[TopicPartition(context.name, 0, 5, "x" * 5000)],
        asynchronous=False,
    )
    context.note_call("commit nothing", reader.commit, asynchronous=False)
    context.note(
        "described", context.admin.describe_consumer_groups([group])[group].result().state.name
    )
    producer = context.transactional()
    producer.init_transactions(LONG_S)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        context.note_call(
            "send",
            producer.send_offsets_to_transaction,
            [TopicPartition(context.name, 0, 7, "seven")],
            reader.consumer_group_metadata(),
            LONG_S,
        )
        for stable in (True, False):
            context.note_call("listed", listed, stable)
        context.note_call("committed, undecided", reader.committed, [first], 0.5)
        uncommitted = context.reader(isolation_level="read_uncommitted")
        context.note_call(
            "committed, uncommitted", lambda reader=uncommitted: reader.committed([first], LONG_S)
        )
        uncommitted.close()
        context.note_call("end", end, LONG_S)
        context.note_call("committed", reader.committed, [first], LONG_S)
    context.note_call("delete", context.admin.delete_consumer_groups([group])[group].result)
    context.note_call("delete again", context.admin.delete_consumer_groups([group])[group].result)
    context.note_call("committed", reader.committed, [first], LONG_S)
    context.note(
        "described", context.admin.describe_consumer_groups([group])[group].result().state.name
    )
    reader.close()


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


SCRIPTS = (deleted_records, positions, topics, commits, a_recreated_topic)
