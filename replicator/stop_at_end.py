"""`--stop-at-end` in stage one: whether all that the source had at the start is copied, and the end
of the run.

What the source has after the frontier need not be a record to copy: transaction markers, aborted
records, and what the filter leaves out. Stage two commits how far that goes, so that a later start
does not read it again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from common import runtime
from common.errors import ClusterUnreachable, SourceTruncated
from common.kafka import destination_contents, partition_offsets, topics, visible_records
from common.kafka.partition_offsets import GroupCommit
from common.liveness import Liveness
from common.routes import TopicPartition
from common.settings import Settings
from common.source_candidates import get_request_timeout_s
from common.stage_process import Stopping
from replicator.clients import Clients
from replicator.read_up_to_writer import EmptyRange
from replicator.run import Plan
from replicator.run_planner import Planner
from replicator.run_watch import Watch

log = logging.getLogger(__name__)
WRITTEN_DOWN_S = 10.0
"""How long to wait for stage two at the end. What it has not committed by then, the next start
checks again.
"""


class Completion:
    """What the runs of one process have left to copy."""

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        planner: Planner,
        liveness: Liveness,
        stopping: Stopping,
    ) -> None:
        self.clients = clients
        self.planner = planner
        self.liveness = liveness
        self.stopping = stopping
        self.has_filter = bool(settings.filter.sql)
        self.end_offsets: dict[TopicPartition, int] = {}
        """By intermediate partition, the source's end when the process started."""
        self.nothing_passes_from: Mapping[TopicPartition, int] = {}
        """With a filter, by intermediate partition: the source offset at which the last run began,
        if it has read to the end and has written nothing.
        """
        self.last_read_up_to: dict[TopicPartition, int] = {}
        """By intermediate partition, how far the last run that finished by itself has read."""

    def note_finished_run(self, watch: Watch, offsets: dict[TopicPartition, int]) -> None:
        """A run has ended by itself; `offsets`: how far it has read, by source partition."""
        has_written_nothing = self.has_filter and watch.has_written_nothing()
        self.nothing_passes_from = watch.plan.start_offsets if has_written_nothing else {}
        self.last_read_up_to = {
            tp: offsets[source_tp]
            for tp, source_tp in watch.source_partitions.items()
            if source_tp in offsets
        }

    def is_complete(self, plan: Plan) -> bool:
        """Whether everything that the source had when the process started is below the frontier,
        except what the filter leaves out, and the destination has it.
        """
        try:
            if not self._is_copied(plan) or not self._is_same_source(plan):
                return False
        except ClusterUnreachable as silent:
            log.warning("whether everything is copied cannot be told yet: %s", silent)
            return False
        is_there = self.has_copied_records(plan, self.planner.try_read_commits(plan.start_offsets))
        if not is_there:
            log.info(
                "everything is copied, say the frontiers, but the destination does not show it:"
                " waiting until stage two has compared them"
            )
        return is_there

    def has_copied_records(self, plan: Plan, commits: Mapping[TopicPartition, GroupCommit]) -> bool:
        """Whether the destination has what these commits say. Where it lost records, or was
        recreated, stage two moves the frontier back or stops, and a frontier that it has not
        checked yet proves nothing. It may have moved the frontier back since the plan was made.
        """
        return all(
            tp in commits and commits[tp].frontier.rule.frontier + 1 >= start
            for tp, start in plan.start_offsets.items()
        ) and destination_contents.has_copied_records(
            self.clients.destination_admin,
            self.clients.destination_reader,
            plan.settings,
            plan.sources,
            commits,
            self.clients.beat,
        )

    def _is_same_source(self, plan: Plan) -> bool:
        """Whether the topics that were asked are those of the plan; the next plan names one that
        was recreated since.
        """
        return plan.sources == topics.describe_sources(
            plan.settings, self.clients.source_admin, get_request_timeout_s(plan.settings)
        )

    def _is_copied(self, plan: Plan) -> bool:
        if self._is_filtered_out(plan):
            return True
        source_partitions = plan.map_source_partitions()
        if not self.end_offsets:
            ends = partition_offsets.list_end_offsets(
                self.clients.source_admin, source_partitions.values(), committed_only=True
            )
            self._warn_of_open_transactions(ends)
            self.end_offsets = {tp: ends[source_tp] for tp, source_tp in source_partitions.items()}
        self._check_ends(plan, source_partitions)
        return all(
            visible_records.find_first_visible(
                self.clients.source_reader,
                source_partitions[tp],
                plan.start_offsets[tp],
                end,
                self.clients.beat,
            )
            is None
            for tp, end in self.end_offsets.items()
        )

    def _check_ends(
        self, plan: Plan, source_partitions: Mapping[TopicPartition, TopicPartition]
    ) -> None:
        """SourceTruncated when a partition has lost records that were not copied: no run gets to
        the end. Not on one answer: a leader that was replaced can end earlier. With failover, a
        candidate that ends earlier can be behind.
        """
        uncopied = {
            source_partitions[tp]: end
            for tp, end in self.end_offsets.items()
            if plan.start_offsets[tp] < end
        }
        if not uncopied or plan.settings.failover or not self._find_shorter(uncopied):
            return
        partition_offsets.wait_before_asking_again(
            self.clients.source_admin, {tp.topic for tp in uncopied}
        )
        shorter = self._find_shorter(uncopied)
        if shorter and self._is_same_source(plan):
            tp, end = min(shorter.items())
            raise SourceTruncated(
                f"{tp} ended at offset {uncopied[tp]} when this process started, and ends at {end}"
                " now: the source lost its newest records. To copy what it has now, start again"
            )

    def _find_shorter(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The source partitions that end before these offsets, and where."""
        ends_now = partition_offsets.list_end_offsets(self.clients.source_admin, ends)
        return {tp: ends_now[tp] for tp, end in ends.items() if ends_now[tp] < end}

    def _warn_of_open_transactions(self, stable_ends: Mapping[TopicPartition, int]) -> None:
        """What a read_committed consumer cannot read yet is not waited for."""
        ends = partition_offsets.list_end_offsets(self.clients.source_admin, stable_ends)
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

    def _is_filtered_out(self, plan: Plan) -> bool:
        """Whether the last run has read all that this plan would read, and nothing of it has passed
        the filter. Stage two may have moved a frontier back since that run began, and the run may
        have been of another candidate, which ends earlier.
        """
        return all(
            tp in self.nothing_passes_from
            and self.nothing_passes_from[tp] <= start
            and self.last_read_up_to.get(tp, start) >= self.end_offsets.get(tp, 0)
            for tp, start in plan.start_offsets.items()
        )

    def write_read_up_to(self, plan: Plan) -> None:
        """Everything is copied, so between the frontiers and the ends is nothing to copy: have
        stage two commit that.

        A source that has lost its newest records since ends earlier; the offsets after that end
        will be those of other records.
        """
        is_filtered_out = self._is_filtered_out(plan)
        ends = self.last_read_up_to if is_filtered_out else self.end_offsets
        source_partitions = plan.map_source_partitions()
        begins, ends_now = partition_offsets.list_bounds(
            self.clients.source_admin, source_partitions.values()
        )
        empty_ranges = {
            tp: EmptyRange(start - 1, end)
            for tp, start in plan.start_offsets.items()
            if (end := min(ends.get(tp, 0), ends_now[source_partitions[tp]])) > start
            and (is_filtered_out or begins[source_partitions[tp]] <= start)
        }
        self.clients.read_up_to_writer.write(plan.epoch, plan.identities, empty_ranges)
        self.clients.read_up_to_writer.flush()
        deadline = runtime.monotonic() + WRITTEN_DOWN_S
        while empty_ranges and runtime.monotonic() < deadline and not self.stopping():
            self.liveness.beat()
            commits = self.planner.try_read_commits(empty_ranges)
            empty_ranges = {
                tp: gap
                for tp, gap in empty_ranges.items()
                if tp not in commits or commits[tp].frontier.rule.frontier < gap.end - 1
            }
            runtime.sleep(0.05)
