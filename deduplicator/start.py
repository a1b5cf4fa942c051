"""A partition's frontier when it is assigned: read and checked, made for the first time, anchored again, or refused.

Stage two alone writes frontiers, in a transaction, and stage one begins no run before every partition has one. So where a
copy begins is durable before anything is copied, whatever dies.

| what is found | what follows |
|---|---|
| a frontier, its position inside the intermediate topic | held against the destination's data (`deduplicator.check`) |
| a frontier, its position outside, or records missing behind it (deleted or lost unread) | the same, and anchored again: position at the end, epoch raised |
| no frontier, an empty destination partition | the first frontier: `source.start`, or the beginning for a partition that is new (`_has_appeared`) |
| a frontier of another destination topic (it was deleted and recreated) | the same as none, but never later than what was copied |
| no frontier, records at the destination | FrontierLost, or, when told to append, the first frontier |
| the same, on a route that is not one to one | the first frontier, if the records are certainly other sources' |

A frontier of a route that is not one to one (a mapping, or a destination that is shared) says nothing of its output: others write there too.

Whatever sets a frontier other than the rule raises the epoch, an hour above the clock and above all that is known, so that only
a run that has read it is believed (`common.epochs`): any other could leave out what was deleted, or what lies between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from confluent_kafka.admin import AdminClient, OffsetSpec

from common import epochs, filters, machine, mapping, positions, source_candidates, tables, topics
from common.errors import ClusterUnreachable, FrontierLost, SettingsInvalid
from common.frontier import Frontier, RuleState
from common.kafka_clients import admin
from common.positions import Committed
from common.routes import SAME, Place, Route
from common.settings import Settings
from deduplicator.destination import UNCOUNTED, Output
from deduplicator.keeper import InGroup, Keeper
from deduplicator.limit import CallLimit
from deduplicator.partitions import Assigned
from deduplicator.spread import spread

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Start:
    """The result for a set of partitions; `made` are those whose frontier is new, or said anew, and has to be committed before anything else.

    `raised` are those of them that the rule has not set.
    """

    assigned: dict[Place, Assigned] = field(default_factory=dict)
    outputs: dict[Place, Output] = field(default_factory=dict)
    """Of destination partitions; all else is of intermediate ones."""
    made: list[Place] = field(default_factory=list)
    raised: list[Place] = field(default_factory=list)

    def forget(self, place: Place) -> None:
        """It is another worker's now, or has to be read again."""
        self.assigned.pop(place, None)
        self.made = [other for other in self.made if other != place]
        self.raised = [other for other in self.raised if other != place]


