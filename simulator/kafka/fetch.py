"""A consumer's positions, and reading from them: what one Fetch brings, partition ends, positions that are gone.

What was fetched waits in a buffer until the application takes it: records that a broker has lost since are handed out all the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED, KafkaError, Message, TopicPartition

from simulator.kafka.client import Client
from simulator.kafka.errors import BrokerError, ConnectionLost, RequestTimedOut, create_error
from simulator.kafka.log import Log, Record
from simulator.schedule import Signal

FETCH_RECORDS = 1000
SHORT_FETCH = 0.2
"""How often a fetch brings a few records only."""


class Slot:
    """An assigned partition."""

    __slots__ = ("begin", "end", "ended_at", "is_failed", "is_paused", "leader_epoch", "next", "partition", "position", "seen_epoch", "topic")

    def __init__(self, topic: str, partition: int, offset: int, leader_epoch: int | None) -> None:
        self.topic = topic
        self.partition = partition
        self.next = OFFSET_STORED if offset == OFFSET_INVALID else offset
        """To be fetched."""
        self.position = OFFSET_INVALID
        """After the last record that the application has."""
        self.is_paused = False
        self.is_failed = False
        """Its position is gone, and the application knows."""
        self.ended_at = -1
        """The offset at which the application was told of the partition's end."""
        self.leader_epoch = -1 if leader_epoch is None else leader_epoch
        """Of the record before the position."""
        self.seen_epoch = -1
        """The leader epoch of the last metadata."""
        self.begin = self.end = OFFSET_INVALID


class Fetched(NamedTuple):
    """What a broker answers of one partition."""

    records: list[Record]
    next: int
    begin: int
    end: int
    last_stable_offset: int
    leader_epoch: int
    marker: int = -1
    """The offset after the last marker."""
    code: int = 0
    reason: str = ""


