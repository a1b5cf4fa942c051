"""What one Fetch returns: the position that it has, records or an offset out of range, and the
truncation of a log.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED, KafkaError

from tools.simulator.kafka.client import Client
from tools.simulator.kafka.errors import BrokerError
from tools.simulator.kafka.log import Log
from tools.simulator.kafka.log_records import Record


class PartitionState:
    """The state of an assigned partition."""

    __slots__ = (
        "begin",
        "end",
        "eof_offset",
        "is_offset_lost",
        "is_paused",
        "leader_epoch",
        "metadata_epoch",
        "next",
        "partition",
        "position",
        "retried_at",
        "topic",
    )

    def __init__(self, topic: str, partition: int, offset: int, leader_epoch: int | None) -> None:
        self.topic = topic
        self.partition = partition
        self.next = OFFSET_STORED if offset == OFFSET_INVALID else offset
        """The next offset to fetch."""
        self.position = OFFSET_INVALID
        """The offset after the last record that the application has."""
        self.is_paused = False
        self.is_offset_lost = False
        """Whether its offset is lost, and the application has got the error."""
        self.eof_offset = -1
        """The offset of the last partition EOF that the application got."""
        self.retried_at = 0.0
        """When a partition that did not exist is asked for again."""
        self.leader_epoch = -1 if leader_epoch is None else leader_epoch
        """The leader epoch of the record before the position."""
        self.metadata_epoch = -1
        """The leader epoch of the last fetch."""
        self.begin = self.end = OFFSET_INVALID


class FetchAnswer(NamedTuple):
    """The response of a Fetch for one partition."""

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


class FetchAnswers(Client):
    """The part of a consumer that knows what a broker answers to its fetches."""

    def __init__(self, network: Any, options: Any) -> None:
        super().__init__(network, options)
        self.is_read_committed = (
            self.options.get("isolation.level", "read_committed") == "read_committed"
        )
        self.offset_reset = {
            "earliest": OFFSET_BEGINNING,
            "beginning": OFFSET_BEGINNING,
            "smallest": OFFSET_BEGINNING,
            "error": None,
        }.get(str(self.options.get("auto.offset.reset", "latest")), OFFSET_END)

    def answer_fetch(self, state: PartitionState, count: int) -> FetchAnswer:
        """The broker's response. A logical position is resolved first."""
        try:
            log = self.cluster.log(state.topic, state.partition)
            offset = self._resolve_position(state, log)
            if state.metadata_epoch not in (-1, log.leader_epoch) or (
                state.metadata_epoch == -1 and state.leader_epoch >= 0
            ):
                lost_from = (
                    log.end_of_epoch(state.leader_epoch) if state.leader_epoch >= 0 else offset
                )
                if lost_from < offset and self.offset_reset is None:
                    raise BrokerError(
                        KafkaError._AUTO_OFFSET_RESET,
                        f"Partition log truncation detected at offset {offset} (leader epoch"
                        f" {state.leader_epoch})",
                    )
                # else the client goes on where the records that it has read end
                offset = min(offset, lost_from)
            fetched_end = log.fetched_end
            # a broker that has fewer records answers OFFSET_NOT_AVAILABLE, and is asked again
            if fetched_end < offset <= log.end:
                return FetchAnswer([], state.next, log.begin, fetched_end, -1, log.leader_epoch)
            try:
                records, following, marker = log.read(offset, count, self.is_read_committed)
            except BrokerError:
                if self.offset_reset is None:
                    raise BrokerError(
                        KafkaError._AUTO_OFFSET_RESET,
                        "fetch failed due to requested offset not available on the broker: "
                        "Broker: Offset out of range (broker 1)",
                    ) from None
                records, following, marker = log.read(
                    self.resolve_logical_offset(log, self.offset_reset),
                    count,
                    self.is_read_committed,
                )
        except BrokerError as error:
            return FetchAnswer([], state.next, -1, -1, -1, -1, -1, error.code, error.reason)
        if following > fetched_end:
            records = [record for record in records if record.offset < fetched_end]
            following, marker = fetched_end, min(marker, fetched_end)
        end = log.last_stable_offset if self.is_read_committed else log.end
        return FetchAnswer(
            records,
            following,
            log.begin,
            fetched_end,
            min(end, fetched_end),
            log.leader_epoch,
            marker,
        )

    def _resolve_position(self, state: PartitionState, log: Log) -> int:
        offset = state.next
        if offset == OFFSET_STORED:
            group = self.cluster.groups.get(str(self.options.get("group.id", "")))
            committed = (
                group.fetch([(state.topic, state.partition)], self.is_read_committed)[
                    state.topic, state.partition
                ]
                if group
                else (-1, "", 0)
            )
            offset = committed[0]
            if offset < 0:
                if self.offset_reset is None:
                    raise BrokerError(
                        KafkaError._AUTO_OFFSET_RESET,
                        "no previously committed offset available: Local: No offset stored",
                    )
                offset = self.offset_reset
        return self.resolve_logical_offset(log, offset)

    def resolve_logical_offset(self, log: Log, offset: int) -> int:
        """The offset for OFFSET_BEGINNING, OFFSET_END and OFFSET_TAIL; others as they are."""
        if offset == OFFSET_BEGINNING:
            return log.begin
        if offset == OFFSET_END:
            return log.last_stable_offset if self.is_read_committed else log.end
        if offset < OFFSET_STORED - 1000:  # OFFSET_TAIL
            return max(log.begin, log.end + offset + 2000)
        return offset
