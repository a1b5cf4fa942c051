"""`--stop-at-end`: when everything is copied that existed at the start.

Each partition has a target, which is fixed at the start; the copy has ended when every frontier has
reached its target, and the destination shows what the frontiers say.

    with stage one      the source's last stable offset
    stage two alone     the end of the intermediate partition, and of what its newest envelope
                        covers

What the source has after the frontier need not be a record: transaction markers and aborted records
have offsets too. Stage one states that as in any other run (`replicator.runs.empty_envelopes`), and
stage two commits it, so a frontier reaches its target all the same.

The deduplicator compares the destination with the frontiers when it is assigned a partition
(`deduplicator.frontiers.frontier_check`), and knows what to do about a difference. A partition of a
worker that died has nobody who does, for as long as the group waits for that worker, and meanwhile
its frontier may say what was copied to a topic that is gone, or has lost its newest records. So at
the end the destination is read once more (`has_copied_records`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from common import clock
from common.envelope import Head
from common.errors import (
    ClusterUnreachable,
    HangingTransaction,
    ReoError,
    SourceTruncated,
    TopicMissing,
)
from common.frontier import Frontier
from common.kafka import intermediate_records, partition_offsets, source_topics, topics
from common.kafka.clients import create_admin_client, create_reader
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.consumer_group import create_commit_reader
from common.kafka.partition_offsets import GroupCommit
from common.kafka.visible_records import read_visible
from common.records import compute_message_checksum
from common.route_states import RouteStates, build_waiting_error, list_halted
from common.routes import Route, TopicPartition, name_some
from common.settings import Settings, destination_kind
from common.stage_process import COMPLETE_FILE

log = logging.getLogger(__name__)
CHECK_INTERVAL_S = 0.2
COMMITS_INTERVAL_S = 0.5
WARNING_INTERVAL_S = 10.0


class Target(NamedTuple):
    """What the frontier of one intermediate partition has to reach."""

    source_offset: int
    """The next offset to copy is not below this one."""
    intermediate_offset: int = 0
    """Stage two has read up to here."""
    destination_topic_id: str | None = None
    """The destination is still this one; None when that is not known."""

    def is_reached(self, commit: GroupCommit) -> bool:
        """Whether this commit has all of it, and nothing was left out: no gap is open."""
        frontier = commit.frontier
        return (
            frontier.gap is None
            and frontier.source_offset + 1 >= self.source_offset
            and commit.intermediate_offset >= self.intermediate_offset
            and self.destination_topic_id in (None, frontier.destination_topic_id)
        )


Targets = Mapping[TopicPartition, Target]
"""By intermediate partition."""


def list_behind(
    targets: Targets, commits: Mapping[TopicPartition, GroupCommit]
) -> list[TopicPartition]:
    """The partitions whose target is not reached, as far as is known."""
    return [
        tp
        for tp, target in targets.items()
        if tp not in commits or not target.is_reached(commits[tp])
    ]


# ---- stage one


def find_source_targets(
    client: AdminClient, source_partitions: Mapping[TopicPartition, TopicPartition]
) -> dict[TopicPartition, Target]:
    """The targets as of now; `source_partitions` is by intermediate partition. What a
    read_committed consumer cannot read yet is not waited for.
    """
    stable_ends = partition_offsets.list_end_offsets(
        client, source_partitions.values(), committed_only=True
    )
    ends = partition_offsets.list_end_offsets(client, stable_ends)
    for tp, stable_end in stable_ends.items():
        if ends[tp] > stable_end:
            log.warning(
                "%s has an open transaction at offset %d: the records from there on (the"
                " partition ends at %d) are not visible yet, and --stop-at-end does not wait"
                " for them",
                tp,
                stable_end,
                ends[tp],
            )
    return {tp: Target(stable_ends[source]) for tp, source in source_partitions.items()}


def check_source_ends(
    client: AdminClient,
    targets: Mapping[TopicPartition, int],
    is_same_source: Callable[[], bool],
) -> None:
    """SourceTruncated when a partition has lost records that were not copied: no run gets to its
    target. Not on one answer: a leader that was replaced can end earlier. `targets` is by source
    partition.
    """
    if not _find_shorter(client, targets):
        return
    partition_offsets.wait_before_asking_again(client, {tp.topic for tp in targets})
    shorter = _find_shorter(client, targets)
    if shorter and is_same_source():
        tp, end = min(shorter.items())
        raise SourceTruncated(
            f"{tp} ended at offset {targets[tp]} when this process started, and ends at {end}"
            " now: the source lost its newest records. To copy what it has now, start again",
            topic=tp.topic,
        )


def _find_shorter(
    client: AdminClient, targets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The source partitions that end before their targets, and where."""
    ends = partition_offsets.list_end_offsets(client, targets)
    return {tp: ends[tp] for tp, target in targets.items() if ends[tp] < target}


