"""What must be true of each committed frontier, whenever no transaction is open on its partitions:

- everything up to it is at the destination, and nothing above it;
- it moves forward, and its epoch too, unless a fault has set it back;
- the destination partition has exactly `sent` visible records after `destination_known`, and one
  at this offset if the frontier says so. The next start believes that;
- no gap is open below it; nor any when every envelope was written to the intermediate topic, in
  order, and is still there. Stage one ends its run when a gap stays open.

A frontier that is wrong can be put right by the next delivery, and a gap by the next run, and the
copy be exact all the same: `simulator.judge` would not see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common import frontier as frontiers
from common.frontier import Frontier
from common.routes import TopicPartition
from tools.simulator import log_reader
from tools.simulator.fault_kinds import (
    DESTINATION_RECREATED,
    FAULTS_THAT_OPEN_GAPS,
    FRONTIERS_DELETED,
    INTERMEDIATE_RECREATED,
    TORN,
)
from tools.simulator.kafka.log import Log

if TYPE_CHECKING:
    from tools.simulator.judge import Judge
    from tools.simulator.kafka.groups import Group
    from tools.simulator.system import System

FAULTS_THAT_SET_BACK = frozenset({DESTINATION_RECREATED, FRONTIERS_DELETED, TORN})
"""After these, stage two or `reo recover` may commit an older frontier."""


class FrontierJudge:
    """Compares the group's commits with the destination's logs, in both of which something has
    changed since.
    """

    def __init__(self, system: System, judge: Judge) -> None:
        self.system = system
        self.judge = judge
        self.violation = ""
        self.change_count = -1
        self.compared: dict[TopicPartition, tuple[str, int]] = {}
        """By intermediate partition: the commit, and the end of the destination partition, that
        were compared last.
        """
        self.newest: dict[TopicPartition, Frontier] = {}
        """By intermediate partition: the frontier that was compared last."""

    def has_violation(self) -> bool:
        """Called after each step."""
        if self.change_count != Log.change_count and not self.violation:
            self.change_count = Log.change_count
            group = self.system.destination.groups.get(self.system.settings.application)
            if group is not None and not self.judge.is_history_lost:
                self._compare_commits(group)
        return bool(self.violation)

    def describe_unfinished(self) -> str:
        """Which partitions have no committed frontier, or one with an open gap."""
        group = self.system.destination.groups.get(self.system.settings.application)
        if group is None:
            return "there is no group"
        for source in self.system.list_source_partitions():
            intermediate = self.system.find_intermediate(source)
            commit = group.offsets.committed.get(intermediate)
            if commit is None:
                return f"the group has no frontier of {intermediate}"
            frontier = frontiers.decode(commit[1])
            if frontier.gap is not None:
                return f"a gap is open in {intermediate}: {frontier}"
        return ""

    def _compare_commits(self, group: Group) -> None:
        pending = {key for offsets in group.offsets.pending.values() for key in offsets}
        for source in self.system.list_source_partitions():
            intermediate = self.system.find_intermediate(source)
            commit = group.offsets.committed.get(intermediate)
            if commit and intermediate not in pending:
                self._compare(source, intermediate, commit[1])

    def _compare(self, source: TopicPartition, intermediate: TopicPartition, metadata: str) -> None:
        tp = self.system.find_destination(source)
        log = self.system.destination.find_log(*tp)
        if log is None or log.open_transactions or log.last_stable_offset != log.end:
            return
        if self.compared.get(intermediate) == (metadata, log.end):
            return
        self.compared[intermediate] = metadata, log.end
        frontier = frontiers.decode(metadata)
        self.violation = (
            self._find_setback(source, intermediate, frontier)
            or self._find_wrong_gap(intermediate, frontier)
            or self._find_wrong_offset(source, intermediate, frontier)
            or self._find_wrong_position(tp, intermediate, frontier)
        )
        self.newest[intermediate] = frontier

    def _find_setback(
        self, source: TopicPartition, intermediate: TopicPartition, frontier: Frontier
    ) -> str:
        newest = self.newest.get(intermediate)
        # without a record, one that is lost with its topic is created as the first one was
        is_allowed = self._may_be_set_back() or (
            INTERMEDIATE_RECREATED in self.system.faults.injected_kinds
            and self.judge.find_last_copied_offset(source) < 0
        )
        if newest is None or is_allowed:
            return ""
        before = newest.source_offset, newest.epoch
        now = frontier.source_offset, frontier.epoch
        if now[0] >= before[0] and now[1] >= before[1]:
            return ""
        return f"the frontier of {intermediate} (offset, epoch) was {before} and is {now}"

    def _may_be_set_back(self) -> bool:
        """Whether an older frontier may be committed. One that is lost with its topic is what a
        worker remembers as certain, and another worker, or a transaction in doubt, can have
        committed more since.
        """
        injected_kinds = set(self.system.faults.injected_kinds)
        workers = sum(child.name.startswith("worker") for child in self.system.children)
        is_certain = injected_kinds == {INTERMEDIATE_RECREATED} and workers == 1
        return not FAULTS_THAT_SET_BACK.isdisjoint(injected_kinds) or (
            INTERMEDIATE_RECREATED in injected_kinds
            and (self.system.is_recovered or not is_certain)
        )

    def _find_wrong_gap(self, intermediate: TopicPartition, frontier: Frontier) -> str:
        if frontier.gap is None:
            return ""
        if frontier.gap <= frontier.source_offset:
            return f"a gap is open in {intermediate} that is filled: {frontier}"
        faults = FAULTS_THAT_OPEN_GAPS | FAULTS_THAT_SET_BACK
        if not faults.isdisjoint(self.system.faults.injected_kinds):
            return ""
        return f"a gap is open in {intermediate}, but no envelope is missing there: {frontier}"

    def _find_wrong_offset(
        self, source: TopicPartition, intermediate: TopicPartition, frontier: Frontier
    ) -> str:
        route, cluster = self.system.find_route(source.topic), self.system.destination
        is_of_this_topic = frontier.destination_topic_id == str(
            cluster.topics[route.destination_topic].id
        )
        if intermediate in self.system.faults.torn_partitions or not is_of_this_topic:
            return ""
        uncopied = self.judge.find_first_uncopied_offset(source)
        if uncopied is not None and uncopied <= frontier.source_offset:
            return (
                f"the frontier of {intermediate} is at {frontier.source_offset}, but the record at"
                f" source offset {uncopied} is not copied"
            )
        last_copied = self.judge.find_last_copied_offset(source)
        if last_copied > frontier.source_offset and not self._may_be_set_back():
            return (
                f"the frontier of {intermediate} is at {frontier.source_offset}, but the record at"
                f" source offset {last_copied} is copied"
            )
        return ""

    def _find_wrong_position(
        self, tp: TopicPartition, intermediate: TopicPartition, frontier: Frontier
    ) -> str:
        cluster = self.system.destination
        if frontier.sent < 0 or frontier.destination_topic_id != str(cluster.topics[tp.topic].id):
            return ""
        known = frontier.destination_known
        read_result = log_reader.read_committed(cluster, tp, known + 1)
        visible = len(read_result[0]) if read_result else -1
        at_known = log_reader.read_committed(cluster, tp, known, end=known + 1)
        if frontier.is_known_written and at_known and not at_known[0]:
            return f"the frontier of {intermediate} is wrong: {tp} has no record at offset {known}"
        if visible == frontier.sent:
            self.system.faults.torn_partitions.discard(intermediate)
        elif intermediate not in self.system.faults.torn_partitions and not (
            visible > frontier.sent and self._may_be_set_back()
        ):
            # of a torn transaction, the records are visible too
            return (
                f"the frontier of {intermediate} is wrong: {frontier.sent} records were sent to"
                f" {tp} after offset {known}, and {visible} are visible"
            )
        return ""
