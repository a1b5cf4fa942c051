"""Whether records of an intermediate partition can have been lost, unread, when its leader changed.

A partition loses records that it has acknowledged only together with a new leader epoch: in an
unclean leader election, or with a broker whose disk was restored. What was lost was written under
an older one. `deduplicator.rule` accepts a record with sequence 0 because every record before it
was read: so when such a record is the first that is accepted under a newer leader epoch, the end of
the Spark batch before it may be lost. A record that continues its Spark batch shows that nothing is
missing: stage one's producer is idempotent, so it keeps the order.
The leader epoch of a record is that of the leader that appended it (`PartitionLeaderEpoch`,
KIP-101, KIP-320).
"""

from __future__ import annotations

from common.routes import TopicPartition
from deduplicator.compiled_batch import CompiledBatch
from deduplicator.position_errors import RecordsMissing
from deduplicator.round_decisions import RoundDecisions
from deduplicator.rule import decide
from deduplicator.unwrap import Batch, split_by_partition


def check_leader_change(
    tp: TopicPartition, work: RoundDecisions, batch: Batch | CompiledBatch
) -> None:
    """Before a batch with records of another leader epoch than `work` knows is decided;
    RecordsMissing when records may be missing before one of them.
    """
    if work.leader_epoch is None or batch.leader_epoch is None:
        return
    rule, read = (
        work.rule,
        batch if isinstance(batch, Batch) else split_by_partition(batch.list_messages())[tp],
    )
    for message, origin in zip(read.messages, read.origins, strict=True):
        decision, leader_epoch = decide(rule, [origin]), message.leader_epoch()
        if decision.accepted and leader_epoch is not None and leader_epoch > work.leader_epoch:
            if origin.sequence == 0:
                raise RecordsMissing(
                    tp,
                    f"{tp} has another leader (leader epoch {leader_epoch} after"
                    f" {work.leader_epoch}), and a batch begins at offset {message.offset()}:"
                    " unread records of the batch before it may be lost",
                )
            work.leader_epoch = leader_epoch
        rule = decision.state
