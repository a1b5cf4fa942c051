"""Writing down how far the source has nothing to copy (`common.read_up_to`), so that its deletion is no loss.

A read-up-to record may be written for a partition only when

1. everything that stage one has written is committed by stage two: the frontier was read back from the group, at the end of
   the intermediate partition;
2. a `read_committed` look at the source, from that frontier up to an offset at or below its last stable offset, has found
   nothing; with `filter.sql`, Spark has read up to there in batches that are done, and what passed is behind the frontier;
3. nothing that was looked at had been deleted before: the source still begins at or before the offset after the frontier,
   asked after the look.

It says which frontier it follows, so one that comes late, or twice, or behind records that came meanwhile, does nothing. It
is written while a partition is idle, once for each gap: a busy source costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaException, Producer

from common.kafka_clients import idempotent_producer
from common.read_up_to import HEADER, ReadUpTo, encode
from common.routes import Place, Route
from common.settings import Settings

log = logging.getLogger(__name__)
FLUSH_S = 5.0


class EmptyRange(NamedTuple):
    """Source offsets of one partition of which there is nothing to copy."""

    frontier: int
    """The gap begins behind it."""
    end: int
    """The first offset after the gap."""


class ReadUpToWriter:
    """Writes read-up-to records, each gap once; the producer is made for the first."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.producer: Producer | None = None
        self.written: dict[Place, tuple[int, EmptyRange]] = {}
        """With the epoch of the run that wrote it."""

    def write(self, epoch: int, identities: Mapping[Route, str], gaps: Mapping[Place, EmptyRange]) -> None:
        """By intermediate partition, for the run with this epoch. What is not delivered is written again by a later run."""
        by_topic = {route.intermediate_topic: identity for route, identity in identities.items()}
        for place, gap in gaps.items():
            if gap.end <= gap.frontier + 1 or self.written.get(place) == (epoch, gap):
                continue
            self.written[place] = epoch, gap
            self.producer = self.producer or idempotent_producer(self.settings.destination, self.settings, "replicator-notes")
            said = ReadUpTo(place.partition, gap.end - 1, gap.frontier, epoch, by_topic[place.topic], bool(self.settings.text("filter.sql")))
            log.debug("%s: nothing to copy behind source offset %d up to %d", place, gap.frontier, gap.end - 1)
            try:
                self.producer.produce(place.topic, partition=place.partition, headers=[(HEADER, encode(said))])
            except (KafkaException, BufferError) as failed:
                log.warning("%s: it cannot be written down that nothing is left: %s", place, failed)
        if self.producer:
            self.producer.poll(0)

    def flush(self) -> None:
        """Wait for what is on its way, for a bounded time."""
        if self.producer:
            self.producer.flush(FLUSH_S)
