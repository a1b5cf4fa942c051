"""The health of all source candidates while a run lives: which one answers, and how far it is
(`source.mode=failover`).

Every `source.healthcheck_interval_ms` all candidates are asked at once for the last stable offsets
of their partitions. Nothing waits for the answers: they are evaluated when all have arrived or
timed out. The candidate that is copied from is `lost` when it did not answer and another one did.
It is `lagging` when another one is ahead by more than `source.offset_lag_threshold`, so a candidate
with a hanging transaction is left. Candidates that the last selection refused do not count. A
candidate that answers that its partitions have new leaders, or none, is unhealthy in this round;
the client refreshes its metadata for the next round.

Both events only end the run. The next source is then selected anew, with more checks
(`replicator.candidates.source_selection`), and may be the same one. So `lagging` is reported at
most once in `source.backoff_max_ms`: candidates that overtake one another, or one that is ahead and
cannot be copied from, do not end each run.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import OffsetSpec

from common import runtime
from common.kafka import partition_offsets
from common.kafka.clients import create_admin_client
from common.kafka.partition_offsets import get_offset
from common.metrics import SOURCE_ERRORS, SOURCE_HIGH_WATERMARK, SOURCE_LAGGED
from common.routes import TopicPartition
from common.settings import Settings
from common.source_candidates import get_request_timeout_s
from replicator.candidates.source_selection import SourceSelection
from replicator.run import Event

log = logging.getLogger(__name__)
OffsetFutures = Mapping[ClientTopicPartition, Future[Any]]
NO_LEADER = (KafkaError._NOENT, KafkaError._UNKNOWN_PARTITION)
"""What the client itself returns for a partition that, by its metadata, has no leader."""


class CandidateHealth:
    """Asks the candidates; does nothing when there is only one source."""

    def __init__(self, settings: Settings, selection: SourceSelection) -> None:
        self.settings = settings
        self.selection = selection
        has_candidates = len(settings.sources) > 1
        self.clients = (
            [create_admin_client(cluster, settings) for cluster in settings.sources]
            if has_candidates
            else []
        )
        self.interval_s = settings.source.healthcheck_interval_ms / 1000
        self.next_round_at = self.next_lagging_at = 0.0
        self.pending: list[OffsetFutures] = []

    def poll(self, topic_partitions: Collection[TopicPartition]) -> Event | None:
        """Evaluate a complete round of answers (`lost`, `lagging` or None), or start the next round
        when it is due.
        """
        if self.pending and all(
            future.done() for answers in self.pending for future in answers.values()
        ):
            round_, self.pending = self.pending, []
            return self.evaluate_round(
                {
                    number: self._sum_stable_ends(number, answers)
                    for number, answers in enumerate(round_)
                }
            )
        if self.clients and not self.pending and runtime.monotonic() >= self.next_round_at:
            self.next_round_at = runtime.monotonic() + self.interval_s
            specs = {ClientTopicPartition(*tp): OffsetSpec.latest() for tp in topic_partitions}
            self.pending = [
                client.list_offsets(
                    specs,
                    isolation_level=IsolationLevel.READ_COMMITTED,
                    request_timeout=get_request_timeout_s(self.settings),
                )
                for client in self.clients
            ]
        return None

    def _sum_stable_ends(self, number: int, answers: OffsetFutures) -> int | None:
        name = self.settings.sources[number].bootstrap_servers
        try:
            end_sum = sum(get_offset(future.result()) for future in answers.values())
        except KafkaException as failed:
            error = failed.args[0]
            SOURCE_ERRORS.labels(name, error.name()).inc()
            if error.code() > 0 or error.code() in NO_LEADER:  # the broker answers
                self._refresh_metadata(number, {tp.topic for tp in answers})
            return None
        SOURCE_HIGH_WATERMARK.labels(name).set(end_sum)
        return end_sum

    def _refresh_metadata(self, number: int, names: Iterable[str]) -> None:
        with contextlib.suppress(KafkaException):  # the next round tries again
            partition_offsets.refresh_metadata(
                self.clients[number], names, get_request_timeout_s(self.settings)
            )

    def evaluate_round(self, end_sums: Mapping[int, int | None]) -> Event | None:
        """Evaluate one round of answers for the candidate that is copied from."""
        current = self.selection.current
        assert current is not None
        event = evaluate(
            {
                number: end_sum
                for number, end_sum in end_sums.items()
                if number == current or number not in self.selection.refused
            },
            current,
            self.settings.source.offset_lag_threshold,
        )
        names = [cluster.bootstrap_servers for cluster in self.settings.sources]
        if event == "lost":
            log.warning("source candidate %s does not answer", names[current])
        elif event == "lagging":
            if runtime.monotonic() < self.next_lagging_at:
                return None
            self.next_lagging_at = runtime.monotonic() + self.settings.source.backoff_max_ms / 1000
            SOURCE_LAGGED.labels(names[current]).inc()
            log.warning(
                "source candidate %s is behind: %s",
                names[current],
                {names[number]: end_sum for number, end_sum in end_sums.items()},
            )
        return event


def evaluate(end_sums: Mapping[int, int | None], current: int, threshold: int) -> Event | None:
    """The event for the candidate that is copied from. In `end_sums`, None is a candidate that did
    not answer.
    """
    others = [
        end_sum for number, end_sum in end_sums.items() if number != current and end_sum is not None
    ]
    mine = end_sums[current]
    if not others:
        return None
    if mine is None:
        return "lost"
    return "lagging" if max(others) - mine > threshold else None
