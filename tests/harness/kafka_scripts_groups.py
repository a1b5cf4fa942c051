"""Scripts for `tests.broker.test_simulated_kafka`: members of a group."""

from __future__ import annotations

import sys
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from deduplicator.group_metadata import METADATA_MAGIC, parse_group_metadata
from tests.harness.kafka_scripts import LONG_S, ScriptContext
from tests.harness.kafka_scripts_members import (
    GroupMember,
    create_filled_topic,
    describe_group,
    poll_until,
)


def two_members(context: ScriptContext) -> None:
    """Two members share two partitions; one leaves, and the other has both."""
    create_filled_topic(context)
    stranger = context.member()
    context.note("no member yet", parse_group_metadata(stranger.consumer_group_metadata())[0] <= 0)
    stranger.close()
    first = GroupMember(context)
    poll_until(
        context,
        [first],
        lambda: len(first.assigned) == 2 and len(first.values) == 2,
        "one has both",
    )
    context.note("first", first.events)
    context.until(lambda: describe_group(context)[0] == "STABLE", "it is stable")
    context.note(
        "member", [first.member()[0] > 0, len(first.member()[1]) > 0, describe_group(context)]
    )
    second = GroupMember(context)
    poll_until(
        context,
        [first, second],
        lambda: len(first.assigned) == len(second.assigned) == 1,
        "each has one",
    )
    context.note(
        "kinds of events",
        [
            [(event, len(topic_partitions)) for event, topic_partitions in one.events]
            for one in (first, second)
        ],
    )
    context.until(
        lambda: describe_group(context)[0] == "STABLE" and len(describe_group(context)[1]) == 2,
        "it is stable",
    )
    context.note("described", sorted(describe_group(context)[1]))
    before = len(first.events)
    second.consumer.close()
    context.note("second's end", second.events[-1][0])
    poll_until(context, [first], lambda: len(first.assigned) == 2, "one has both again")
    context.note("kinds of events", [event for event, _ in first.events[before:]])
    context.note_call(
        "delete", context.admin.delete_consumer_groups([context.name])[context.name].result
    )
    context.note_call(
        "commit",
        first.consumer.commit,
        offsets=[TopicPartition(context.name, 0, 1, "m")],
        asynchronous=False,
    )
    first.consumer.close()
    context.note("described", describe_group(context))
    context.note_call("closed", first.consumer.consume, 1, 0.1)


def static_member(context: ScriptContext) -> None:
    """A static member that comes back keeps its partitions, in the same generation; its previous
    instance is fenced. It leaves when it unsubscribes, not when it is closed.
    """
    create_filled_topic(context)
    options = {"group_instance_id": "i"}
    old = GroupMember(context, **options)
    poll_until(context, [old], lambda: len(old.assigned) == 2, "it has both")
    generation, old_id = old.member()
    zombie = old.consumer.consumer_group_metadata()
    new = GroupMember(context, **options)
    context.until(lambda: (new.poll(), new.assigned)[1], "the other one has them")
    context.note("new", [new.events, new.member()[0] - generation, new.member()[1] != old_id])
    poll_until(context, [old, new], lambda: bool(old.errors), "the old one hears of it")
    for _ in range(10):
        old.poll()
    context.note("old", [old.errors, old.events])
    note_commits_of_both_instances(context, old, new, zombie)
    asked = TopicPartition(context.name, 0)
    context.note("committed", new.consumer.committed([asked], LONG_S))
    context.note("described", describe_group(context))
    old.consumer.close()
    context.note("old's end", old.events)
    new.consumer.close()
    context.note("new's end", new.events)
    context.note("described", describe_group(context))
    again = GroupMember(context, **options)
    poll_until(context, [again], lambda: len(again.assigned) == 2, "it has both")
    context.note("again", [again.events, again.member()[0] - generation])
    again.consumer.unsubscribe()
    poll_until(context, [again], lambda: not again.member()[1], "it has left")
    context.note("left", [again.events, describe_group(context)])
    again.consumer.close()


