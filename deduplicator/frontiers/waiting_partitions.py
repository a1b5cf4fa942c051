"""The start of partitions that wait for their frontiers, between two polls of the loop.

Frontiers that are new are committed before any record is fetched, in a transaction of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from common import failpoints
from common.liveness import Liveness
from common.routes import Route, TopicPartition
from deduplicator.destination import Destination
from deduplicator.frontiers.committed_frontiers import TransactionUndecided
from deduplicator.frontiers.start import PartitionStarter, StartedPartitions
from deduplicator.intermediate_consumer import Intermediate
from deduplicator.partitions import AssignedPartition, Partitions
from deduplicator.round_output import RoundOutput
from deduplicator.transactions.commit_metrics import set_frontier_metric
from deduplicator.transactions.transaction_failures import TransactionFailed

log = logging.getLogger(__name__)


class WaitingPartitions:
    """Starts those that wait in `partitions`; `routes` is by intermediate topic."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        partitions: Partitions,
        intermediate: Intermediate,
        starter: PartitionStarter,
        destination: Destination,
        round_output: RoundOutput,
        liveness: Liveness,
    ) -> None:
        self.routes = routes
        self.partitions = partitions
        self.intermediate = intermediate
        self.starter = starter
        self.destination = destination
        self.round_output = round_output
        self.liveness = liveness
        self.starting = StartedPartitions()
        """Waiting partitions whose frontiers are loaded, but whose first frontiers could not be
        committed yet.
        """

    def start(self) -> bool:
        """For partitions that wait: load and check their frontiers, commit first frontiers, then
        fetch from there; False when such a commit has failed. The worker is not ready meanwhile.

        If that commit fails, they go on waiting, and the next round polls first: partitions that
        are revoked by then are not tried again. What is to be committed is kept, since nobody else
        moves these frontiers.
        """
        while self.partitions.waiting:
            if self.liveness.reason is None:
                self.liveness.report_waiting("destination")
            try:
                if not self.starting.assigned:
                    if not self._is_assignment_current():
                        return True
                    self.starting = self.starter.start_partitions(
                        self.partitions.waiting, self._list_known()
                    )
                    failpoints.hit("two: frontier read")
                    self.destination.outputs.update(self.starting.outputs)
                self._commit_first_frontiers(self.starting)
            except TransactionUndecided as undecided:
                log.info("waiting for a transaction: %s", undecided)
                return True
            except TransactionFailed as failed:
                log.warning("committing first frontiers again after: %s", failed)
                return False
            started, self.starting = self.starting.assigned, StartedPartitions()
            self.partitions.start(started)
            # only now: partitions that are lost together with their cluster keep reporting lag
            self.liveness.lag.keep_only(self.partitions.assigned)
            for tp, state in started.items():
                set_frontier_metric(self.routes, tp, state.frontier.source_offset)
            self.intermediate.start_fetching(started)
        return True

    def _list_known(self) -> dict[TopicPartition, AssignedPartition]:
        """What this worker knows of the partitions, in case the group has lost it. If more may be
        committed, that is certain to be found where the records of the destination can be compared
        with the frontier, on a route that is one to one.
        """
        comparable = {
            tp: remembered.state
            for tp, remembered in self.partitions.remembered.items()
            if tp in self.partitions.waiting and self.routes[tp.topic].is_one_to_one
        }
        return comparable | self.partitions.list_certain()

    def _is_assignment_current(self) -> bool:
        """Whether offsets that are sent with the group metadata of the last assignment are refused
        as soon as these partitions are another worker's (`deduplicator.intermediate_consumer`).
        """
        return self.intermediate.incremental or self.starter.consumer_group.is_assigned(
            self.partitions.waiting, self.intermediate.member_metadata.get_member_id()
        )

    def forget(self, tp: TopicPartition) -> None:
        """The partition is revoked, or its frontier has to be loaded again."""
        self.starting.forget(tp)

    def _commit_first_frontiers(self, start: StartedPartitions) -> None:
        if not start.to_commit:
            return
        member = self.intermediate.member_metadata.get()
        self.destination.begin()
        self.round_output.send_offsets({tp: start.assigned[tp] for tp in start.to_commit}, member)
        self.destination.start_commit()
        self.destination.finish_commit()
        failpoints.hit("two: first frontier made")
        start.to_commit = []
