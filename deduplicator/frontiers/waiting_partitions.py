"""The start of partitions that wait for their frontiers, between two polls of the loop.

Frontiers that are new are committed before any record is fetched, in a transaction of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from common import failpoints
from common.liveness import Liveness
from deduplicator.destination import Destination
from deduplicator.frontiers.committed_frontiers import TransactionUndecided
from deduplicator.frontiers.start import PartitionStarter
from deduplicator.intermediate_consumer import Intermediate
from deduplicator.partition import Partition
from deduplicator.partitions import Partitions
from deduplicator.transactions.commit_metrics import set_frontier_metric
from deduplicator.transactions.transaction_failures import TransactionFailed

log = logging.getLogger(__name__)


class WaitingPartitions:
    """Starts those that wait in `partitions`."""

    def __init__(
        self,
        partitions: Partitions,
        intermediate: Intermediate,
        starter: PartitionStarter,
        destination: Destination,
        liveness: Liveness,
    ) -> None:
        self.partitions = partitions
        self.intermediate = intermediate
        self.starter = starter
        self.destination = destination
        self.liveness = liveness

    def start(self) -> bool:
        """For partitions that wait: load and check their frontiers, commit first frontiers, then
        fetch from there; False when such a commit has failed. The worker is not ready meanwhile.

        If that commit fails, they go on waiting, and the next round polls first: partitions that
        are revoked by then are not tried again. What is to be committed is kept, since nobody else
        moves these frontiers.
        """
        if self.partitions.has_revoked:
            self.partitions.has_revoked = False
            self.starter.on_revoked()
        while self.partitions.waiting:
            if self.liveness.reason is None:
                self.liveness.report_waiting("destination")
            try:
                loaded = self.partitions.list_loaded()
                if not loaded:
                    if not self._is_assignment_current():
                        return True
                    loaded = self.starter.start_partitions(
                        self.partitions.waiting, self.partitions.list_known()
                    )
                    failpoints.hit("two: frontier read")
                    self.partitions.on_loaded(loaded)
                self._commit_first_frontiers([one for one in loaded if one.is_uncommitted])
            except TransactionUndecided as undecided:
                log.info("waiting for a transaction: %s", undecided)
                return True
            except TransactionFailed as failed:
                log.warning("committing first frontiers again after: %s", failed)
                return False
            self.partitions.start(loaded)
            # only now: partitions that are lost together with their cluster keep reporting lag
            self.liveness.lag.keep_only(self.partitions.assigned)
            for partition in loaded:
                set_frontier_metric(partition)
            self.intermediate.start_fetching([partition.tp for partition in loaded])
        return True

    def _is_assignment_current(self) -> bool:
        """Whether offsets that are sent with the group metadata of the last assignment are refused
        as soon as these partitions are another worker's (`deduplicator.intermediate_consumer`).
        """
        return self.intermediate.incremental or self.starter.consumer_group.is_assigned(
            self.partitions.waiting, self.intermediate.member_metadata.get_member_id()
        )

    def _commit_first_frontiers(self, uncommitted: Collection[Partition]) -> None:
        if not uncommitted:
            return
        member = self.intermediate.member_metadata.get()
        self.destination.begin()
        self.destination.send_offsets([one.prepare_commit() for one in uncommitted], member)
        self.destination.start_commit()
        self.destination.finish_commit()
        failpoints.hit("two: first frontier made")
        for partition in uncommitted:
            partition.on_commit_started()
