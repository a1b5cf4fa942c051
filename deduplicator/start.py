"""A partition's frontier when the partition is assigned: loaded and checked, created for the first
time, moved to the end, or refused.

Only stage two writes frontiers, in a transaction, and stage one begins no run before every
partition has one. So the offset where a copy begins is durable before any record is copied, even if
any process is killed.

| what is found | what follows | |---|---| | a frontier, its position inside the intermediate topic
| it is compared with the destination's records (`deduplicator.destination_check`) | | a frontier,
its position outside, or records after it missing (deleted or lost unread) | the same; then its
position is set to the end, its epoch raised | | no frontier, an empty destination partition | the
first frontier: `source.start`, or the beginning for a new partition (`_is_new_partition`) | | a
frontier of another destination topic (the topic was recreated) | as without a frontier, but never
later than what was copied | | no frontier, records at the destination | FrontierLost, or, with
deduplicator.without_frontier=append, the first frontier | | the same, on a route that is not one to
one | the first frontier, if the records certainly came from other sources |

A frontier of a route that is not one to one (a mapping, or a shared destination) says nothing about
its output: other routes write there too.

Whatever sets a frontier, except the rule, raises the epoch: an hour above the clock and above all
known epochs. So only a run that has read the frontier is believed (`common.run_epochs`): any other
run could leave out the records that were deleted, or those in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from confluent_kafka.admin import AdminClient, OffsetSpec

from common import filters, partition_mapping, run_epochs, runtime, source_candidates
from common.errors import ClusterUnreachable, FrontierLost, SettingsInvalid
from common.frontier import Frontier, RuleState
from common.kafka import positions, topics
from common.kafka.clients import admin
from common.kafka.positions import GroupCommit
from common.routes import SAME, Place, Route
from common.settings import Settings, destination_settings
from deduplicator.call_limit import CallLimit
from deduplicator.destination import UNCOUNTED, Output
from deduplicator.frontier_store import FrontierStore
from deduplicator.group_commits import ConsumerGroup, TransactionUndecided
from deduplicator.partitioner import build_partitioner
from deduplicator.partitions import AssignedPartition

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StartedPartitions:
    """Frontiers of some partitions; those in `to_commit` are new, or have to be committed again,
    before anything else.

    `epoch_raised`: those in `to_commit` that the rule has not set.
    """

    assigned: dict[Place, AssignedPartition] = field(default_factory=dict)
    outputs: dict[Place, Output] = field(default_factory=dict)
    """By destination partition; everything else is by intermediate partition."""
    to_commit: list[Place] = field(default_factory=list)
    epoch_raised: list[Place] = field(default_factory=list)

    def forget(self, place: Place) -> None:
        """The partition is another worker's now, or its frontier has to be loaded again."""
        self.assigned.pop(place, None)
        self.to_commit = [other for other in self.to_commit if other != place]
        self.epoch_raised = [other for other in self.epoch_raised if other != place]