class Fetcher(Client):
    """The part of a consumer that reads."""

    def __init__(self, network: Any, options: Any) -> None:
        super().__init__(network, options)
        self.slots: dict[tuple[str, int], Slot] = {}
        self.buffer: deque[tuple[Slot, Message | int]] = deque()
        """Messages, and positions that follow from markers alone."""
        self.wake = Signal(self.schedule)
        self.is_committed = self.options.get("isolation.level", "read_committed") == "read_committed"
        self.tells_ends = self.is_set("enable.partition.eof")
        self.reset = {"earliest": OFFSET_BEGINNING, "beginning": OFFSET_BEGINNING, "smallest": OFFSET_BEGINNING, "error": None}.get(
            str(self.options.get("auto.offset.reset", "latest")), OFFSET_END)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these too."""
        for given in partitions:
            self.slots[given.topic, given.partition] = Slot(given.topic, given.partition, given.offset, given.leader_epoch)
            log = self.cluster.find_log(given.topic, given.partition)
            if log:
                log.watchers[self.wake] = None

    def drop(self, places: Iterable[tuple[str, int]]) -> None:
        """Read these no more."""
        for place in list(places):
            self.slots.pop(place, None)
            log = self.cluster.find_log(*place)
            if log:
                log.watchers.pop(self.wake, None)
        self.buffer = deque((slot, message) for slot, message in self.buffer if self.slots.get((slot.topic, slot.partition)) is slot)

    def move(self, place: tuple[str, int], offset: int, leader_epoch: int | None) -> None:
        """Go on reading there; what was fetched of it is forgotten."""
        old = self.slots[place]
        self.drop([place])
        self.add([TopicPartition(*place, offset)])
        new = self.slots[place]
        new.is_paused, new.seen_epoch, new.begin, new.end = old.is_paused, old.seen_epoch, old.begin, old.end
        new.leader_epoch = -1 if leader_epoch is None else leader_epoch

    def take(self, count: int) -> list[Message]:
        """Up to so many of the messages that were fetched."""
        found: list[Message] = []
        held = deque[tuple[Slot, Message | int]]()
        while self.buffer and len(found) < count:
            slot, message = self.buffer.popleft()
            if slot.is_paused:
                held.append((slot, message))
                continue
            if isinstance(message, int):
                slot.position = message
                continue
            if message.error() is None:
                slot.position = int(message.offset() or 0) + 1
            found.append(message)
        self.buffer.extendleft(reversed(held))
        return found

    def fetch(self, left_s: float) -> None:
        """Fill the buffer, or wait for what comes."""
        wanted = [slot for slot in self.slots.values() if self._has_news(slot)]
        if not wanted or self.buffer:
            self.schedule.wait(self.wake, left_s)
            return
        chance = self.schedule.random
        count = chance.randint(1, 10) if chance.random() < SHORT_FETCH else FETCH_RECORDS
        try:
            answers = self.ask("Fetch", lambda: [(slot, self._fetched(slot, count)) for slot in wanted], left_s)
        except (RequestTimedOut, ConnectionLost):
            return
        for slot, answer in answers:
            if self.slots.get((slot.topic, slot.partition)) is slot:
                self._receive(slot, answer)

    def _has_news(self, slot: Slot) -> bool:
        """Whether a fetch would bring something; that nothing does costs no request here."""
        if slot.is_paused or slot.is_failed:
            return False
        log = self.cluster.find_log(slot.topic, slot.partition)
        if log is None or slot.next < 0 or slot.end < 0 or log.end < slot.next or log.leader_epoch != slot.seen_epoch or slot.next < log.begin:
            return True
        last_stable_offset = log.last_stable_offset if self.is_committed else log.end
        return slot.next < last_stable_offset or (self.tells_ends and slot.ended_at != slot.next and slot.next == last_stable_offset) or slot.end != log.end

    def _fetched(self, slot: Slot, count: int) -> Fetched:
        """The brokers' part; a logical position is looked up first."""
        try:
            log = self.cluster.log(slot.topic, slot.partition)
            offset = self._looked_up(slot, log)
            if slot.seen_epoch not in (-1, log.leader_epoch) or (slot.seen_epoch == -1 and slot.leader_epoch >= 0):
                lost_from = log.end_of_epoch(slot.leader_epoch) if slot.leader_epoch >= 0 else offset
                if lost_from < offset:
                    raise BrokerError(KafkaError._AUTO_OFFSET_RESET, f"Partition log truncation detected at offset {offset} (leader epoch {slot.leader_epoch})")
            try:
                records, following, marker = log.read(offset, count, self.is_committed)
            except BrokerError:
                if self.reset is None:
                    raise BrokerError(KafkaError._AUTO_OFFSET_RESET, "fetch failed due to requested offset not available on the broker: "
                                  "Broker: Offset out of range (broker 1)") from None
                records, following, marker = log.read(self._logical(log, self.reset), count, self.is_committed)
        except BrokerError as error:
            return Fetched([], slot.next, -1, -1, -1, -1, -1, error.code, error.reason)
        return Fetched(records, following, log.begin, log.end, log.last_stable_offset if self.is_committed else log.end, log.leader_epoch, marker)

    def _looked_up(self, slot: Slot, log: Log) -> int:
        offset = slot.next
        if offset == OFFSET_STORED:
            group = self.cluster.groups.get(str(self.options.get("group.id", "")))
            committed = group.fetch([(slot.topic, slot.partition)], self.is_committed)[slot.topic, slot.partition] if group else (-1, "", 0)
            offset = committed[0]
            if offset < 0:
                if self.reset is None:
                    raise BrokerError(KafkaError._AUTO_OFFSET_RESET, "no previously committed offset available: Local: No offset stored")
                offset = self.reset
        return self._logical(log, offset)

    def _logical(self, log: Log, offset: int) -> int:
        if offset == OFFSET_BEGINNING:
            return log.begin
        if offset == OFFSET_END:
            return log.last_stable_offset if self.is_committed else log.end
        if offset < OFFSET_STORED - 1000:  # OFFSET_TAIL
            return max(log.begin, log.end + offset + 2000)
        return offset

    def _receive(self, slot: Slot, answer: Fetched) -> None:
        if answer.code:
            slot.is_failed = True
            if slot.next >= 0:
                slot.begin = slot.end = -1
            self.buffer.append((slot, error_message(slot, answer.next, answer.code, answer.reason)))
            return
        slot.next, slot.begin, slot.end, slot.seen_epoch = answer.next, answer.begin, answer.end, answer.leader_epoch
        topic, partition = slot.topic, slot.partition
        for record in answer.records:
            self.buffer.append((slot, Message(topic, partition, record.offset, record.key, record.value,
                                              list(record.headers) if record.headers else None, None,
                                              (record.timestamp_type, record.timestamp_ms), 0.0, record.leader_epoch)))
        if answer.records:
            slot.leader_epoch = answer.records[-1].leader_epoch
        if answer.marker > (answer.records[-1].offset if answer.records else -1):
            self.buffer.append((slot, answer.marker))
        if self.tells_ends and slot.next == answer.last_stable_offset and slot.ended_at != slot.next:
            slot.ended_at = slot.next
            self.buffer.append((slot, error_message(slot, slot.next, KafkaError._PARTITION_EOF, "Fetch from broker 1 reached end of partition at offset "
                                                    f"{slot.next} (HighwaterMark {answer.end})")))


def error_message(slot: Slot, offset: int, code: int, reason: str) -> Message:
    """What a poll returns in place of a record."""
    return Message(slot.topic, slot.partition, offset, None, reason.encode(), None, create_error(code, reason))
