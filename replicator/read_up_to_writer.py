"""Writes read-up-to records to the intermediate topic (`common.read_up_to_record`): how far the
source has nothing to copy, so that a deletion there is no loss.

A read-up-to record may be written for a partition only when

1. stage two has committed everything that stage one has written: the frontier was read from the
   group, and it is at the end of the intermediate partition;
2. a `read_committed` consumer found no record in the source between that frontier and an offset at
   or below the last stable offset; with `filter.sql`, Spark has read up to there in completed
   batches, and what passed is below the frontier;
3. nothing in that range had been deleted before: after the read, the source still begins at or
   before the offset after the frontier.

The record names the frontier that it follows. So it does nothing when it arrives late, twice, or
after newer records. It is written while a partition is idle, once in a run for each empty range,
and again when it was not delivered, or has had no effect for REWRITE_S: a new leader of the
intermediate topic may have lost it. A busy source costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from common import runtime
from common.kafka.client_errors import find_client_failure
from common.kafka.clients import create_idempotent_producer
from common.read_up_to_record import HEADER, ReadUpTo, encode
from common.routes import Route, TopicPartition
from common.settings import Settings

log = logging.getLogger(__name__)
FLUSH_S = 5.0
REWRITE_S = 60.0
"""Far more than stage two needs for one record."""


class EmptyRange(NamedTuple):
    """Source offsets of one partition with nothing to copy."""

    frontier: int
    """The range begins at the offset after it."""
    end: int
    """The first offset after the range."""


class ReadUpToWriter:
    """Writes read-up-to records, one for each range; creates its producer for the first one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.producer: Producer | None = None
        self.written: dict[TopicPartition, tuple[tuple[int, EmptyRange], float]] = {}
        """By intermediate partition, the last range that is delivered or on its way, with the epoch
        of the run that wrote it; and when that was.
        """

    def write(
        self,
        epoch: int,
        identities: Mapping[Route, str],
        ranges: Mapping[TopicPartition, EmptyRange],
    ) -> None:
        """Write the ranges, by intermediate partition, for the run with this epoch. What cannot be
        delivered, the next call with this range writes again.
        """
        by_topic = {route.intermediate_topic: identity for route, identity in identities.items()}
        for tp, empty_range in ranges.items():
            last, written_at = self.written.get(tp, (None, 0.0))
            is_written = (
                last == (epoch, empty_range) and runtime.monotonic() < written_at + REWRITE_S
            )
            if is_written or empty_range.end <= empty_range.frontier + 1:
                continue
            self.producer = self.producer or create_idempotent_producer(
                self.settings.destination_cluster, self.settings, "replicator-notes"
            )
            record = ReadUpTo(
                tp.partition,
                empty_range.end - 1,
                empty_range.frontier,
                epoch,
                by_topic[tp.topic],
                bool(self.settings.filter.sql),
            )
            log.debug(
                "%s: nothing to copy after source offset %d up to %d",
                tp,
                empty_range.frontier,
                empty_range.end - 1,
            )
            try:
                self.producer.produce(
                    tp.topic,
                    partition=tp.partition,
                    headers=[(HEADER, encode(record))],
                    on_delivery=partial(self._note_delivery, tp),
                )
            # for example a partition that is new, and not yet known to the producer
            except (KafkaException, BufferError) as failed:
                log.info("%s: the read-up-to record is not written yet: %s", tp, failed)
            else:
                self.written[tp] = (epoch, empty_range), runtime.monotonic()
        self._serve_deliveries(lambda producer: producer.poll(0))

    def _note_delivery(self, tp: TopicPartition, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            log.info("%s: the read-up-to record is not delivered: %s", tp, error)
            self.written.pop(tp, None)

    def flush(self) -> None:
        """Wait at most FLUSH_S for deliveries."""
        self._serve_deliveries(lambda producer: producer.flush(FLUSH_S))

    def _serve_deliveries(self, serve: Callable[[Producer], object]) -> None:
        """Serve delivery reports. A producer with a fatal error is replaced: an idempotent one has
        it when the broker lost one of its records.
        """
        if self.producer is None:
            return
        try:
            serve(self.producer)
        except (KafkaException, SystemError) as raised:
            failed = find_client_failure(raised)
            if failed is None:
                raise
            log.warning("a new producer writes the read-up-to records, after: %s", failed)
            self.producer = None
            self.written.clear()
