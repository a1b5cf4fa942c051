"""What must be true of each committed frontier, whenever no transaction is open on its partitions:

- the destination partition has exactly `sent` visible records after `destination_known`, and one
  at this offset if the frontier says so. The next start believes that;
- no hole is open when every record was written to the intermediate topic and is still there. Stage
  one ends its run when a hole stays open.

A frontier that is wrong can be put right by the next delivery, and a hole by the next run, and the
copy be exact all the same: `simulator.judge` would not see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common import frontier as frontiers
from common.routes import TopicPartition
from simulator import log_reader
from simulator.kafka.log import Log

if TYPE_CHECKING:
    from simulator.judge import Judge
    from simulator.kafka.groups import Group
    from simulator.system import System

FAULTS_THAT_OPEN_HOLES = frozenset(
    {
        "producer batch late",
        "producer batch lost",
        "task repeated",
        "newest intermediate records lost",
        "unread intermediate records deleted",
        "intermediate topic compacted",
    }
)


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

    def has_violation(self) -> bool:
        """Called after each step."""
        if self.change_count != Log.change_count and not self.violation:
            self.change_count = Log.change_count
            group = self.system.destination.groups.get(self.system.settings.application)
            if group is not None and not self.judge.is_history_lost:
                self._compare_commits(group)
        return bool(self.violation)

    def _compare_commits(self, group: Group) -> None:
        pending = {key for offsets in group.pending.values() for key in offsets}
        for source in self.system.list_source_partitions():
            intermediate = self.system.find_route(source.topic).get_intermediate(source.partition)
            commit = group.offsets.get(intermediate)
            if commit and intermediate not in pending:
                self._compare(source, intermediate, commit[1])

    def _compare(self, source: TopicPartition, intermediate: TopicPartition, metadata: str) -> None:
        tp = self.system.find_route(source.topic).get_destination(source.partition)
        cluster = self.system.destination
        log = cluster.find_log(*tp)
        if log is None or log.open_transactions or log.last_stable_offset != log.end:
            return
        if self.compared.get(intermediate) == (metadata, log.end):
            return
        self.compared[intermediate] = metadata, log.end
        frontier = frontiers.decode(metadata)
        topic = cluster.topics.get(intermediate.topic)
        if (
            frontier.rule.hole
            and FAULTS_THAT_OPEN_HOLES.isdisjoint(self.system.faults.injected_kinds)
            # else records of the old topic are missing
            and topic
            and frontier.intermediate_topic_id == str(topic.id)
        ):
            self.violation = (
                f"a hole is open in {intermediate}, but no record is missing there: {frontier.rule}"
            )
            return
        if frontier.sent < 0 or frontier.destination_topic_id != str(cluster.topics[tp.topic].id):
            return
        known = frontier.destination_known
        read_result = log_reader.read_committed(cluster, tp, known + 1)
        visible = len(read_result[0]) if read_result else -1
        at_known = log_reader.read_committed(cluster, tp, known, end=known + 1)
        if frontier.is_known_written and at_known and not at_known[0]:
            self.violation = (
                f"the frontier of {intermediate} is wrong: {tp} has no record at offset {known}"
            )
        elif visible == frontier.sent:
            self.system.faults.torn_partitions.discard(intermediate)
        elif intermediate not in self.system.faults.torn_partitions:
            # of a torn transaction, the records are visible too
            self.violation = (
                f"the frontier of {intermediate} is wrong: {frontier.sent} records were sent to"
                f" {tp} after offset {known}, and {visible} are visible"
            )
