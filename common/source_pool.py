"""The source pool: clusters that have the same topics with the same records at the same offsets, of
which one is copied from at a time (`source.mode=failover`). In single mode it has one cluster.

A topic has another identity in each cluster, so an identity cannot say what was copied. The records
can: stage one begins a run on a candidate only when the copy's last records are that candidate's
(`replicator.runs.tail_comparison`), whether it copied from that candidate before or not. So no
state is kept about candidates. With failover, a frontier identifies the copied topic by its name
alone (`find_copied_identity`), and stage two does not need to know the candidate.

**Any of them.** Stage two and the command line ask the source little: how many partitions it has,
and where a first frontier begins. Any candidate can answer (`select_answering`, `try_sources`).

**The one of the next run.** Stage one has a `SourcePool`. Before every run all candidates are
checked, including the one that was copied from last. They are tried in the order of the setting,
beginning with that one; the first that answers, passes the checks of
`replicator.runs.source_selection` and is not behind another by more than
`source.offset_lag_threshold` is selected. A candidate that fails a check is logged each time, and
the lag of the others is not measured against it. When all candidates are refused, and none of them
is only silent or behind, the service ends (SourceRefused). Otherwise it waits.

**While a run lives**, every `source.healthcheck_interval_ms` all candidates are asked at once for
the last stable offsets of their partitions. Nothing waits for the answers: they are evaluated when
all have arrived or timed out. The candidate that is copied from is `lost` when it did not answer
and another one did. It is `lagging` when another one is ahead by more than the threshold, so a
candidate with a hanging transaction is left. Candidates that the last selection refused do not
count. A candidate that answers that its partitions have new leaders, or none, is unhealthy in this
round; the client refreshes its metadata for the next one. Both events only end the run, and the
next source may be the same one. So `lagging` is reported at most once in `source.backoff_max_ms`:
candidates that overtake one another, or one that is ahead and cannot be copied from, do not end
each run.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson
from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from common import clock
from common.envelope import compute_identity
from common.errors import (
    AccessRefused,
    ClusterUnreachable,
    ReoError,
    SourceRefused,
    SourceTruncated,
    Stop,
    TopicMissing,
    TopicsUnfit,
)
from common.frontier import Frontier
from common.kafka import partition_offsets, source_topics
from common.kafka.clients import create_admin_client
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.partition_offsets import get_offset
from common.kafka.topics import Topic
from common.metrics import (
    SOURCE_CONNECTIONS,
    SOURCE_ERRORS,
    SOURCE_HIGH_WATERMARK,
    SOURCE_LAGGED,
    SOURCE_REFUSED,
    SOURCE_SWITCHES,
    SOURCE_UNHEALTHY,
)
from common.routes import Route, TopicPartition
from common.settings import Settings

log = logging.getLogger(__name__)
PAUSE_S = 0.1
SourceTopics = dict[Route, Topic]
HealthEvent = Literal["lost", "lagging"]
LACKS = (AccessRefused, ClusterUnreachable, TopicMissing, TopicsUnfit)
"""What one candidate can lack, and another one have. (A candidate that is the destination itself,
say, is an error of the settings.)
"""
NO_LEADER = (KafkaError._NOENT, KafkaError._UNKNOWN_PARTITION)
"""What the client itself returns for a partition that, by its metadata, has no leader."""


class SourceSnapshot(NamedTuple):
    """The topics and offsets of a candidate at one moment."""

    settings: Settings
    """With this candidate as the only source."""
    sources: SourceTopics
    beginnings: dict[TopicPartition, int]
    """By source partition, like `ends` and `stable_ends`."""
    ends: dict[TopicPartition, int]
    stable_ends: dict[TopicPartition, int]
    """The last stable offsets: up to these the candidate can be copied."""

    @property
    def stable_end_sum(self) -> int:
        """How far it is, compared with others: a hanging transaction leaves it behind."""
        return sum(self.stable_ends.values())


def take_snapshot(
    settings: Settings, known: SourceTopics | None = None
) -> SourceSnapshot | ReoError:
    """A snapshot of the only source, or why it failed; of `known` topics only the offsets."""
    timeout_s = get_request_timeout_s(settings)
    try:
        client = create_admin_client(settings.source_cluster, settings)  # each thread needs its own
        sources = (
            known
            if known is not None
            else source_topics.describe_sources(settings, client, timeout_s)
        )
        topic_partitions = source_topics.list_source_partitions(sources)
        return SourceSnapshot(
            settings,
            sources,
            partition_offsets.list_beginning_offsets(client, topic_partitions, timeout_s),
            partition_offsets.list_end_offsets(client, topic_partitions, timeout_s=timeout_s),
            partition_offsets.list_end_offsets(
                client, topic_partitions, committed_only=True, timeout_s=timeout_s
            ),
        )
    except ReoError as failed:
        SOURCE_ERRORS.labels(settings.source_cluster.bootstrap_servers, type(failed).__name__).inc()
        return failed


def take_snapshots(settings: Settings) -> list[SourceSnapshot | ReoError]:
    """Snapshots of all candidates, in the order of the settings, taken at the same time."""
    return clock.run_parallel(take_snapshot, map(settings.select_source, settings.sources))


def select_answering(settings: Settings) -> Settings:
    """The settings with the furthest candidate that answers as the only source. When none does in
    `connect_timeout_s`: ClusterUnreachable if any of them is silent, since that one may have what
    others lack; otherwise the first candidate's error.
    """
    return find_furthest(settings)[0]


def find_furthest(settings: Settings) -> tuple[Settings, list[ReoError]]:
    """The same, and the errors of the others: one of them can have more records."""
    answering, errors = _list_answering(settings)
    return answering[0], errors


def try_sources(
    settings: Settings, prepare: Callable[..., SourceTopics], *more: object
) -> SourceTopics:
    """The topics that `prepare` returns with the furthest candidate that lacks nothing; it gets
    that candidate's settings, and `more`. When all that answer lack something, the error is chosen
    as by `select_answering`.
    """
    if len(settings.sources) == 1:
        return prepare(settings, *more)
    answering, errors = _list_answering(settings)
    for candidate in answering:
        try:
            return prepare(candidate, *more)
        except LACKS as reason:
            is_silent = isinstance(reason, ClusterUnreachable)
            if is_silent and isinstance(take_snapshot(candidate), SourceSnapshot):
                raise  # it is the destination
            log.warning(
                "source candidate %s cannot be copied from now: %s",
                candidate.source_cluster.bootstrap_servers,
                reason,
            )
            errors.append(reason)
    raise _choose_error(errors)


def _list_answering(settings: Settings) -> tuple[list[Settings], list[ReoError]]:
    """At least one candidate, the furthest first, and the errors of the others."""
    if len(settings.sources) == 1:
        return [settings], []
    deadline = clock.monotonic() + settings.connect_timeout_s
    while True:
        results = take_snapshots(settings)
        snapshots = [result for result in results if isinstance(result, SourceSnapshot)]
        errors = [result for result in results if isinstance(result, ReoError)]
        if snapshots:
            snapshots.sort(
                key=lambda snapshot: (len(snapshot.ends), snapshot.stable_end_sum), reverse=True
            )
            return [snapshot.settings for snapshot in snapshots], errors
        if clock.monotonic() > deadline:
            raise _choose_error(errors)
        clock.sleep(PAUSE_S)


def _choose_error(errors: list[ReoError]) -> ReoError:
    return next((error for error in errors if isinstance(error, ClusterUnreachable)), errors[0])


def find_copied_identity(settings: Settings, source: Topic, frontiers: Iterable[Frontier]) -> str:
    """The identity of the copied topic in frontiers and envelopes: the topic's; with failover the
    one in the copy's frontiers, else one made of its name.
    """
    if not settings.failover:
        return source.identity
    return next(
        (frontier.source_identity for frontier in frontiers), compute_identity("", source.name, "")
    )


def can_be_same_source(
    settings: Settings, source: Topic, frontier: Frontier, is_of_route: bool
) -> bool:
    """Whether a frontier under another intermediate topic can be of this source topic;
    `is_of_route`: another route has that intermediate topic now.

    With failover a copy that began in single mode keeps the identity that its topic had in one
    cluster, which need not be a candidate any more: it excludes nothing.
    """
    identities = {source.identity, compute_identity("", source.name, "")}
    return frontier.source_identity in identities or (settings.failover and not is_of_route)


def get_request_timeout_s(settings: Settings) -> float:
    """How long to wait for a source: with failover not long, because another one may answer."""
    return settings.source.request_timeout_ms / 1000 if settings.failover else REQUEST_TIMEOUT_S


class Candidate:
    """One cluster of the pool, and what the last selection found."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        """With this cluster as the only source."""
        self.name = settings.source_cluster.bootstrap_servers
        self.snapshot: SourceSnapshot | None = None
        self.reason: ReoError | None = None
        """Why it cannot be copied from."""
        self.answers: Mapping[ClientTopicPartition, Future[Any]] = {}
        """To the present question for its stable ends."""

    @cached_property
    def client(self) -> AdminClient:
        """The one that asks for its health; only needed when there are several."""
        return create_admin_client(self.settings.source_cluster, self.settings)

    @property
    def is_refused(self) -> bool:
        """Whether it cannot be copied from, also later."""
        return isinstance(self.reason, Stop) and not isinstance(self.reason, ClusterUnreachable)

    def begin_selection(self, result: SourceSnapshot | ReoError) -> None:
        """Forget what was found before."""
        self.snapshot = self.reason = None
        if isinstance(result, ReoError):
            self.reason = result
        else:
            self.snapshot = result
            report_stable_ends(result)

    def run_check(self, check: Callable[[SourceSnapshot], None]) -> bool:
        """Run this check; returns whether it has passed it, and all before."""
        try:
            if self.snapshot is not None:
                check(self.snapshot)
        except ReoError as reason:
            self.snapshot, self.reason = None, reason
        return self.snapshot is not None

    def ask(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Ask for the stable ends of these partitions."""
        self.answers = self.client.list_offsets(
            {ClientTopicPartition(*tp): OffsetSpec.latest() for tp in topic_partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=get_request_timeout_s(self.settings),
        )

    def sum_stable_ends(self) -> int | None:
        """What it has answered; None when it is unhealthy."""
        answers, self.answers = self.answers, {}
        try:
            end_sum = sum(get_offset(future.result()) for future in answers.values())
        except KafkaException as failed:
            error = failed.args[0]
            SOURCE_ERRORS.labels(self.name, error.name()).inc()
            if error.code() > 0 or error.code() in NO_LEADER:  # the broker answers
                names = {tp.topic for tp in answers}
                with contextlib.suppress(KafkaException):  # the next round tries again
                    partition_offsets.refresh_metadata(
                        self.client, names, get_request_timeout_s(self.settings)
                    )
            return None
        SOURCE_HIGH_WATERMARK.labels(self.name).set(end_sum)
        return end_sum

    def report_refusal(self) -> None:
        """Log why it cannot be copied from, if so."""
        if self.is_refused:
            SOURCE_REFUSED.labels(self.name).inc()
            log.error("source candidate %s is refused: %s", self.name, self.reason)
        elif self.reason is not None:
            log.warning("source candidate %s cannot be copied from now: %s", self.name, self.reason)


class SourcePool:
    """The candidates, the one that is copied from, and how often it changed.

    The `state_file` keeps the last two across restarts of stage one: the new process continues with
    the same candidate, and `source.max_failovers` counts for the whole service.
    """

    def __init__(self, settings: Settings, state_file: Path | None = None) -> None:
        self.settings = settings
        self.candidates = [
            Candidate(settings.select_source(cluster)) for cluster in settings.sources
        ]
        self.state_file = state_file
        self.initial = (
            clock.get_random_bits(32) % len(settings.sources)
            if settings.source.randomize_initial
            else 0
        )
        self.current: int | None = None
        """The number of the candidate that is copied from."""
        self.failovers = 0
        self.next_round_at = self.next_lagging_at = 0.0
        if state_file and state_file.exists():
            self.current, self.failovers = orjson.loads(state_file.read_bytes())

    def select(
        self,
        check_offsets: Callable[[SourceSnapshot], None],
        check_copyable: Callable[[SourceSnapshot], None],
    ) -> SourceSnapshot | None:
        """The source of the next run, or None when no candidate can be copied from now; a Stop when
        a restart would not help. Every candidate that answers has to pass the first check; the
        second one is done in turn, until a candidate passes it. A check raises the reason.
        """
        for candidate, result in zip(self.candidates, take_snapshots(self.settings), strict=True):
            candidate.begin_selection(result)
            candidate.run_check(check_offsets)
        while (selected := self._find_first()) is not None:
            if self.candidates[selected].run_check(check_copyable):
                break
        for candidate in self.candidates:
            candidate.report_refusal()
        if selected is not None:
            self.switch_to(selected)
            return self.candidates[selected].snapshot
        SOURCE_UNHEALTHY.inc()
        if all(candidate.is_refused for candidate in self.candidates):
            kinds = {type(candidate.reason) for candidate in self.candidates}
            reasons = [f"{candidate.name}: {candidate.reason}" for candidate in self.candidates]
            raise (SourceTruncated if kinds == {SourceTruncated} else SourceRefused)(
                f"every source candidate was refused: {'; '.join(reasons)}"
            )
        return None

    def _find_first(self) -> int | None:
        """The next candidate to try; None when none is left."""
        begin = self.initial if self.current is None else self.current
        numbers = range(len(self.candidates))
        return find_first_within_threshold(
            [*numbers[begin:], *numbers[:begin]],
            {
                number: candidate.snapshot.stable_end_sum
                for number, candidate in enumerate(self.candidates)
                if candidate.snapshot is not None
            },
            self.settings.source.offset_lag_threshold,
        )

    def switch_to(self, number: int) -> None:
        """Copy from this candidate; SourceRefused after `source.max_failovers` changes."""
        name = self.candidates[number].name
        SOURCE_CONNECTIONS.labels(name).inc()
        if self.current is not None and number != self.current:
            name_before = self.candidates[self.current].name
            failovers_max = self.settings.source.max_failovers
            if 0 <= failovers_max <= self.failovers:
                raise SourceRefused(
                    f"{name_before} cannot be copied from, and source.max_failovers={failovers_max}"
                    f" does not allow a failover to {name}"
                )
            self.failovers += 1
            SOURCE_SWITCHES.labels(name).inc()
            log.warning("failover number %d: from %s to %s", self.failovers, name_before, name)
        self.current = number
        if self.state_file:
            new_file = self.state_file.with_suffix(".new")
            new_file.write_bytes(orjson.dumps([self.current, self.failovers]))
            new_file.replace(self.state_file)

    def poll(self, topic_partitions: Collection[TopicPartition]) -> HealthEvent | None:
        """While a run lives: evaluate a complete round of answers, or start the next round when it
        is due. Does nothing when there is only one source.
        """
        if len(self.candidates) == 1:
            return None
        futures = [future for candidate in self.candidates for future in candidate.answers.values()]
        if futures and all(future.done() for future in futures):
            return self.evaluate_round(
                {n: candidate.sum_stable_ends() for n, candidate in enumerate(self.candidates)}
            )
        if not futures and clock.monotonic() >= self.next_round_at:
            interval_s = self.settings.source.healthcheck_interval_ms / 1000
            self.next_round_at = clock.monotonic() + interval_s
            for candidate in self.candidates:
                candidate.ask(topic_partitions)
        return None

    def evaluate_round(self, end_sums: Mapping[int, int | None]) -> HealthEvent | None:
        """Evaluate one round of answers for the candidate that is copied from."""
        current = self.current
        assert current is not None
        event = evaluate(
            {
                number: end_sum
                for number, end_sum in end_sums.items()
                if number == current or not self.candidates[number].is_refused
            },
            current,
            self.settings.source.offset_lag_threshold,
        )
        name = self.candidates[current].name
        if event == "lost":
            log.warning("source candidate %s does not answer", name)
        elif event == "lagging":
            if clock.monotonic() < self.next_lagging_at:
                return None
            self.next_lagging_at = clock.monotonic() + self.settings.source.backoff_max_ms / 1000
            SOURCE_LAGGED.labels(name).inc()
            log.warning(
                "source candidate %s is behind: %s",
                name,
                {self.candidates[number].name: end_sum for number, end_sum in end_sums.items()},
            )
        return event

    def report_end_of_run(self, reason: ReoError) -> None:
        """Log why the run on the candidate that is copied from ends."""
        assert self.current is not None
        log.error(
            "the run on source candidate %s ends: %s", self.candidates[self.current].name, reason
        )


def report_stable_ends(snapshot: SourceSnapshot) -> None:
    """Set the metric. Only stage one does: what stage two saw at its start would pass for the
    newest value while stage one restarts.
    """
    name = snapshot.settings.source_cluster.bootstrap_servers
    SOURCE_HIGH_WATERMARK.labels(name).set(snapshot.stable_end_sum)


def report_compared(snapshot: SourceSnapshot, records: int) -> None:
    """Log that the records of the copy are those of this candidate."""
    log.info(
        "source candidate %s has the copy's last records (%d compared)",
        snapshot.settings.source_cluster.bootstrap_servers,
        records,
    )


def find_first_within_threshold(
    order: Iterable[int], end_sums: Mapping[int, int], threshold: int
) -> int | None:
    """The first in `order` that is at most `threshold` behind the furthest; None without any."""
    furthest = max(end_sums.values(), default=0)
    near = [number for number in order if furthest - end_sums.get(number, -math.inf) <= threshold]
    return next(iter(near), None)


def evaluate(
    end_sums: Mapping[int, int | None], current: int, threshold: int
) -> HealthEvent | None:
    """The event for the current candidate. In `end_sums`, None did not answer."""
    others = [
        end_sum for number, end_sum in end_sums.items() if number != current and end_sum is not None
    ]
    mine = end_sums[current]
    if not others:
        return None
    if mine is None:
        return "lost"
    return "lagging" if max(others) - mine > threshold else None