# ---- stage two without a stage one


class StageTwoAlone:
    """Its targets, and whether they are reached.

    What was read is not always copied: stage two reads over envelopes after a gap, and over all of
    them after it has moved a frontier back. Then only a stage one can write the missing records
    again.
    """

    def __init__(self, settings: Settings, copied: Mapping[Route, topics.Topic]) -> None:
        self.settings = settings
        self.copied = copied
        self.reader = create_commit_reader(settings.destination_cluster, settings)
        self.record_reader = create_reader(settings.destination_cluster, settings)
        self.client = create_admin_client(settings.destination_cluster, settings)
        self.states = RouteStates(settings)
        sources = source_topics.map_source_partitions(copied)
        ends = partition_offsets.list_end_offsets(self.client, sources)
        begins = partition_offsets.list_beginning_offsets(self.client, ends)
        newest = intermediate_records.read_newest_heads(
            self.record_reader, {tp: (begins[tp], end) for tp, end in ends.items()}, sources
        )
        commits: dict[TopicPartition, GroupCommit] = {}
        try:
            commits = partition_offsets.read_commits(self.reader, ends, REQUEST_TIMEOUT_S)
        except HangingTransaction as undecided:
            log.warning("the frontiers at the start are not known: %s", undecided)
        self.targets = {
            tp: build_target(end, commits.get(tp), newest.get(tp)) for tp, end in ends.items()
        }
        self.has_warned = False
        self.has_warned_of_loss = False
        self.next_warning_s = 0.0
        self.next_check_s = 0.0

    def is_complete(self) -> bool:
        """Whether all is committed, and at the destination; asks every COMMITS_INTERVAL_S. An
        error, as with stage one, when nothing but halted routes is left.
        """
        if clock.monotonic() < self.next_check_s:
            return False
        self.next_check_s = clock.monotonic() + COMMITS_INTERVAL_S
        try:
            states = self.states.read({tp.topic for tp in self.targets}, COMMITS_INTERVAL_S)
            halted = {topic for topic, state in states.items() if state.is_halted}
            targets = {tp: one for tp, one in self.targets.items() if tp.topic not in halted}
            commits = partition_offsets.read_commits(self.reader, targets, COMMITS_INTERVAL_S)
        except (ClusterUnreachable, HangingTransaction):
            return False
        unread = [
            tp
            for tp, target in targets.items()
            if tp not in commits or commits[tp].intermediate_offset < target.intermediate_offset
        ]
        if unread:
            self._warn_of_lost_records(unread)
            return False
        missing = list_behind(targets, commits)
        if missing and not self.has_warned:
            self.has_warned = True
            log.warning(
                "the intermediate topics are read to their ends, but not all of it is copied of %s:"
                " waiting until a stage one (reo run, or reo run replicator) writes again what is"
                " missing",
                name_some(missing),
            )
        if missing or not has_copied_records(
            self.client, self.record_reader, self.settings, self.copied, commits
        ):
            return False
        if halted:
            raise build_waiting_error(list_halted(states, self.copied))
        return True

    def _warn_of_lost_records(self, unread: Collection[TopicPartition]) -> None:
        """Once, where an end offset is lower than at the start: this never ends then. One broker's
        word is not enough to end for it.
        """
        if self.has_warned_of_loss or clock.monotonic() < self.next_warning_s:
            return
        self.next_warning_s = clock.monotonic() + WARNING_INTERVAL_S
        try:
            ends = partition_offsets.list_end_offsets(
                self.client, unread, timeout_s=COMMITS_INTERVAL_S
            )
        except ReoError:
            return
        lower = [tp for tp, end in ends.items() if end < self.targets[tp].intermediate_offset]
        if lower:
            self.has_warned_of_loss = True
            log.warning(
                "the end offset of %s is lower than when this command was started: its newest"
                " records were lost, or the topic was deleted and created again. Run stage one"
                " (reo run replicator), then start this again",
                name_some(lower),
            )


def build_target(intermediate_end: int, commit: GroupCommit | None, newest: Head | None) -> Target:
    """The target of stage two alone, from what there was at the start: the frontier does not move
    back, and reaches the end of what the `newest` envelope covers. (That of a run older than the
    frontier is not to be copied.) `commit` is None when there is none, or a transaction is
    undecided.
    """
    frontier = commit.frontier if commit else None
    next_offset = frontier.source_offset + 1 if frontier else 0
    if newest is not None and (frontier is None or newest.epoch >= frontier.epoch):
        next_offset = max(next_offset, newest.through + 1)
    return Target(
        next_offset, intermediate_end, frontier.destination_topic_id if frontier else None
    )


# ---- the service