class PartitionStarter:
    """Loads or creates the frontiers of partitions, with the frontier store and, for the
    intermediate topics, the destination cluster.
    """

    def __init__(
        self,
        settings: Settings,
        routes: Mapping[str, Route],
        consumer_group: ConsumerGroup,
        frontier_store: FrontierStore,
        clock: Callable[[], float] = runtime.time,
    ) -> None:
        self.settings = settings
        self.routes = routes
        self.clock = clock
        self.new_topics: set[str] = set()
        """Intermediate topics of sources that did not exist when the process started: with
        `source.start=latest` they are copied from the beginning.
        """
        self.partitions_with_gaps: set[Place] = set()
        """Partitions that lack unread records at or after their position: they are started as if
        the position no longer existed.
        """
        self.consumer_group = consumer_group
        self.frontier_store = frontier_store
        self.started_topics = frontier_store.list_started_topics()
        """Read before this worker joins the group: later, other workers can have created frontiers
        in the same first start.
        """
        self.is_recoverable = not (
            filters.list_given(settings) or destination_settings.is_outside_kafka(settings)
        )

    def start_partitions(self, places: Iterable[Place]) -> StartedPartitions:
        """The frontiers of these intermediate partitions; a Stop when one is refused. Waits while
        the destination does not answer; TransactionUndecided while another producer's transaction
        is open: then it has to be called again, after a poll.
        """
        partitions = sorted(places)
        if not partitions:
            return StartedPartitions()
        commits, to_commit_again = self.frontier_store.load_frontiers(partitions)
        destinations = self.frontier_store.describe_destinations(
            [self.routes[topic] for topic in {place.topic for place in partitions}]
        )
        if destinations is None:
            topics.prepare(source_candidates.select_answering(self.settings))
            return self.start_partitions(partitions)
        usable = {
            place: commits[place]
            for place in partitions
            if place in commits
            and commits[place].frontier.destination_topic_id == destinations[place.topic].topic_id
        }
        result = StartedPartitions()
        one_to_one = {
            self._output(place): commit.frontier
            for place, commit in usable.items()
            if self._is_one_to_one(place)
        }
        result.outputs, surplus = self.frontier_store.check_outputs(one_to_one)
        result.assigned = {
            place: AssignedPartition(
                commit.intermediate_offset, commit.frontier, surplus.get(self._output(place))
            )
            for place, commit in usable.items()
        }
        self._create_first_frontiers(
            [place for place in partitions if place not in usable], commits, destinations, result
        )
        self._move_to_end(result, [commit.frontier.rule.epoch for commit in commits.values()])
        result.to_commit += sorted(to_commit_again & usable.keys() - set(result.to_commit))
        for place, state in result.assigned.items():
            if not self._is_one_to_one(place):
                limit = CallLimit(self.consumer_group.pulse.beat)
                state.partitioner = build_partitioner(
                    self.routes[place.topic],
                    place.partition,
                    destinations[place.topic].partitions,
                    limit,
                )
        self.consumer_group.undecided_since = None
        return result

    def on_revoked(self) -> None:
        """Other partitions are to be started than before: whatever transaction was waited for, it
        is another one from now on.
        """
        self.consumer_group.undecided_since = None

    def _is_one_to_one(self, place: Place) -> bool:
        return self.routes[place.topic].is_one_to_one

    def _output(self, place: Place) -> Place:
        return self.routes[place.topic].destination(place.partition)

    def find_unassigned(self) -> list[Place] | None:
        """The partitions of the intermediate topics that are unassigned; None while the group is
        rebalancing, or the cluster does not answer.
        """
        try:
            assigned = self.consumer_group.group.assigned()
            return (
                None
                if assigned is None
                else sorted(set(self.consumer_group.list_partitions(self.routes)) - assigned)
            )
        except ClusterUnreachable as unreachable:
            log.debug("%s", unreachable)
            return None

    def _create_first_frontiers(
        self,
        missing: list[Place],
        commits: dict[Place, GroupCommit],
        destinations: Mapping[str, topics.Topic],
        result: StartedPartitions,
    ) -> None:
        if not missing:
            return
        ends = self.frontier_store.get_end_offsets(
            {output for place in missing for output in self._list_outputs(place, destinations)}
        )
        settings = source_candidates.select_answering(self.settings)
        source_admin = admin(settings.source_cluster, settings)
        sources = topics.describe_sources(settings, source_admin, self.settings.connect_timeout_s)
        check_start_offsets(self.settings, source_admin, sources, commits)
        for place in missing:
            route, output = self.routes[place.topic], self._output(place)
            filled = [other for other in self._list_outputs(place, destinations) if ends[other] > 0]
            refuses = self.settings.deduplicator.without_frontier == "refuse"
            if (
                filled
                and refuses
                and not self._is_from_other_sources(place, sources[route], destinations)
            ):
                self._check_still_missing(place, destinations[place.topic])
                can_recover = route.is_one_to_one and self.is_recoverable
                recovery = "`reo recover` finds the frontier from the data. Otherwise copy"
                raise FrontierLost(
                    f"{filled[0]} has records (it ends at {ends[filled[0]]}), but group"
                    f" {self.settings.application} has no frontier for {place}: its offsets expired"
                    " or were deleted, or something else wrote to the topic."
                    f" {recovery if can_recover else 'Copy'} to a new topic, or set"
                    " deduplicator.without_frontier=append to append to the existing records from"
                    " source.start on"
                )
            counts = [
                commit.frontier.source_partitions
                for other, commit in commits.items()
                if other.topic == place.topic
            ]
            source_partitions = max(counts, default=sources[route].partitions)
            added = (
                place.partition >= source_partitions
                or place in commits
                or self._is_new_partition(place, bool(filled), has_others=bool(counts))
            )
            offset = find_first_source_offset(
                self.settings, source_admin, route.source(place.partition), added
            )
            first_output = Output(ends[output] - 1, 0) if route.is_one_to_one else UNCOUNTED
            same_destination = [
                commit.frontier
                for other, commit in commits.items()
                if other.topic == place.topic
                and commit.frontier.destination_topic_id == destinations[place.topic].topic_id
            ]
            identity = source_candidates.find_copied_identity(
                self.settings, sources[route], same_destination
            )
            frontier = Frontier(
                RuleState(offset - 1, 0, None),
                identity,
                source_partitions,
                destinations[place.topic].topic_id,
                first_output.known_offset,
                first_output.sent,
            )
            log.info(
                "%(place)s: first frontier, the copy begins at source offset %(offset)d",
                {"place": route.source(place.partition), "offset": offset},
            )
            result.assigned[place] = AssignedPartition(-1, frontier)
            if route.is_one_to_one:
                result.outputs[output] = first_output

    def _check_still_missing(self, place: Place, destination: topics.Topic) -> None:
        """TransactionUndecided when another worker has created the first frontier since this one
        looked for it, and has copied records.

        That happens when this process stood still in between, and lost the partition. A first
        frontier is committed before any record is written.
        """
        commit = self.frontier_store.load_frontiers([place]).commits.get(place)
        if commit is not None and commit.frontier.destination_topic_id == destination.topic_id:
            raise TransactionUndecided(f"another worker has begun to copy to {self._output(place)}")

    def _is_new_partition(self, place: Place, filled: bool, has_others: bool) -> bool:
        """Whether a partition without a frontier was added after the copy had begun: `latest` would
        leave out its records from before it was discovered.

        It was added later if the service had frontiers of other topics, or if records of its topic
        were copied before (then the frontiers were lost). If only other partitions of its topic
        have frontiers (`has_others`), it existed when these were created: then the first start is
        not over, unless stage one has written to the topic, which it does when every partition has
        a frontier. With deduplicator.without_frontier=append, after records that somebody else has
        copied, `source.start` applies as it is.
        """
        if place.topic in self.new_topics or self.settings.start.kind != "latest":
            return place.topic in self.new_topics
        partitions = self.consumer_group.list_partitions([place.topic])
        is_written = any(positions.list_end_offsets(self.consumer_group.admin, partitions).values())
        is_later = bool(self.started_topics - {place.topic}) or (
            is_written if has_others else bool(self.started_topics)
        )
        if self.settings.deduplicator.without_frontier == "append":
            return is_later and not filled
        return is_later or is_written or self._has_copies(self.routes[place.topic], partitions)

    def _has_copies(self, route: Route, partitions: Iterable[Place]) -> bool:
        """Whether the destination has records of these intermediate partitions; False where they
        cannot be told from those of other routes.
        """
        outputs = (route.destination(place.partition) for place in partitions)
        return route.is_one_to_one and any(self.frontier_store.get_end_offsets(outputs).values())

    def _list_outputs(self, place: Place, destinations: Mapping[str, topics.Topic]) -> list[Place]:
        """Every destination partition that the records of an intermediate partition can go to."""
        route, fixed = (
            self.routes[place.topic],
            partition_mapping.parse_fixed_partition(self.routes[place.topic].mapping),
        )
        if route.mapping == SAME or fixed is not None:
            return [route.destination(place.partition if fixed is None else fixed)]
        return [
            route.destination(partition)
            for partition in range(destinations[place.topic].partitions)
        ]

    def _is_from_other_sources(
        self, place: Place, source: topics.Topic, destinations: Mapping[str, topics.Topic]
    ) -> bool:
        """Whether the records at a destination that is not one to one are certainly not this
        partition's: it is new, and others were copied there before.

        Nothing was ever written to its intermediate partition, the group has frontiers for this
        destination, and none of them is of the same source under another intermediate topic. An
        intermediate topic that somebody deleted looks the same as a new one.
        """
        if (
            self._is_one_to_one(place)
            or positions.list_end_offsets(self.consumer_group.admin, [place])[place] > 0
        ):
            return False
        topic_id = destinations[place.topic].topic_id
        frontiers = {
            other: frontier
            for other, frontier in self.consumer_group.group.frontiers().items()
            if frontier.destination_topic_id == topic_id
        }
        same_source = any(
            frontier.source_identity == source.identity and other.topic != place.topic
            for other, frontier in frontiers.items()
        )
        return bool(frontiers) and not same_source

    def _move_to_end(self, result: StartedPartitions, committed_epochs: Sequence[int]) -> None:
        """Set every partition whose position does not exist to the end of its intermediate
        partition, with a raised epoch.
        """
        beginnings = positions.list_beginning_offsets(self.consumer_group.admin, result.assigned)
        stable_ends = positions.list_stable_ends(self.consumer_group.admin, result.assigned)
        ends = {place: end.offset for place, end in stable_ends.items()}
        outside = {
            place
            for place, state in result.assigned.items()
            if not beginnings[place] <= state.next_offset <= ends[place]
            or place in self.partitions_with_gaps
        }
        self.partitions_with_gaps -= outside
        for place, state in result.assigned.items():
            if state.frontier.leader_epoch is None:  # of an earlier version of reo
                state.frontier = replace(
                    state.frontier, leader_epoch=stable_ends[place].leader_epoch
                )
        newest = positions.read_last_origins(
            self.consumer_group.reader,
            {place: (beginnings[place], ends[place]) for place in outside},
        )
        epoch = run_epochs.raised(
            int(self.clock() * 1000),
            [*committed_epochs, *(origin.epoch for origin in newest.values())],
        )
        for place in outside:
            state = result.assigned[place]
            if state.next_offset >= 0:
                log.warning(
                    "%(place)s: offset %(offset)d is gone from the intermediate topic; going on at"
                    " its end with epoch %(epoch)d",
                    {"place": place, "offset": state.next_offset, "epoch": epoch},
                )
            state.frontier = replace(
                raise_epoch(state.frontier, epoch), leader_epoch=stable_ends[place].leader_epoch
            )
            state.next_offset = ends[place]
            result.to_commit.append(place)
            result.epoch_raised.append(place)

    def raise_epochs_again(self, start: StartedPartitions) -> list[Place]:
        """After the commit of `to_commit`: the partitions to commit once more, because a run that
        has not read these frontiers can still have a higher epoch.

        A run has one epoch for all partitions. While this commit was on its way, another worker can
        have raised the epochs of other partitions, and a run can have read those, and the old
        frontiers of these. That run was planned before this commit, so the others' epochs now limit
        how high its epoch can be.
        """
        commits = self.consumer_group.load_commits(self.routes)
        others = [
            commit.frontier.rule.epoch
            for place, commit in commits.items()
            if place not in start.epoch_raised
        ]
        too_low = [
            place
            for place in start.epoch_raised
            if run_epochs.can_exceed(others, start.assigned[place].frontier.rule.epoch)
        ]
        epoch = run_epochs.raised(int(self.clock() * 1000), others)
        for place in too_low:
            start.assigned[place].frontier = raise_epoch(start.assigned[place].frontier, epoch)
        start.epoch_raised = []
        return too_low


