"""Writes envelopes without records. They say

- that a run with a new epoch begins (`after` = `through` = -1; `replicator.runs.epochs`), or
- that the source has nothing to copy after the frontier up to some offset: only transaction markers
  and aborted records, which no reader ever sees. Their deletion by retention is no loss then, and
  a later start does not read them again.

The second kind is a statement about the source, which stage two believes whenever it arrives. It
may be made only when

1. a `read_committed` reader found no record from the offset after the frontier up to an end that is
   not above the last stable offset;
2. after that read, the source still begins at or before the offset after the frontier: nothing of
   the range was deleted before it was read;
3. after that read, the leader epoch of the partition is the one from before it, the last stable
   offset is not below that end, and no broker can have been away in between. Otherwise the leader
   that was read may have been replaced by one that lacks what it had; the same offsets then become
   other records, which the statement would leave out;
4. the source still has the last record that was copied (`replicator.runs.last_record_check`).

`replicator.runs.watch` sees to them. With `filter.sql` there is no difference: the sink's own
envelopes go on over records that are left out.

An envelope is written once, and again when it was not delivered, or after a while when it has had
no effect: the intermediate topic may have lost it. A busy source costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from common import clock
from common.envelope import Head, encode_empty
from common.kafka.client_errors import find_client_failure
from common.kafka.clients import create_idempotent_producer
from common.routes import Route, TopicPartition
from common.settings import Settings

log = logging.getLogger(__name__)
METADATA_TIMEOUT_S = 1.0
STATE_AGAIN_S = 60.0
"""When the same statement is written again: far more than stage two needs for one envelope."""


class EmptyEnvelopes:
    """Writes them, one at a time for each partition; creates its producer for the first one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.producer: Producer | None = None
        self.written: dict[TopicPartition, tuple[Head, float]] = {}
        """By intermediate partition, the last envelope that is delivered or on its way, and when it
        was written.
        """
        self.undelivered: set[TopicPartition] = set()
        """The intermediate partitions whose last envelope could not be written."""

    def write(self, heads: Mapping[TopicPartition, Head], again_after_s: float) -> None:
        """Write these envelopes, by intermediate partition; the same one again only after so many
        seconds. What cannot be delivered, the next call writes again.
        """
        now_s = clock.monotonic()
        unknown: set[str] = set()
        for tp, head in heads.items():
            last, written_at_s = self.written.get(tp, (None, 0.0))
            if last == head and now_s < written_at_s + again_after_s:
                continue
            self.producer = self.producer or create_idempotent_producer(
                self.settings.destination_cluster, self.settings, "replicator-notes"
            )
            log.debug("%s: writing the empty envelope %s", tp, head)
            try:
                self.producer.produce(
                    tp.topic,
                    value=encode_empty(head),
                    partition=tp.partition,
                    on_delivery=partial(self._on_delivery, tp),
                )
            # for example a partition that is new, and not yet known to the producer
            except (KafkaException, BufferError) as failed:
                self._note_failure(tp, "is not written yet", failed)
                unknown.add(tp.topic)
            else:
                self.written[tp] = head, now_s
        self._serve_deliveries()
        self._refresh_metadata(unknown)

    def _refresh_metadata(self, names: Iterable[str]) -> None:
        """So that the next call finds the partitions: by itself the client asks seconds later."""
        if self.producer is not None:
            with suppress(KafkaException):
                for name in sorted(names):
                    self.producer.list_topics(name, METADATA_TIMEOUT_S)

    def _on_delivery(self, tp: TopicPartition, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.undelivered.discard(tp)
        else:
            self._note_failure(tp, "is not delivered", error)

    def _note_failure(self, tp: TopicPartition, what: str, reason: object) -> None:
        is_repeated = tp in self.undelivered
        log.log(
            logging.DEBUG if is_repeated else logging.INFO,
            "%s: the empty envelope %s: %s",
            tp,
            what,
            reason,
        )
        self.written.pop(tp, None)
        self.undelivered.add(tp)

    def _serve_deliveries(self) -> None:
        """Serve delivery reports. A producer with a fatal error is replaced: an idempotent one has
        it when the broker lost one of its records.
        """
        if self.producer is None:
            return
        try:
            self.producer.poll(0)
        except (KafkaException, SystemError) as raised:
            failed = find_client_failure(raised)
            if failed is None:
                raise
            log.warning("a new producer writes the empty envelopes, after: %s", failed)
            self.producer = None
            self.written.clear()


def build_empty_heads(
    epoch: int,
    identities: Mapping[Route, str],
    empty_ranges: Mapping[TopicPartition, tuple[int, int]],
) -> dict[TopicPartition, Head]:
    """The envelopes of the run with this epoch which say that the source has nothing to copy in
    these ranges: by intermediate partition, the first source offset and the one after the last.
    """
    routes = {route.intermediate_topic: route for route in identities}
    heads = {}
    for tp, (begin, end) in empty_ranges.items():
        if end > begin:
            route = routes[tp.topic]
            partition = route.get_source(tp.partition).partition
            heads[tp] = Head(identities[route], epoch, partition, begin - 1, end - 1)
    return heads