class Starter:
    """Finds the frontiers of partitions; asks the keeper of the destination, and the destination cluster for what is on the intermediate topics."""

    def __init__(self, settings: Settings, routes: Mapping[str, Route], in_group: InGroup, keeper: Keeper, clock: Callable[[], float] = machine.time) -> None:
        self.settings = settings
        self.routes = routes
        self.clock = clock
        self.appeared: set[str] = set()
        """Intermediate topics of sources that were not there when the process started: with `source.start=latest` these are copied whole."""
        self.gaps: set[Place] = set()
        """Partitions of which unread records were found to be missing, at or behind the position: it is as good as gone."""
        self.in_group = in_group
        self.keeper = keeper
        self.begun = keeper.has_begun()
        """Asked before this worker joins the group: later, the frontiers could be those that other workers make in the same first start."""
        self.recoverable = not (any(map(settings.text, filters.SETTINGS)) or tables.named(settings))

    def start(self, places: Iterable[Place]) -> Start:
        """Frontiers for these partitions of intermediate topics; a Stop when one is refused. Waits while the destination is silent."""
        wanted = sorted(places)
        if not wanted:
            return Start()
        commits, again = self.keeper.found(wanted)
        leads_to = self.keeper.leads_to([self.routes[topic] for topic in {place.topic for place in wanted}])
        if leads_to is None:
            topics.prepare(source_candidates.select_answering(self.settings))
            return self.start(wanted)
        ours = {place: commits[place] for place in wanted
                if place in commits and commits[place].frontier.destination_topic_id == leads_to[place.topic].topic_id}
        result = Start()
        result.outputs, surplus = self.keeper.checked({self._output(place): commit.frontier for place, commit in ours.items() if self._is_one_to_one(place)})
        result.assigned = {place: Assigned(commit.intermediate_offset, commit.frontier, surplus.get(self._output(place))) for place, commit in ours.items()}
        self._make_first([place for place in wanted if place not in ours], commits, leads_to, result)
        self._anchor(result, [commit.frontier.rule.epoch for commit in commits.values()])
        result.made += sorted(again & ours.keys() - set(result.made))
        for place, state in result.assigned.items():
            if not self._is_one_to_one(place):
                state.spread = spread(self.routes[place.topic], place.partition, leads_to[place.topic].partitions, CallLimit(self.in_group.pulse.beat))
        return result

    def _is_one_to_one(self, place: Place) -> bool:
        return self.routes[place.topic].is_one_to_one

    def _output(self, place: Place) -> Place:
        return self.routes[place.topic].destination(place.partition)

    def nobodys(self) -> list[Place] | None:
        """The partitions of the intermediate topics that no member of the group has; None while they are being shared out, or the cluster does not say."""
        try:
            assigned = self.in_group.group.assigned()
            return None if assigned is None else sorted(set(self.in_group.places(self.routes)) - assigned)
        except ClusterUnreachable as silent:
            log.debug("%s", silent)
            return None

    def _make_first(self, missing: list[Place], commits: dict[Place, Committed], leads_to: Mapping[str, topics.Topic],
                    result: Start) -> None:
        if not missing:
            return
        ends = self.keeper.ends({there for place in missing for there in self._outputs(place, leads_to)})
        on = source_candidates.select_answering(self.settings)
        source_admin = admin(on.source, on)
        sources = topics.sources(on, source_admin, self.settings.number("connect_timeout_s"))
        check_offsets(self.settings, source_admin, sources, commits)
        for place in missing:
            route, output = self.routes[place.topic], self._output(place)
            filled = [there for there in self._outputs(place, leads_to) if ends[there] > 0]
            if filled and self.settings.text("deduplicator.without_frontier") == "refuse" and not self._explained(place, sources[route], leads_to):
                raise FrontierLost(
                    f"{filled[0]} has records (it ends at {ends[filled[0]]}), but group {self.settings.application} has no frontier for {place}: "
                    "its offsets expired or were deleted, or the topic was filled by something else. "
                    f"{'`reo recover` finds the frontier from the data. Otherwise copy' if route.is_one_to_one and self.recoverable else 'Copy'} "
                    "to a new topic, or set deduplicator.without_frontier=append to copy from source.start behind what is there")
            counted = max((commit.frontier.source_partitions for other, commit in commits.items() if other.topic == place.topic),
                          default=sources[route].partitions)
            offset = first_source_offset(self.settings, source_admin, route.source(place.partition),
                                         added=place.partition >= counted or place in commits or self._has_appeared(place, bool(filled)))
            stands = Output(ends[output] - 1, 0) if route.is_one_to_one else UNCOUNTED
            kept = [commit.frontier for other, commit in commits.items()
                    if other.topic == place.topic and commit.frontier.destination_topic_id == leads_to[place.topic].topic_id]
            identity = source_candidates.find_copied_identity(self.settings, sources[route], kept)
            frontier = Frontier(RuleState(offset - 1, 0, None), identity, counted, leads_to[place.topic].topic_id, stands.known, stands.sent)
            log.info("%(place)s: first frontier, the copy begins at source offset %(offset)d", {"place": route.source(place.partition), "offset": offset})
            result.assigned[place] = Assigned(-1, frontier)
            if route.is_one_to_one:
                result.outputs[output] = stands

    def _has_appeared(self, place: Place, filled: bool) -> bool:
        """Whether a partition without a frontier came after the copy had begun: `latest` would leave out what it got before it was seen.

        It came later where the service has frontiers of other partitions, or where records of its topic were copied before (then the frontiers were lost).
        Told to append behind what somebody else has copied, reo takes `source.start` as it is.
        """
        if place.topic in self.appeared or self.settings.start.kind != "latest":
            return place.topic in self.appeared
        if self.settings.text("deduplicator.without_frontier") == "append":
            return self.begun and not filled
        return self.begun or self._was_copied(place.topic)

    def _was_copied(self, topic: str) -> bool:
        between, route = self.in_group.places([topic]), self.routes[topic]
        copied = self.keeper.ends([route.destination(place.partition) for place in between]) if route.is_one_to_one else {}
        return any(copied.values()) or any(positions.ends(self.in_group.admin, between).values())

    def _outputs(self, place: Place, leads_to: Mapping[str, topics.Topic]) -> list[Place]:
        """Every destination partition that the records of an intermediate partition can come to."""
        route, fixed = self.routes[place.topic], mapping.number(self.routes[place.topic].mapping)
        if route.mapping == SAME or fixed is not None:
            return [route.destination(place.partition if fixed is None else fixed)]
        return [route.destination(partition) for partition in range(leads_to[place.topic].partitions)]

    def _explained(self, place: Place, source: topics.Topic, leads_to: Mapping[str, topics.Topic]) -> bool:
        """Whether records at a destination that is not one to one are certainly not this partition's: it is new among others that were copied there before.

        Nothing was ever written to its intermediate partition, the group has frontiers for this destination, and none of them is this source's under
        another intermediate topic. An intermediate topic that somebody deleted cannot be told from one that is new.
        """
        if self._is_one_to_one(place) or positions.ends(self.in_group.admin, [place])[place] > 0:
            return False
        topic_id = leads_to[place.topic].topic_id
        known = {there: frontier for there, frontier in self.in_group.group.frontiers().items() if frontier.destination_topic_id == topic_id}
        return bool(known) and not any(frontier.source_identity == source.identity and there.topic != place.topic for there, frontier in known.items())

    def _anchor(self, result: Start, known: Sequence[int]) -> None:
        """Give a position at the end of its intermediate topic, and a raised epoch, to every partition whose own is not there; `known`: committed epochs."""
        beginnings, ends = (ask(self.in_group.admin, result.assigned) for ask in (positions.beginnings, positions.ends))
        outside = {place for place, state in result.assigned.items() if not beginnings[place] <= state.next_offset <= ends[place] or place in self.gaps}
        self.gaps -= outside
        newest = positions.newest_origins(self.in_group.reader, {place: (beginnings[place], ends[place]) for place in outside})
        epoch = epochs.raised(int(self.clock() * 1000), [*known, *(origin.epoch for origin in newest.values())])
        for place in outside:
            state = result.assigned[place]
            if state.next_offset >= 0:
                log.warning("%(place)s: offset %(offset)d is gone from the intermediate topic; going on at its end with epoch %(epoch)d",
                            {"place": place, "offset": state.next_offset, "epoch": epoch})
            state.frontier = anchored(state.frontier, epoch)
            state.next_offset = ends[place]
            result.made.append(place)
            result.raised.append(place)

    def raise_again(self, start: Start) -> list[Place]:
        """After the commit of `made`: those that have to be committed once more, since a run that has not read them can be above them all the same.

        A run has one epoch for all partitions. While these were on their way, another worker can have raised the epoch of others, and a run can have read
        those, and of these what was there before. It was planned before this commit, so now the others' epochs tell how high it can be.
        """
        commits = self.in_group.commits(self.routes)
        others = [commit.frontier.rule.epoch for place, commit in commits.items() if place not in start.raised]
        late = [place for place in start.raised if epochs.can_exceed(others, start.assigned[place].frontier.rule.epoch)]
        epoch = epochs.raised(int(self.clock() * 1000), others)
        for place in late:
            start.assigned[place].frontier = anchored(start.assigned[place].frontier, epoch)
        start.raised = []
        return late


