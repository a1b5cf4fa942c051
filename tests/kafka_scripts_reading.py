"""Scripts for `tests.test_simulated_kafka`: topics, offsets, groups and those who read."""

from __future__ import annotations

from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicCollection, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, NewPartitions, NewTopic, OffsetSpec, ResourceType

from tests.kafka_scripts import LONG_S, World


def deleted_records(world: World) -> None:
    """What is deleted is gone: offsets, and a reader at a position that is gone, or not there yet."""
    world.create(2)
    producer = world.producer()
    world.write(producer, "abcdef")
    producer.flush(LONG_S)
    for partition, before in ((0, 4), (0, 2), (0, 9), (1, 0), (7, 1)):
        place = TopicPartition(world.name, partition, before)
        world.attempt(f"delete {partition} {before}", lambda place=place: world.admin.delete_records([place])[place].result().low_watermark)
    world.note("earliest", world.offsets(OffsetSpec.earliest(), 2))
    for begin in (0, 4, 6, 7, -1, -2):
        world.note(f"from {begin}", world.read([begin]))
    world.note("from 0, earliest", world.read([0], auto_offset_reset="earliest"))
    world.note("from 9, latest", world.read([9], auto_offset_reset="latest"))
    world.note("from the commit", world.read([-1001]))
    place = TopicPartition(world.name, 0, -1)
    world.attempt("delete all", lambda: world.admin.delete_records([place])[place].result().low_watermark)
    world.note("offsets", [world.offsets(spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest())])


def positions(world: World) -> None:
    """Seek, pause, position, and assignments that change."""
    world.create(2)
    producer = world.producer()
    for partition in range(2):
        world.write(producer, "abc", partition)
    producer.flush(LONG_S)
    reader = world.reader(enable_partition_eof=False)
    first, second = (TopicPartition(world.name, partition, 0) for partition in range(2))
    world.attempt("seek without", reader.seek, first)
    world.note("nothing", reader.poll(0.1))
    reader.assign([first])
    world.note("position", reader.position([first, second]))
    world.note("first", [message.value() for message in reader.consume(3, LONG_S)])
    world.note("position", reader.position([first, second]))
    world.attempt("seek", reader.seek, TopicPartition(world.name, 0, 1))
    world.note("again", [message.value() for message in reader.consume(2, LONG_S)])
    reader.pause([first])
    reader.seek(TopicPartition(world.name, 0, 0))
    world.note("paused", reader.poll(0.5))
    reader.resume([first])
    world.note("resumed", [message.value() for message in reader.consume(3, LONG_S)])
    reader.incremental_assign([second])
    world.note("more", [(message.partition(), message.value()) for message in reader.consume(3, LONG_S)])
    world.note("assignment", sorted(place.partition for place in reader.assignment()))
    reader.incremental_unassign([first])
    world.note("assignment", sorted(place.partition for place in reader.assignment()))
    reader.unassign()
    world.note("position", reader.position([first]))
    reader.close()
    world.attempt("closed", reader.poll, 0.1)


def topics(world: World) -> None:
    """Described, created, recreated, extended, deleted."""
    name, none = world.create(2), f"{world.name}-none"
    described = world.admin.describe_topics(TopicCollection([name, none]), include_authorized_operations=True)
    found = described[name].result()
    world.note("described", [found.name, found.is_internal, [partition.id for partition in found.partitions],
                             sorted(operation.name for operation in found.authorized_operations)])
    world.attempt("none", lambda: described[none].result().name)
    world.attempt("list none", lambda: [world.admin.list_topics(none, LONG_S).topics[none].error, len(world.admin.list_topics(none, LONG_S).brokers)])
    for what, new in (("existing", NewTopic(name, 1, 1)), ("factor", NewTopic(none, 1, 3)), ("config", NewTopic(none, 1, 1, config={"no.such": "1"}))):
        world.attempt(f"create {what}", world.admin.create_topics([new])[new.topic].result)
        world.attempt(f"may create {what}", world.admin.create_topics([new], validate_only=True)[new.topic].result)
    for what, number in ((name, 2), (name, 1), (none, 3)):
        world.attempt(f"extend {number}", world.admin.create_partitions([NewPartitions(what, number)])[what].result)
    world.attempt("offsets of none", world.offsets, OffsetSpec.latest(), 1, name=none)
    world.attempt("offsets of a partition too many", world.offsets, OffsetSpec.latest(), 3)
    world.attempt("offsets of one of two topics", lambda: [answer.exception() and answer.exception().args[0] for answer in world.admin.list_offsets(
        {TopicPartition(name, 0): OffsetSpec.latest(), TopicPartition(none, 0): OffsetSpec.latest()}).values()])
    world.attempt("delete none", world.admin.delete_topics([none])[none].result)
    resource, of_none = (ConfigResource(ResourceType.TOPIC, one) for one in (name, none))
    world.attempt("config of none", world.admin.describe_configs([of_none])[of_none].result)
    changed = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[ConfigEntry("max.message.bytes", "5000",
                             incremental_operation=AlterConfigOpType.SET)])
    world.attempt("alter", world.admin.incremental_alter_configs([changed])[changed].result)

    def altered() -> Any:
        found = world.admin.describe_configs([resource])[resource].result()
        return found if found["max.message.bytes"].value == "5000" else None
    entries = world.until(altered, "it is altered")
    world.note("config", {key: (entry.value, getattr(entry.source, "value", entry.source) == ConfigSource.DYNAMIC_TOPIC_CONFIG.value)
                          for key, entry in sorted(entries.items())})
    before = str(found.topic_id)
    world.admin.delete_topics([name])[name].result()
    world.until(lambda: name not in world.admin.list_topics(timeout=LONG_S).topics, "it is gone")
    world.create(1)
    now = str(world.admin.describe_topics(TopicCollection([name]))[name].result().topic_id)
    world.note("another id", [now != before, len(now)])
    cluster = world.admin.describe_cluster().result()
    world.note("cluster", [len(cluster.cluster_id), len(cluster.nodes)])


