"""`--stop-at-end` in stage one: whether all that the source had at the start is copied, and the end
of the run.

What the source has after the frontier need not be a record to copy: transaction markers and aborted
records have offsets too. (What `filter.sql` leaves out is below the frontier: the sink's envelopes
go on over it.) Stage two commits how far that goes, so that a later start does not read it again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Literal

from common import runtime
from common.errors import ClusterUnreachable, SourceTruncated
from common.kafka import destination_contents, partition_offsets, topics
from common.kafka.partition_offsets import GroupCommit
from common.liveness import Liveness
from common.routes import TopicPartition
from common.source_candidates import get_request_timeout_s
from common.stage_process import Stopping
from replicator import empty_envelopes, last_record_check
from replicator.clients import Clients
from replicator.cluster_snapshot import OUTAGE_S, find_first_visible
from replicator.run import Plan
from replicator.run_planner import Planner

log = logging.getLogger(__name__)
WRITTEN_DOWN_S = 10.0
"""How long to wait for stage two at the end. What it has not committed by then, the next start
checks again.
"""
LOG_S = 10.0
Left = Literal["nothing", "records", "unknown"]


class Completion:
    """What the runs of one process have left to copy."""

    def __init__(
        self,
        clients: Clients,
        planner: Planner,
        liveness: Liveness,
        stopping: Stopping,
    ) -> None:
        self.clients = clients
        self.planner = planner
        self.liveness = liveness
        self.stopping = stopping
        self.end_offsets: dict[TopicPartition, int] = {}
        """By intermediate partition, the source's end when the process started."""
        self.logged_at_s = -LOG_S

    def find_left(self, plan: Plan) -> Left:
        """What is left to copy of all that the source had when the process started; "nothing" only
        when the destination has it. "unknown": another plan has to tell.
        """
        try:
            if not self._is_copied(plan):
                return "records"
            if not self._is_same_source(plan):
                return "unknown"
        except ClusterUnreachable as silent:
            log.warning("whether everything is copied cannot be told yet: %s", silent)
            return "unknown"
        if self.has_copied_records(plan, self.planner.try_read_commits(plan.start_offsets)):
            return "nothing"
        if runtime.monotonic() > self.logged_at_s + LOG_S:
            self.logged_at_s = runtime.monotonic()
            log.info(
                "everything is copied, say the frontiers, but the destination does not show it:"
                " waiting until stage two has compared them"
            )
        return "unknown"

    def has_copied_records(self, plan: Plan, commits: Mapping[TopicPartition, GroupCommit]) -> bool:
        """Whether the destination has what these commits say. Where it lost records, or was
        recreated, stage two moves the frontier back or stops, and a frontier that it has not
        checked yet proves nothing. It may have moved the frontier back since the plan was made.
        """
        return all(
            tp in commits and commits[tp].frontier.source_offset + 1 >= start
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
        source_partitions = plan.map_source_partitions()
        if not self.end_offsets:
            ends = partition_offsets.list_end_offsets(
                self.clients.source_admin, source_partitions.values(), committed_only=True
            )
            self._warn_of_open_transactions(ends)
            self.end_offsets = {tp: ends[source_tp] for tp, source_tp in source_partitions.items()}
        self._check_ends(plan, source_partitions)
        first_visible = find_first_visible(
            self.clients,
            {
                source_partitions[tp]: (begin, end)
                for tp, (begin, end) in self._list_uncopied(plan).items()
            },
        )
        return all(offset is None for offset in first_visible.values())

    def _list_uncopied(self, plan: Plan) -> dict[TopicPartition, tuple[int, int]]:
        """By intermediate partition, the source offsets that are not below the frontier and were
        there when the process started: the first one, and the one after the last.
        """
        return {
            tp: (plan.start_offsets[tp], end)
            for tp, end in self.end_offsets.items()
            if plan.start_offsets[tp] < end
        }

    def _check_ends(
        self, plan: Plan, source_partitions: Mapping[TopicPartition, TopicPartition]
    ) -> None:
        """SourceTruncated when a partition has lost records that were not copied: no run gets to
        the end. Not on one answer: a leader that was replaced can end earlier. With failover, a
        candidate that ends earlier can be behind.
        """
        uncopied = {
            source_partitions[tp]: end for tp, (_, end) in self._list_uncopied(plan).items()
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

    def write_empty_ranges(self, plan: Plan) -> None:
        """Everything is copied, so between the frontiers and the ends is nothing to copy: have
        stage two commit that, where it is certain. SourceTruncated when the source has lost what
        was copied.
        """
        try:
            empty_ranges = self._find_empty_ranges(plan)
        except ClusterUnreachable as silent:
            log.info("the next start reads the source from the frontiers on: %s", silent)
            return
        self.clients.empty_envelopes.write(
            empty_envelopes.build_empty_heads(plan.epoch, plan.identities, empty_ranges),
            empty_envelopes.STATE_AGAIN_S,
        )
        self.clients.empty_envelopes.flush()
        deadline = runtime.monotonic() + WRITTEN_DOWN_S
        while empty_ranges and runtime.monotonic() < deadline and not self.stopping():
            self.liveness.beat()
            commits = self.planner.try_read_commits(empty_ranges)
            empty_ranges = {
                tp: (begin, end)
                for tp, (begin, end) in empty_ranges.items()
                if tp not in commits or commits[tp].frontier.source_offset < end - 1
            }
            runtime.sleep(0.05)

    def _find_empty_ranges(self, plan: Plan) -> dict[TopicPartition, tuple[int, int]]:
        """The ranges of `_list_uncopied` of which certainly nothing was ever visible: the
        conditions of `replicator.empty_envelopes`. The look at the source is between two answers
        about its leaders, and the last copied records are compared before it.
        """
        uncopied, source_partitions = self._list_uncopied(plan), plan.map_source_partitions()
        at_source = {source_partitions[tp]: empty_range for tp, empty_range in uncopied.items()}
        timeout_s = get_request_timeout_s(plan.settings)
        began_at_s = runtime.monotonic()
        before = partition_offsets.list_stable_ends(self.clients.source_admin, at_source, timeout_s)
        last_record_check.check_source_history(
            plan.settings,
            self.clients.source_admin,
            self.clients.source_reader,
            {tp: last for tp, last in plan.last_copied.items() if tp in at_source},
            self.clients.beat,
        )
        look_began_at_s = runtime.monotonic()
        first_visible = find_first_visible(self.clients, at_source)
        look_s = runtime.monotonic() - look_began_at_s
        beginnings = partition_offsets.list_beginning_offsets(
            self.clients.source_admin, at_source, timeout_s
        )
        now = partition_offsets.list_stable_ends(self.clients.source_admin, at_source, timeout_s)
        # a look may be long: it reads over all markers
        if runtime.monotonic() - began_at_s - look_s > OUTAGE_S:
            return {}
        return {
            tp: (begin, end)
            for tp, (begin, end) in uncopied.items()
            for source in (source_partitions[tp],)
            if first_visible[source] is None
            and beginnings[source] <= begin
            and now[source].offset >= end
            and now[source].leader_epoch == before[source].leader_epoch
        }
