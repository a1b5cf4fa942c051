"""While a worker runs, checks regularly that the destination topics were not recreated, and that
their end offsets are high enough.

The destination (`destination.py`) detects a loss with the next records. This detects it also while
no records arrive, and before anything is written to a recreated topic, so that the next start finds
the topic empty and copies everything again. It does not block: the answers are read a second later.
A request without an answer is sent again; a topic that does not exist fails the next transaction.

An end offset that is too low has to come twice: a leader that was replaced, and does not know it
yet, answers with an old one. Before the second request the client renews its metadata, which waits
for an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from common import clock
from common.errors import DestinationTruncated
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.partition_offsets import refresh_metadata
from common.kafka.topics import NO_TOPIC_ID
from common.routes import TopicPartition

log = logging.getLogger(__name__)
REQUEST_INTERVAL_S = 5.0


class DestinationWatch:
    """The pending requests, and the checks of their answers."""

    def __init__(self, client: AdminClient) -> None:
        self.client = client
        self.next_request_at = clock.monotonic() + REQUEST_INTERVAL_S
        self.described: dict[str, tuple[str, Future[Any]]] = {}
        """By topic: the id that it has to have, and the answer."""
        self.ends: dict[TopicPartition, tuple[int, Future[Any]]] = {}
        """By partition: the lowest possible offset of its last record, and the answer."""
        self.too_low: set[TopicPartition] = set()
        """The partitions whose last answer was too low."""

    def poll(
        self, topic_ids: Mapping[str, str], last_offsets: Mapping[TopicPartition, int]
    ) -> None:
        """Check answers, and send requests when it is time; DestinationTruncated for a topic with
        another id, or an end offset that is too low.
        """
        for name in [name for name, (_, answer) in self.described.items() if answer.done()]:
            self._check_id(name, *self.described.pop(name))
        for tp in [tp for tp, (_, answer) in self.ends.items() if answer.done()]:
            self._check_end(tp, *self.ends.pop(tp))
        if self.described or self.ends or not topic_ids or clock.monotonic() < self.next_request_at:
            return
        self.next_request_at = clock.monotonic() + REQUEST_INTERVAL_S
        answers = self.client.describe_topics(
            TopicCollection(list(topic_ids)), request_timeout=REQUEST_TIMEOUT_S
        )
        self.described = {name: (topic_ids[name], answer) for name, answer in answers.items()}
        if last_offsets:
            specs = {ClientTopicPartition(*tp): OffsetSpec.latest() for tp in last_offsets}
            ends = self.client.list_offsets(specs, request_timeout=REQUEST_TIMEOUT_S)
            by_tp = {
                TopicPartition(partition.topic, partition.partition): answer
                for partition, answer in ends.items()
            }
            self.ends = {tp: (last_offsets[tp], answer) for tp, answer in by_tp.items()}

    def _check_id(self, name: str, expected_id: str, answer: Future[Any]) -> None:
        try:
            topic_id = str(answer.result().topic_id)
        except KafkaException as failed:
            log.debug("%s cannot be described now: %s", name, failed)
            return
        if expected_id and topic_id not in (expected_id, NO_TOPIC_ID):
            raise DestinationTruncated(
                f"the destination topic {name} was deleted and recreated while it was copied to:"
                " the copied records are lost. Start again to copy it from the beginning, if it is"
                " still empty",
                topic=name,
            )

    def _check_end(self, tp: TopicPartition, last_offset: int, answer: Future[Any]) -> None:
        try:
            end = int(answer.result().offset)
        except KafkaException as failed:
            log.debug("the end of %s cannot be read now: %s", tp, failed)
            return
        # a request that timed out is answered with a negative offset (confluent-kafka 2.16)
        if end < 0:
            return
        was_too_low = tp in self.too_low
        self.too_low.discard(tp)
        if end <= last_offset and not was_too_low:
            log.warning("%s ends at %d, below offset %d: asking again", tp, end, last_offset)
            self.too_low.add(tp)
            with suppress(KafkaException):
                refresh_metadata(self.client, [tp.topic], REQUEST_TIMEOUT_S)
            self.next_request_at = clock.monotonic()
        elif end <= last_offset:
            raise DestinationTruncated(
                f"{tp} lost records while it was copied to: offset {last_offset} was written,"
                f" the partition ends at {end}. Copy to a new topic, or restore this one",
                topic=tp.topic,
            )
