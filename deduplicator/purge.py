"""Deletes what is committed from the intermediate topics, so that they stay small.

A request is sent at intervals, and its answer is collected before the next one: a cluster that does
not answer delays nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient

from common import clock
from common.metrics import PURGED
from common.routes import TopicPartition

log = logging.getLogger(__name__)
PURGE_INTERVAL_S = 10.0


class Purge:
    """Deletes committed intermediate records regularly, as Kafka Streams does."""

    def __init__(self, client: AdminClient) -> None:
        self.client = client
        self.next_request_at = clock.monotonic() + PURGE_INTERVAL_S
        self.purged_offsets: dict[TopicPartition, int] = {}
        self.pending: dict[ClientTopicPartition, Any] = {}

    def delete_committed(self, committed: Mapping[TopicPartition, int]) -> None:
        """Request the deletion of what is committed, if it is time; does not block."""
        if clock.monotonic() < self.next_request_at:
            return
        self.next_request_at = clock.monotonic() + PURGE_INTERVAL_S
        self._collect_answers()
        for tp, offset in committed.items():
            # in another topic, or in one that lost its newest records
            if offset < self.purged_offsets.get(tp, 0):
                del self.purged_offsets[tp]
        before_offsets = [
            ClientTopicPartition(*tp, offset)
            for tp, offset in committed.items()
            if offset > self.purged_offsets.get(tp, 0)
        ]
        if before_offsets and not self.pending:
            self.pending = self.client.delete_records(before_offsets)

    def _collect_answers(self) -> None:
        for before_offset, future in list(self.pending.items()):
            if not future.done():
                continue
            del self.pending[before_offset]
            tp = TopicPartition(before_offset.topic, before_offset.partition)
            try:
                future.result()
                self.purged_offsets[tp] = before_offset.offset
                PURGED.labels(tp.topic, str(tp.partition)).set(before_offset.offset)
            except KafkaException as failed:
                log.warning("%s cannot be purged, it will grow: %s", tp, failed.args[0].str())
