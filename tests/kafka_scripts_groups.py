"""Scripts for `tests.test_simulated_kafka`: members of a group, with both protocols."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from confluent_kafka import TopicPartition

from deduplicator.intermediate import METADATA_MAGIC, parse_group_metadata
from tests.kafka_scripts import LONG_S, World


class Followed:
    """A consumer that takes part, and the callbacks it had."""

    def __init__(self, world: World, incremental: bool = False, **options: Any) -> None:
        self.world = world
        self.consumer = world.member(**options)
        self.incremental = incremental
        self.events: list[tuple[str, list[int]]] = []
        self.errors: list[Any] = []
        self.values: list[tuple[int, Any]] = []
        self.assigned: set[int] = set()
        self.consumer.subscribe([world.name], on_assign=self.on_assign, on_revoke=self.on_revoke, on_lost=self.on_lost)

    def on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """Read them from the beginning."""
        self.events.append(("assign", sorted(one.partition for one in partitions)))
        self.assigned |= {one.partition for one in partitions}
        places = [TopicPartition(one.topic, one.partition, 0) for one in partitions]
        (consumer.incremental_assign if self.incremental else consumer.assign)(places)

    def on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """Let go of them."""
        self._gone("revoke", consumer, partitions)

    def on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        """They are gone."""
        self._gone("lost", consumer, partitions)

    def _gone(self, event: str, consumer: Any, partitions: list[TopicPartition]) -> None:
        self.events.append((event, sorted(one.partition for one in partitions)))
        self.assigned -= {one.partition for one in partitions}
        if self.incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def poll(self) -> None:
        """Once."""
        for message in self.consumer.consume(10, 0.05):
            if message.error():
                self.errors.append(self.world.plain(message.error()))
            else:
                self.values.append((message.partition(), message.value()))

    def member(self) -> tuple[int, str]:
        """Generation and member id."""
        return parse_group_metadata(self.consumer.consumer_group_metadata())


def settle(world: World, members: list[Followed], condition: Callable[[], bool], what: str) -> None:
    """Poll all of them until it holds."""
    def is_settled() -> bool:
        for member in members:
            member.poll()
        return condition()
    world.until(is_settled, what)


def filled(world: World) -> None:
    """A topic of two partitions with a record each."""
    world.create(2)
    producer = world.producer()
    for partition in range(2):
        world.write(producer, "x", partition)
    producer.flush(LONG_S)


def described(world: World) -> Any:
    """The group from outside."""
    found = world.admin.describe_consumer_groups([world.name])[world.name].result()
    return [found.state.name, sorted((sorted(place.partition for place in member.assignment.topic_partitions), member.group_instance_id)
                                     for member in found.members)]


def share(world: World, incremental: bool, **options: Any) -> None:
    """Two members share two partitions; one leaves, and the other has both."""
    filled(world)
    first = Followed(world, incremental, **options)
    world.note("no member yet", parse_group_metadata(first.consumer.consumer_group_metadata())[0] <= 0)
    settle(world, [first], lambda: len(first.assigned) == 2 and len(first.values) == 2, "one has both")
    world.note("first", first.events)
    world.note("member", [first.member()[0] > 0, len(first.member()[1]) > 0, described(world)])
    second = Followed(world, incremental, **options)
    settle(world, [first, second], lambda: len(first.assigned) == len(second.assigned) == 1, "each has one")
    world.note("kinds of events", [[(event, len(places)) for event, places in one.events] for one in (first, second)])
    world.until(lambda: described(world)[0] == "STABLE" and len(described(world)[1]) == 2, "it is stable")
    world.note("described", sorted(described(world)[1]))
    before = len(first.events)
    second.consumer.close()
    world.note("second's end", second.events[-1][0])
    settle(world, [first], lambda: len(first.assigned) == 2, "one has both again")
    world.note("kinds of events", [event for event, _ in first.events[before:]])
    world.attempt("delete", world.admin.delete_consumer_groups([world.name])[world.name].result)
    world.attempt("commit", first.consumer.commit, offsets=[TopicPartition(world.name, 0, 1, "m")], asynchronous=False)
    first.consumer.close()
    world.note("described", described(world))
    world.attempt("closed", first.consumer.consume, 1, 0.1)


def classic(world: World) -> None:
    """With the classic protocol."""
    share(world, incremental=False)


def shared(world: World) -> None:
    """With group.protocol=consumer."""
    options = dict.fromkeys(("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy"))

    class WithoutClassic(World):
        def member(self, **more: Any) -> Any:
            return self.reader(**{"enable_partition_eof": False, **{name: one for name, one in more.items() if name not in options}})
    world.__class__ = WithoutClassic
    share(world, incremental=True, group_protocol="consumer")


def static_member(world: World) -> None:
    """One that comes back has what it had, in the same generation; its predecessor is fenced."""
    filled(world)
    options = {"group_instance_id": "i"}
    old = Followed(world, **options)
    settle(world, [old], lambda: len(old.assigned) == 2, "it has both")
    generation, old_id = old.member()
    zombie = old.consumer.consumer_group_metadata()
    new = Followed(world, **options)
    world.until(lambda: (new.poll(), new.assigned)[1], "the other one has them")
    world.note("new", [new.events, new.member()[0] - generation, new.member()[1] != old_id])
    settle(world, [old, new], lambda: bool(old.errors), "the old one hears of it")
    for _ in range(10):
        old.poll()
    world.note("old", [old.errors, old.events])
    world.attempt("old commit", old.consumer.commit, offsets=[TopicPartition(world.name, 0, 1)], asynchronous=False)
    producer = world.transactional()
    producer.init_transactions(LONG_S)
    producer.begin_transaction()
    world.attempt("old offsets", producer.send_offsets_to_transaction, [TopicPartition(world.name, 0, 1)], zombie, LONG_S)
    world.attempt("old offsets: commit", producer.commit_transaction, LONG_S)
    world.attempt("old offsets: abort", producer.abort_transaction, LONG_S)
    producer.begin_transaction()
    world.attempt("new offsets", producer.send_offsets_to_transaction, [TopicPartition(world.name, 0, 1, "m")], new.consumer.consumer_group_metadata(), LONG_S)
    world.attempt("new offsets: commit", producer.commit_transaction, LONG_S)
    world.attempt("new commit", new.consumer.commit, offsets=[TopicPartition(world.name, 1, 1)], asynchronous=False)
    asked = TopicPartition(world.name, 0)
    world.note("committed", new.consumer.committed([asked], LONG_S))
    world.note("described", described(world))
    old.consumer.close()
    world.note("old's end", old.events)
    new.consumer.close()
    world.note("new's end", new.events)
    world.note("described", described(world))
    again = Followed(world, **options)
    settle(world, [again], lambda: len(again.assigned) == 2, "it has both")
    world.note("again", [again.events, again.member()[0] - generation])
    again.consumer.close()


def strangers(world: World) -> None:
    """Offsets sent for a generation, or a member, that is not the group's."""
    filled(world)
    member = Followed(world)
    settle(world, [member], lambda: len(member.assigned) == 2, "it has both")
    generation, member_id = member.member()
    producer = world.transactional()
    producer.init_transactions(LONG_S)

    def metadata(generation: int, member_id: str) -> bytes:
        return METADATA_MAGIC + generation.to_bytes(4, sys.byteorder, signed=True) + f"{world.name}\0{member_id}\0".encode() + b"\x01"
    for what, said in (("older", (generation - 1, member_id)), ("newer", (generation + 1, member_id)), ("unknown", (generation, "nobody")),
                       ("no generation", (-1, member_id)), ("nobody", (-1, "")), ("right", (generation, member_id))):
        producer.begin_transaction()
        offset = TopicPartition(world.name, 0, 1, what)
        world.attempt(what, lambda said=said, offset=offset: producer.send_offsets_to_transaction([offset], metadata(*said), LONG_S))
        world.attempt(f"{what}: commit", producer.commit_transaction, LONG_S)
        world.attempt(f"{what}: abort", producer.abort_transaction, LONG_S)
        world.attempt(f"{what}: committed", member.consumer.committed, [TopicPartition(world.name, 0)], LONG_S)
    other = world.reader()
    world.attempt("a stranger's commit", other.commit, offsets=[TopicPartition(world.name, 0, 2)], asynchronous=False)
    other.close()
    member.consumer.close()


SCRIPTS = (classic, shared, static_member, strangers)