def find_first_source_offset(
    settings: Settings, source_admin: AdminClient, place: Place, added: bool
) -> int:
    """The source offset where `source.start` lets a partition begin; `added`: the partition was
    added later, or its copy was deleted.
    """
    start = settings.start
    if start.from_beginning(place.partition, added):
        return positions.list_beginning_offsets(source_admin, [place])[place]
    if start.kind == "offsets":
        return start.offsets[place.partition]
    # requested first: a record that is written between the two requests is not left out
    end = positions.list_end_offsets(source_admin, [place])[place]
    if start.kind == "timestamp":
        offset = positions.list_offsets(
            source_admin, [place], OffsetSpec.for_timestamp(start.timestamp_ms)
        )[place]
        return offset if offset >= 0 else end  # no record has so late a timestamp yet
    return end


def check_start_offsets(
    settings: Settings,
    source_admin: AdminClient,
    sources: Mapping[Route, topics.Topic],
    started: Container[Place],
) -> None:
    """SettingsInvalid when `source.start` names a partition or an offset that the source does not
    have.

    All of them are checked before the first one is used: a frontier that was created stays, even
    when the setting is corrected. Partitions in `started` have a frontier.
    """
    if not settings.start.offsets:
        return
    if len(sources) > 1:
        raise SettingsInvalid(
            "source.start names partitions, and several topics are copied: start each topic with a"
            " service of its own, or with a timestamp"
        )
    ((route, source),) = sources.items()
    offsets = {
        route.source(partition): offset
        for partition, offset in sorted(settings.start.offsets.items())
        if route.intermediate(partition) not in started
    }
    unknown = [place.partition for place in offsets if place.partition >= source.partitions]
    if unknown:
        raise SettingsInvalid(
            f"source.start names partition {unknown[0]} of {source.name}, which has partitions 0 to"
            f" {source.partitions - 1}"
        )
    beginnings, ends = (
        list_offsets(source_admin, offsets)
        for list_offsets in (positions.list_beginning_offsets, positions.list_end_offsets)
    )
    out_of_range = [
        f"offset {offset} of {place}, which has {beginnings[place]} to {ends[place]}"
        for place, offset in offsets.items()
        if not beginnings[place] <= offset <= ends[place]
    ]
    if out_of_range:
        raise SettingsInvalid(
            f"source.start asks for {'; '.join(out_of_range)} (the last one is the next record's)"
        )


def raise_epoch(frontier: Frontier, epoch: int) -> Frontier:
    """The same source offset in a raised epoch, without a link: the frontier for a position at the
    end of the intermediate topic.
    """
    return replace(frontier, rule=RuleState(frontier.rule.frontier, epoch, None))