def note_commits_of_both_instances(
    context: ScriptContext, old: GroupMember, new: GroupMember, zombie: Any
) -> None:
    """What each of them can commit, by itself and in a transaction; `zombie` is the old one's group
    metadata.
    """
    context.note_call(
        "old commit",
        old.consumer.commit,
        offsets=[TopicPartition(context.name, 0, 1)],
        asynchronous=False,
    )
    producer = context.transactional()
    producer.init_transactions(LONG_S)
    producer.begin_transaction()
    context.note_call(
        "old offsets",
        producer.send_offsets_to_transaction,
        [TopicPartition(context.name, 0, 1)],
        zombie,
        LONG_S,
    )
    context.note_call("old offsets: commit", producer.commit_transaction, LONG_S)
    context.note_call("old offsets: abort", producer.abort_transaction, LONG_S)
    producer.begin_transaction()
    context.note_call(
        "new offsets",
        producer.send_offsets_to_transaction,
        [TopicPartition(context.name, 0, 1, "m")],
        new.consumer.consumer_group_metadata(),
        LONG_S,
    )
    context.note_call("new offsets: commit", producer.commit_transaction, LONG_S)
    context.note_call(
        "new commit",
        new.consumer.commit,
        offsets=[TopicPartition(context.name, 1, 1)],
        asynchronous=False,
    )


def unknown_members(context: ScriptContext) -> None:
    """Offsets sent for a generation, or a member, that is not the group's."""
    create_filled_topic(context)
    member = GroupMember(context)
    poll_until(context, [member], lambda: len(member.assigned) == 2, "it has both")
    generation, member_id = member.member()
    producer = context.transactional()
    producer.init_transactions(LONG_S)

    def metadata(generation: int, member_id: str) -> bytes:
        return (
            METADATA_MAGIC
            + generation.to_bytes(4, sys.byteorder, signed=True)
            + f"{context.name}\0{member_id}\0".encode()
            + b"\x01"
        )

    for what, said in (
        ("older", (generation - 1, member_id)),
        ("newer", (generation + 1, member_id)),
        ("unknown", (generation, "nobody")),
        ("no generation", (-1, member_id)),
        ("nobody", (-1, "")),
        ("right", (generation, member_id)),
    ):
        producer.begin_transaction()
        offset = TopicPartition(context.name, 0, 1, what)
        context.note_call(
            what,
            lambda said=said, offset=offset: producer.send_offsets_to_transaction(
                [offset], metadata(*said), LONG_S
            ),
        )
        context.note_call(f"{what}: commit", producer.commit_transaction, LONG_S)
        context.note_call(f"{what}: abort", producer.abort_transaction, LONG_S)
        context.note_call(
            f"{what}: committed",
            member.consumer.committed,
            [TopicPartition(context.name, 0)],
            LONG_S,
        )
    other = context.reader()
    context.note_call(
        "a stranger's commit",
        other.commit,
        offsets=[TopicPartition(context.name, 0, 2)],
        asynchronous=False,
    )
    other.close()
    member.consumer.close()


def silent_rejoin(context: ScriptContext) -> None:
    """Partitions are added while a member does not poll: its client joins again by itself, before
    its callbacks have run. Its offsets are refused with the generation of its last callback.
    """
    create_filled_topic(context)
    options = {"topic_metadata_refresh_interval_ms": 500}
    away, busy = GroupMember(context, **options), GroupMember(context, **options)
    poll_until(
        context,
        [away, busy],
        lambda: len(away.assigned) == len(busy.assigned) == 1,
        "each has one",
    )
    (generation, member_id), before = away.member(), away.consumer.consumer_group_metadata()
    away.events.clear()
    count, polls = 2, 0

    def has_joined_again() -> bool:
        """A partition is added in every fortieth poll: the group needs time for a rebalance. And
        the group may wait for the member until it sees one more: it joins again by itself only
        for partitions that it did not know when it joined last.
        """
        nonlocal count, polls
        if polls % 40 == 0:
            count += 1
            new = NewPartitions(context.name, count)
            context.admin.create_partitions([new])[context.name].result()
        polls += 1
        if away.member()[0] <= generation:
            return False
        state, members = describe_group(context)
        return state == "STABLE" and sum(len(partitions) for partitions, _ in members) == count

    poll_until(context, [busy], has_joined_again, "it has joined again, for all partitions")
    context.note("away", [away.events, away.member()[1] == member_id, len(away.assigned)])
    producer = context.transactional()
    producer.init_transactions(LONG_S)
    for what, metadata in (("before", before), ("now", away.consumer.consumer_group_metadata())):
        producer.begin_transaction()
        offset = TopicPartition(context.name, 0, 1, what)
        context.note_call(what, producer.send_offsets_to_transaction, [offset], metadata, LONG_S)
        context.note_call(f"{what}: abort", producer.abort_transaction, LONG_S)
    poll_until(
        context, [away, busy], lambda: bool(away.assigned and len(away.events) > 1), "polled"
    )
    context.note("events", [away.events[0][0], away.events[-1][0]])
    away.consumer.close()
    busy.consumer.close()


SCRIPTS = (two_members, static_member, unknown_members, silent_rejoin)
