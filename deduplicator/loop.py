"""Stage two's loop: one round is one transaction.

    step         what                                      after a crash
    1. consume   envelopes from the intermediate topic     nothing happened
    2. decide    which of them are new (`rule`), pure      nothing happened
    3. begin     a transaction of the next producer        the successor aborts it, empty
    4. write     their new records                         aborted; nobody sees them
    5. offsets   with the frontier as metadata, last       aborted; the successor waits until that
                                                           is certain
    6. finish    the commit of the round before            the successor ends both transactions;
                                                           this one is aborted
    7. commit    both become visible together              before the answer: the successor reads
                                                           the outcome

Commits overlap: step 7 only sends EndTxn, and the answer is collected in step 6 of the next round,
or as soon as no more records are there (`Loop.finish_commit`). What makes that safe is in
design-schema.md, section 5. So the state in memory is ahead of what is known to be committed by one
transaction at most. After any failure, whichever of the two has failed, the worker ends both, reads
the committed frontier again, checks it and continues from it: the same path as after an assignment
(`Loop.start_waiting`). In a poll no transaction is open, except one whose EndTxn is sent; and none
is begun inside a poll. Steps 1 and 2 alternate until their time is over, no more envelopes are
there, or the transaction is full. Everything that is known of a partition is in its `Partition`,
and dropped with it when the group revokes it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from common import clock, failpoints
from common.errors import DestinationTruncated, RecordRefused, Stop, of_topic
from common.liveness import Liveness
from common.metrics import REREADS
from common.routes import Route
from common.settings import Settings
from deduplicator.destination import Destination
from deduplicator.frontiers.committed_frontiers import TransactionUndecided
from deduplicator.frontiers.start import PartitionStarter
from deduplicator.intermediate_consumer import Intermediate
from deduplicator.partition import Partition
from deduplicator.partitions import Partitions
from deduplicator.record_filter import RecordFilter
from deduplicator.refused_record import name_refused_record
from deduplicator.round_input import RoundInput
from deduplicator.started_commit import StartedCommit, set_frontier_metric
from deduplicator.transactions.transaction_failures import TransactionFailed
from deduplicator.transactions.transaction_limits import TransactionLimits

log = logging.getLogger(__name__)
FIRST_ENVELOPE_S = 0.2
"""How long a round waits for its first envelope; how long it takes up more of them is
`transaction_limits.CONSUME_MAX_S`.
"""
FIRST_ENVELOPE_COMMITTING_S = 0.01
"""The same while a commit is not finished."""


class Loop:
    """The rounds of one worker over its `partitions`; `routes` is by intermediate topic."""

    def __init__(
        self,
        settings: Settings,
        routes: Mapping[str, Route],
        partitions: Partitions,
        intermediate: Intermediate,
        starter: PartitionStarter,
        destination: Destination,
        liveness: Liveness,
        record_filter: RecordFilter | None = None,
    ) -> None:
        self.routes = routes
        self.partitions = partitions
        self.intermediate = intermediate
        self.starter = starter
        self.destination = destination
        self.liveness = liveness
        self.started_commit: StartedCommit | None = None
        self.has_failed = False
        """Whether the last transaction was not committed."""
        transaction_timeout_s = settings.deduplicator.transaction_timeout_ms / 1000
        self.transaction_limits = TransactionLimits(
            settings.deduplicator.transaction_records, transaction_timeout_s
        )
        self.round_input = RoundInput(
            settings,
            partitions,
            intermediate,
            destination,
            liveness,
            self.transaction_limits,
            record_filter,
        )

    def run_round(self, finish: bool = False) -> None:
        """Steps 1 to 7, or the recovery after a failure; then start the partitions that wait. With
        `finish`, no commit is unfinished afterwards.
        """
        self.liveness.beat()
        try:
            self.round_input.consume(
                FIRST_ENVELOPE_COMMITTING_S if self.started_commit else FIRST_ENVELOPE_S
            )
            decided = self.partitions.list_decided()
            if decided:
                failpoints.hit("two: decided")
                self.run_transaction(decided)
            if finish or not decided or self.partitions.waiting or self.has_failed:
                self.finish_commit()
        except TransactionFailed as failed:
            self.recover(failed)
        if self.partitions.waiting and not self.start_waiting():
            self.has_failed = True
            self.destination.resolve_in_doubt()

    def recover(self, failed: TransactionFailed | Stop) -> None:
        """End what is open or unfinished; then every partition waits for its committed frontier."""
        log.warning("reading the frontier again after: %s", failed)
        REREADS.inc()
        undone = self.partitions.list_decided()
        if undone:
            self.transaction_limits.on_failed(
                sum(partition.get_decisions().consumed for partition in undone)
            )
        self.destination.abort()
        try:
            self.finish_commit()
        except TransactionFailed as failed_too:
            log.warning("the commit before has failed too: %s", failed_too)
        self.has_failed = True
        self.destination.resolve_in_doubt()
        self.partitions.on_in_doubt()

    def run_transaction(self, decided: Sequence[Partition]) -> None:
        """Steps 3 to 7 for these partitions; then their state changes."""
        began_at = clock.monotonic()
        member = self.intermediate.member_metadata.get()
        self.destination.begin()
        failpoints.hit("two: begun")
        try:
            for partition in decided:
                with of_topic(partition.tp.topic):
                    partition.write(self.destination)
            failpoints.hit("two: written")
            last_offsets = self.destination.send_offsets(
                [partition.prepare_commit() for partition in decided], member
            )
            for partition in decided:
                with of_topic(partition.tp.topic):
                    partition.on_delivered(last_offsets)
            self.finish_commit()
            self.destination.start_commit()
            # one transaction at a time until one is committed, so that an error belongs to the
            # records of this round
            if self.has_failed:
                self.destination.finish_commit()
        except RecordRefused as refused:
            self.destination.abort()
            self.destination.check_batches(self.routes.values())
            self.finish_commit()
            raise name_refused_record(refused, self.destination, decided) from None
        except TransactionFailed:
            raise
        except DestinationTruncated:
            self.destination.abort()
            # the records before these are counted as written, and their commit may have failed
            self.finish_commit()
            raise
        except Exception:
            self.destination.abort()
            raise
        self.started_commit = StartedCommit(
            [(partition, partition.on_commit_started()) for partition in decided], began_at
        )

    def finish_commit(self) -> None:
        """Wait for the commit that was started, if there is one; TransactionFailed when it is not
        certain that it is done.

        A refused record is such a failure too: this round's records are not those of that
        transaction, and the next round, with them, names the record.
        """
        started, self.started_commit = self.started_commit, None
        if started is None:
            return
        try:
            self.destination.finish_commit()
        except (TransactionFailed, RecordRefused) as failed:
            self.partitions.drop_decisions()  # they were made on top of that transaction
            self.transaction_limits.on_failed(started.consumed)
            raise TransactionFailed(str(failed)) from None
        failpoints.hit("two: committed")
        self.has_failed = False
        self.transaction_limits.on_committed(started.consumed, clock.monotonic() - started.began_at)
        started.on_committed()

    def close(self) -> None:
        """Wait for the commit that was started, and count it; leave no transaction open."""
        try:
            self.finish_commit()
        # the outcome is in doubt; the next process initialises this producer, which ends its
        # transaction
        except Exception as failed:
            log.warning("a commit is not known to be done: %s", failed)
        self.destination.close()

    def start_waiting(self) -> bool:
        """For partitions that wait: load and check their frontiers, commit those that are new, in a
        transaction of their own, then fetch from there; False when such a commit has failed. The
        worker is not ready meanwhile.

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
                log.info("waiting before a start: %s", undecided)
                return True
            except TransactionFailed as failed:
                log.warning("committing first frontiers again after: %s", failed)
                return False
            self.partitions.start(loaded)
            # only now: partitions that are lost together with their cluster keep reporting lag
            self.liveness.lag.keep_only(self.partitions.assigned)
            for partition in loaded:
                set_frontier_metric(partition)
            self.intermediate.start_fetching()
        return True

    def _is_assignment_current(self) -> bool:
        """Whether offsets that are sent with the group metadata of the last assignment are refused
        as soon as these partitions are another worker's (`deduplicator.intermediate_consumer`).
        """
        return self.starter.consumer_group.is_assigned(
            self.partitions.waiting, self.intermediate.member_metadata.get_member_id()
        )

    def _commit_first_frontiers(self, uncommitted: Sequence[Partition]) -> None:
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
            if partition.replaced:
                log.warning("%s: %s", partition.source_tp, partition.describe_replaced())