def first_source_offset(settings: Settings, source_admin: AdminClient, place: Place, added: bool) -> int:
    """Where `source.start` lets a partition begin; `added`: it came later, or its copy was deleted."""
    start = settings.start
    if start.from_beginning(place.partition, added):
        return positions.beginnings(source_admin, [place])[place]
    if start.kind == "offsets":
        return start.offsets[place.partition]
    end = positions.ends(source_admin, [place])[place]  # asked first: a record that comes between the two questions is not left out
    if start.kind == "timestamp":
        offset = positions.list_offsets(source_admin, [place], OffsetSpec.for_timestamp(start.timestamp_ms))[place]
        return offset if offset >= 0 else end  # no record is that young yet
    return end


def check_offsets(settings: Settings, source_admin: AdminClient, sources: Mapping[Route, topics.Topic], begun: Container[Place]) -> None:
    """SettingsInvalid when `source.start` names a partition or an offset that the source does not have.

    All of them are looked at before the first one is used: a frontier that was made stays, also when the setting is corrected. `begun` have one.
    """
    if not settings.start.offsets:
        return
    if len(sources) > 1:
        raise SettingsInvalid("source.start names partitions, and several topics are copied: begin each topic with a service of its own, or with a timestamp")
    (route, source), = sources.items()
    offsets = {route.source(partition): offset for partition, offset in sorted(settings.start.offsets.items()) if route.intermediate(partition) not in begun}
    unknown = [place.partition for place in offsets if place.partition >= source.partitions]
    if unknown:
        raise SettingsInvalid(f"source.start names partition {unknown[0]} of {source.name}, which has partitions 0 to {source.partitions - 1}")
    begins, ends = (ask(source_admin, offsets) for ask in (positions.beginnings, positions.ends))
    wrong = [f"offset {offset} of {place}, which has {begins[place]} to {ends[place]}"
             for place, offset in offsets.items() if not begins[place] <= offset <= ends[place]]
    if wrong:
        raise SettingsInvalid(f"source.start asks for {'; '.join(wrong)} (the last one is the next record's)")


def anchored(frontier: Frontier, epoch: int) -> Frontier:
    """The same source offset in a raised epoch, with nothing linked: what belongs to a position at the end of the intermediate topic."""
    return replace(frontier, rule=RuleState(frontier.rule.frontier, epoch, None))
