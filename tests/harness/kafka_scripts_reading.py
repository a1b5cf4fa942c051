"""Scripts for `tests.broker.test_simulated_kafka`: offsets, groups and those who read."""

from __future__ import annotations

from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import OffsetSpec

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
        tp = TopicPartition(context.name, partition, before)
        context.note_call(
            f"delete {partition} {before}",
            lambda tp=tp: context.admin.delete_records([tp])[tp].result().low_watermark,
        )
    context.note("earliest", context.offsets(OffsetSpec.earliest(), 2))
    for begin in (0, 4, 6, 7, -1, -2):
        context.note(f"from {begin}", context.read([begin]))
    context.note("from 0, earliest", context.read([0], auto_offset_reset="earliest"))
    context.note("from 9, earliest", context.read([9], auto_offset_reset="earliest"))
    context.note("from 9, latest", context.read([9], auto_offset_reset="latest"))
    context.note("from the commit", context.read([-1001]))
    tp = TopicPartition(context.name, 0, -1)
    context.note_call(
        "delete all", lambda: context.admin.delete_records([tp])[tp].result().low_watermark
    )
    context.note(
        "offsets", [context.offsets(spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest())]
    )


def a_recreated_topic_is_read_on(context: ScriptContext) -> None:
    """With auto.offset.reset=earliest, a reader whose topic is deleted and created again reads the
    new one from its beginning; nothing is reported.
    """
    context.create()
    producer = context.producer()
    context.write(producer, "abc")
    producer.flush(LONG_S)
    reader = context.reader(auto_offset_reset="earliest", enable_partition_eof=False)
    reader.assign([TopicPartition(context.name, 0, 0)])
    context.note("old", [message.value() for message in reader.consume(3, LONG_S)])
    context.admin.delete_topics([context.name])[context.name].result()
    context.until(
        lambda: context.name not in context.admin.list_topics(timeout=LONG_S).topics, "it is gone"
    )
    context.note("gone", reader.poll(1.0))
    context.create()
    context.note("empty", reader.poll(3.0))
    producer = context.producer()
    context.write(producer, "defgh")
    producer.flush(LONG_S)
    context.note(
        "new", [(message.offset(), message.value()) for message in reader.consume(5, LONG_S)]
    )
    context.note("rest", reader.poll(0.5))
    reader.close()


def positions(context: ScriptContext) -> None:
    """Pause, position, and assignments that change: also one that replaces itself."""
    context.create(2)
    producer = context.producer()
    for partition in range(2):
        context.write(producer, "abc", partition)
    producer.flush(LONG_S)
    reader = context.reader(enable_partition_eof=False)
    first, second = (TopicPartition(context.name, partition, 0) for partition in range(2))
    context.note("nothing", reader.poll(0.1))
    reader.assign([first])
    context.note("position", reader.position([first, second]))
    context.note("first", [message.value() for message in reader.consume(3, LONG_S)])
    context.note("position", reader.position([first, second]))
    reader.assign([TopicPartition(context.name, 0, 1)])
    context.note("again", [message.value() for message in reader.consume(2, LONG_S)])
    reader.pause([first])
    context.write(producer, "d", 0)
    producer.flush(LONG_S)
    context.note("paused", reader.poll(0.5))
    reader.resume([first])
    context.note("resumed", [message.value() for message in reader.consume(1, LONG_S)])
    reader.assign([first])
    context.note("from the start", [message.value() for message in reader.consume(4, LONG_S)])
    reader.assign([TopicPartition(context.name, 0, 4), second])
    context.note(
        "more", [(message.partition(), message.value()) for message in reader.consume(3, LONG_S)]
    )
    context.note("assignment", sorted(tp.partition for tp in reader.assignment()))
    reader.unassign()
    context.note("position", reader.position([first]))
    reader.close()
    context.note_call("closed", reader.poll, 0.1)


def commits(context: ScriptContext) -> None:
    """With metadata, without a member, pending in a transaction; of a group that is not there."""
    context.create(2)
    reader, first, group = context.reader(), TopicPartition(context.name, 0), context.name
    context.until(
        lambda: context.admin.describe_consumer_groups([group])[group].exception() is None,
        "there is a coordinator",
    )
    state = context.admin.describe_consumer_groups([group])[group].result()
    context.note("described", [state.state.name, state.members])
    context.note_call("none", reader.committed, [first], LONG_S)
    context.note_call("listed none", list_commits, context, True)
    note_altered_commits(context, reader)
    note_commits_of_a_reader(context, reader)
    context.note(
        "described", context.admin.describe_consumer_groups([group])[group].result().state.name
    )
    note_pending_commits(context, reader)
    context.note_call("delete", context.admin.delete_consumer_groups([group])[group].result)
    context.note_call("delete again", context.admin.delete_consumer_groups([group])[group].result)
    context.note_call("committed", reader.committed, [first], LONG_S)
    context.note(
        "described", context.admin.describe_consumer_groups([group])[group].result().state.name
    )
    reader.close()


def list_commits(context: ScriptContext, stable: bool, is_first_only: bool = True) -> Any:
    """The group's commits as an admin client lists them: of the first partition, or of all."""
    topic_partitions = [TopicPartition(context.name, 0)] if is_first_only else None
    asked = ConsumerGroupTopicPartitions(context.name, topic_partitions)
    return (
        context.admin.list_consumer_group_offsets(
            [asked], require_stable=stable, request_timeout=LONG_S
        )[context.name]
        .result()
        .topic_partitions
    )


def alter_commit(context: ScriptContext, offset: int, metadata: str, partition: int = 0) -> Any:
    """An admin client's commit for the group."""
    asked = ConsumerGroupTopicPartitions(
        context.name, [TopicPartition(context.name, partition, offset, metadata)]
    )
    return (
        context.admin.alter_consumer_group_offsets([asked], request_timeout=LONG_S)[context.name]
        .result()
        .topic_partitions
    )


def note_altered_commits(context: ScriptContext, reader: Any) -> None:
    """What an admin client can commit, and what is committed then."""
    context.note_call("alter", alter_commit, context, 3, "three")
    context.note_call("alter no partition", alter_commit, context, 3, "three", 9)
    context.note_call("too much", alter_commit, context, 3, "x" * 5000)
    context.note_call(
        "committed",
        reader.committed,
        [TopicPartition(context.name, partition) for partition in (0, 1, 9)],
        LONG_S,
    )
    for stable in (True, False):
        context.note_call("listed", list_commits, context, stable)
        context.note_call("listed all", list_commits, context, stable, is_first_only=False)


def note_commits_of_a_reader(context: ScriptContext, reader: Any) -> None:
    """What a consumer without a member can commit."""
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


def note_pending_commits(context: ScriptContext, reader: Any) -> None:
    """What is seen of offsets in a transaction: before it is aborted or committed, and after."""
    first = TopicPartition(context.name, 0)
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
            context.note_call("listed", list_commits, context, stable)
        context.note_call("committed, undecided", reader.committed, [first], 0.5)
        uncommitted = context.reader(isolation_level="read_uncommitted")
        context.note_call(
            "committed, uncommitted", lambda reader=uncommitted: reader.committed([first], LONG_S)
        )
        uncommitted.close()
        context.note_call("end", end, LONG_S)
        context.note_call("committed", reader.committed, [first], LONG_S)


SCRIPTS = (deleted_records, a_recreated_topic_is_read_on, positions, commits)