def commits(world: World) -> None:
    """With metadata, without a member, pending in a transaction; of a group that is not there."""
    world.create(2)
    reader, first, group = world.reader(), TopicPartition(world.name, 0), world.name

    def listed(stable: bool, name: str = group, places: Any = (first,)) -> Any:
        asked = ConsumerGroupTopicPartitions(name, list(places) if places is not None else None)
        return world.admin.list_consumer_group_offsets([asked], require_stable=stable, request_timeout=LONG_S)[name].result().topic_partitions

    def alter(offset: int, metadata: str, partition: int = 0) -> Any:
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(world.name, partition, offset, metadata)])
        return world.admin.alter_consumer_group_offsets([asked], request_timeout=LONG_S)[group].result().topic_partitions
    world.until(lambda: world.admin.describe_consumer_groups([group])[group].exception() is None, "there is a coordinator")
    state = world.admin.describe_consumer_groups([group])[group].result()
    world.note("described", [state.state.name, state.members])
    world.attempt("none", reader.committed, [first], LONG_S)
    world.attempt("listed none", listed, True)
    world.attempt("alter", alter, 3, "three")
    world.attempt("alter no partition", alter, 3, "three", 9)
    world.attempt("too much", alter, 3, "x" * 5000)
    world.attempt("committed", reader.committed, [first, TopicPartition(world.name, 1), TopicPartition(world.name, 9)], LONG_S)
    for stable in (True, False):
        world.attempt("listed", listed, stable)
        world.attempt("listed all", listed, stable, places=None)
    world.attempt("commit", reader.commit, offsets=[TopicPartition(world.name, 0, 5, "five")], asynchronous=False)
    world.attempt("commit too much", reader.commit, offsets=[TopicPartition(world.name, 0, 5, "x" * 5000)], asynchronous=False)
    world.attempt("commit nothing", reader.commit, asynchronous=False)
    world.note("described", world.admin.describe_consumer_groups([group])[group].result().state.name)
    producer = world.transactional()
    producer.init_transactions(LONG_S)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        world.attempt("send", producer.send_offsets_to_transaction, [TopicPartition(world.name, 0, 7, "seven")], reader.consumer_group_metadata(), LONG_S)
        for stable in (True, False):
            world.attempt("listed", listed, stable)
        world.attempt("committed, undecided", reader.committed, [first], 0.5)
        uncommitted = world.reader(isolation_level="read_uncommitted")
        world.attempt("committed, uncommitted", lambda reader=uncommitted: reader.committed([first], LONG_S))
        uncommitted.close()
        world.attempt("end", end, LONG_S)
        world.attempt("committed", reader.committed, [first], LONG_S)
    world.attempt("delete", world.admin.delete_consumer_groups([group])[group].result)
    world.attempt("delete again", world.admin.delete_consumer_groups([group])[group].result)
    world.attempt("committed", reader.committed, [first], LONG_S)
    world.note("described", world.admin.describe_consumer_groups([group])[group].result().state.name)
    reader.close()


def a_recreated_topic(world: World) -> None:
    """Under a reader and a producer: what they are told, and what is left."""
    world.create()
    producer = world.transactional()
    producer.init_transactions(LONG_S)
    producer.begin_transaction()
    world.write(producer, "abc")
    producer.commit_transaction(LONG_S)
    world.decided()
    producer.begin_transaction()
    world.write(producer, "d")
    producer.flush(LONG_S)
    world.admin.delete_topics([world.name])[world.name].result()
    world.until(lambda: world.name not in world.admin.list_topics(timeout=LONG_S).topics, "it is gone")
    world.create()
    world.attempt("commit", producer.commit_transaction, LONG_S)
    world.note("offsets", world.offsets(OffsetSpec.earliest()))
    again = world.transactional()
    world.attempt("init", again.init_transactions, LONG_S)
    again.begin_transaction()
    world.write(again, "e")
    world.attempt("commit anew", again.commit_transaction, LONG_S)
    values = world.until(lambda: [record[2] for record in world.read([0])[0] if len(record) > 2], "what was written anew is read")
    world.note("has the new record", b"e" in values)
    world.note("from 9", world.read([9]))


SCRIPTS = (deleted_records, positions, topics, commits, a_recreated_topic)