class EndOfCopy:
    """When a service with both stages, or without stage one (`alone`), may end with 0. Every time
    is of the monotonic clock, in seconds.

    Stage one compares the frontiers with their targets, and says that everything is copied. But a
    frontier says what was copied to a destination that may be gone since; stage two finds that out
    when it starts with a partition, and moves the frontier back. So the word of stage one counts
    only if all workers of stage two were ready before it made its last plan, and have been ready
    since. Otherwise it is asked again.
    """

    def __init__(
        self, are_workers_ready: Callable[[], bool], alone: StageTwoAlone | None = None
    ) -> None:
        self.are_workers_ready = are_workers_ready
        self.alone = alone
        self.ready_since: float | None = None
        """Since when all workers are known to be ready, without a break."""
        self.planned_at: float | None = None
        """When stage one began the plan that left nothing to copy."""
        self.next_check_at = 0.0

    def has_stage_one_copied(self, folder: Path) -> bool:
        """Whether the process of stage one that has just ended has copied everything, as it says in
        the service's folder. Without that, its exit code 0 is that of a SIGTERM.
        """
        said = folder / COMPLETE_FILE
        if not said.exists():
            return False
        self.planned_at = float(said.read_text(encoding="utf-8"))
        said.unlink()
        return True

    def check(self) -> Literal["complete", "ask again"] | None:
        """What follows, or None: wait. Looks at the workers at most every CHECK_INTERVAL_S."""
        now = clock.monotonic()
        if now < self.next_check_at:
            return None
        self.next_check_at = now + CHECK_INTERVAL_S
        if not self.are_workers_ready():
            self.ready_since = None
            return None
        if self.alone is not None:
            return "complete" if self.alone.is_complete() else None
        if self.ready_since is None:
            self.ready_since = now
        if self.planned_at is None:
            return None
        if self.planned_at >= self.ready_since:
            return "complete"
        log.info(
            "stage two was ready only after stage one had compared its frontiers with the source:"
            " stage one compares them again"
        )
        self.planned_at = None
        return "ask again"


# ---- the destination


def has_copied_records(
    client: AdminClient,
    reader: Consumer,
    settings: Settings,
    routes: Iterable[Route],
    commits: Mapping[TopicPartition, GroupCommit],
    beat: Callable[[], None] = lambda: None,
) -> bool:
    """Whether each destination topic is the one of these commits, by intermediate partition, and
    shows the records that were written to it last. False while the cluster does not answer, or
    their transaction is open. A destination outside of Kafka is not asked.

    `beat` is called while the reader (`clients.create_reader`) is waited for.
    """
    if destination_kind.is_outside_kafka(settings):
        return True
    by_topic = {route.intermediate_topic: route for route in routes}
    try:
        described = topics.describe(
            client, {by_topic[tp.topic].destination_topic for tp in commits}
        )
        is_same = all(
            (topic := described.get(by_topic[tp.topic].destination_topic)) is not None
            and topic.topic_id == commit.frontier.destination_topic_id
            for tp, commit in commits.items()
        )
        if not is_same:
            return False
        frontiers = {
            by_topic[tp.topic].get_destination(tp.partition): commit.frontier
            for tp, commit in commits.items()
            if by_topic[tp.topic].is_one_to_one
        }
        begins, ends = partition_offsets.list_bounds(client, frontiers, committed_only=True)
        if any(frontier.last_written_min >= ends[tp] for tp, frontier in frontiers.items()):
            return False
        missing = find_missing_records(reader, frontiers, begins, ends, beat)
        return all(
            topics.is_compacted(client, settings.destination_cluster, name)
            for name in {tp.topic for tp in missing}
        )
    except (ClusterUnreachable, TopicMissing, KafkaException):
        return False


def find_missing_records(
    reader: Consumer,
    frontiers: Mapping[TopicPartition, Frontier],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    beat: Callable[[], None],
) -> set[TopicPartition]:
    """The partitions without the known record, if that is one of this copy, or without as many
    visible records after it as were sent, the last of them as it was written. Those whose known
    record retention has deleted are not among them.
    """
    starts = {
        tp: frontier.destination_known + (not frontier.is_known_written)
        for tp, frontier in frontiers.items()
    }
    expected = {
        tp: frontier.sent + frontier.is_known_written
        for tp, frontier in frontiers.items()
        if begins[tp] <= starts[tp]
    }
    missing = {tp for tp, count in expected.items() if count}
    found: Counter[TopicPartition] = Counter()
    for message in read_visible(
        reader, {tp: starts[tp] for tp in missing}, REQUEST_TIMEOUT_S, ends, beat
    ):
        tp = TopicPartition(message.topic(), message.partition())
        found[tp] += 1
        if found[tp] == expected[tp] and frontiers[tp].last_written_checksum in (
            None,
            compute_message_checksum(message),
        ):
            missing.remove(tp)
    return missing
