"""The health of all candidates while a run lives: who answers, and who is how far (`source.mode=failover`).

Every `source.healthcheck_interval_ms` all are asked at once for the last stable offsets of their partitions, and nobody waits for the answers: they are
looked at when all are there or have timed out. The candidate that is copied from is lost when it did not answer and another did; it lags when another is
further by more than `source.offset_lag_threshold`, so one with a transaction that hangs is left. Those that were refused when it was chosen count for neither.
One that answers that its partitions have other leaders now, or none, is not healthy either, in this round; the client learns its leaders for the next.

Both events only end the run. The next source is then selected anew, with more checks (`replicator.source_selection`), and may be the same one. So `lagging` is
reported at most once in `source.backoff_max_ms`: candidates that overtake one another, or one that is ahead and cannot be copied from, do not end each run.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from common import machine, positions
from common.kafka_clients import admin
from common.metrics import SOURCE_ERRORS, SOURCE_HIGH_WATERMARK, SOURCE_LAGGED
from common.positions import answered
from common.routes import Place
from common.settings import Settings
from common.source_candidates import request_timeout_s
from replicator.run import Event
from replicator.source_selection import SourceSelection

log = logging.getLogger(__name__)
OffsetFutures = Mapping[TopicPartition, Future[Any]]
NO_LEADER = (KafkaError._NOENT, KafkaError._UNKNOWN_PARTITION)
"""What a client says by itself of partitions that have no leader, as it was told."""


class Health:
    """Asks; with one source it does nothing."""

    def __init__(self, settings: Settings, selection: SourceSelection) -> None:
        self.settings = settings
        self.selection = selection
        several = len(settings.sources) > 1
        self.clients = [admin(cluster, settings) for cluster in settings.sources] if several else []
        self.interval_s = settings.number("source.healthcheck_interval_ms") / 1000
        self.next_round_at = self.next_lagging_at = 0.0
        self.pending: list[OffsetFutures] = []

    def poll(self, places: Collection[Place]) -> Event | None:
        """`lost` or `lagging` when a round of answers says so; asks the next round when it is due."""
        if self.pending and all(future.done() for answers in self.pending for future in answers.values()):
            round_, self.pending = self.pending, []
            return self.evaluate_round({number: self._sum_stable_ends(number, answers) for number, answers in enumerate(round_)})
        if self.clients and not self.pending and machine.monotonic() >= self.next_round_at:
            self.next_round_at = machine.monotonic() + self.interval_s
            wanted = {TopicPartition(*place): OffsetSpec.latest() for place in places}
            self.pending = [client.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=request_timeout_s(self.settings))
                          for client in self.clients]
        return None

    def _sum_stable_ends(self, number: int, answers: OffsetFutures) -> int | None:
        name = self.settings.sources[number].bootstrap_servers
        try:
            found = sum(answered(future.result()) for future in answers.values())
        except KafkaException as failed:
            error = failed.args[0]
            SOURCE_ERRORS.labels(name, error.name()).inc()
            if error.code() > 0 or error.code() in NO_LEADER:  # it answers
                self._refresh_metadata(number, {place.topic for place in answers})
            return None
        SOURCE_HIGH_WATERMARK.labels(name).set(found)
        return found

    def _refresh_metadata(self, number: int, names: Iterable[str]) -> None:
        with contextlib.suppress(KafkaException):  # the next round tells
            positions.renew(self.clients[number], names, request_timeout_s(self.settings))

    def evaluate_round(self, watermarks: Mapping[int, int | None]) -> Event | None:
        """One round's verdict on the candidate that is copied from."""
        current = self.selection.current
        assert current is not None
        event = evaluate({number: mark for number, mark in watermarks.items() if number == current or number not in self.selection.refused}, current,
                       self.settings.number("source.offset_lag_threshold"))
        names = [cluster.bootstrap_servers for cluster in self.settings.sources]
        if event == "lost":
            log.warning("source candidate %s does not answer", names[current])
        elif event == "lagging":
            if machine.monotonic() < self.next_lagging_at:
                return None
            self.next_lagging_at = machine.monotonic() + self.settings.number("source.backoff_max_ms") / 1000
            SOURCE_LAGGED.labels(names[current]).inc()
            log.warning("source candidate %s is behind: %s", names[current], {names[number]: mark for number, mark in watermarks.items()})
        return event


def evaluate(watermarks: Mapping[int, int | None], current: int, threshold: int) -> Event | None:
    """The verdict on the candidate that is copied from; None stands for one that did not answer."""
    others = [mark for number, mark in watermarks.items() if number != current and mark is not None]
    mine = watermarks[current]
    if not others:
        return None
    if mine is None:
        return "lost"
    return "lagging" if max(others) - mine > threshold else None
