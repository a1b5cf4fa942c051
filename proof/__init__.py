"""The proof: an abstract world around the service's own decisions, explored until nothing new is left.

What is modelled: a source of some partitions with gaps in their offsets; stage one as Spark runs it (a task per partition,
batches, lost records, retries, runs, zombies); the intermediate topic as a log; stage two's workers, step by step as
`deduplicator.loop` numbers them; the destination cluster as far as it decides anything: transactions with their markers, pending
offsets, producer epochs, the consumer group with its generations. What is **not** modelled but called: the rule, the frontier's
encoding, the check at the start, the transactional producer and the turns of two, the tables of a transaction and of a run
(`proof.service`). Every choice that the world has is a branch; the branches are explored breadth first (`proof.explore`), with a
budget of faults, so that the first counterexample is a shortest one.

Invariants, in every state (`proof.invariants`; numbers are used in the output):

    I1   What is decided at the destination is, per partition, a prefix of the source's visible records: in order, once, no gap.
    I2   The committed frontier says exactly what is decided at the destination. After a torn transaction it says no more than that; a recreated
         destination's counts as none.
    I3   No unfenced commit: offsets enter a transaction only from the member that owns the partitions, in the current generation.
    I4   A transaction is begun only when the outcome of the worker's transaction before it is settled: nothing of that can be
         decided after it.
    I5   Committed position, frontier and epoch of a partition never go back (the frontier does when the destination was recreated).
    I6   No false alarm: with nobody else writing, no check stops the service.
    I7   What a member holds in memory between two rounds is what is committed for its partitions.
    I8   At most one undecided transaction has offsets of a partition.
    I9   An EndTxn ends the transaction that it was sent for and no other.
    I10  A run begins exactly behind the frontier, with an epoch that is above every committed one.
    I11  `done` is said only of a complete copy.
    I12  No lifecycle takes an event that its table does not have.

Liveness, from every state that was reached (`proof.explore.Explorer.check_live`):

    L1   When faults stop, the copy completes: following one fixed, fair order of fault-free steps leads to `done`.
    L2   No state but `done` is without a step.

Faults, each takes one from the budget: a record lost by stage one's producer, a task attempt abandoned while it goes on writing
(straggler), the query failing, SIGTERM, a stall, stage one killed (its run may go on as a zombie); a worker killed at any step, paused
past its session (it is thrown out of the group and goes on without knowing), a rebalance nobody needed, a call answered with
an abortable error, one in doubt, an abort in doubt, an EndTxn whose answer does not come (it arrives late, or never), a transaction torn by
the broker; unread intermediate records deleted, or one lost from their middle; the destination recreated while stage two is
away. Two runs of one epoch, and a later run with the lower epoch, are worlds of their own
(`Shape.random_bits`).
Arbitrary slowness costs nothing: any step may come any time later.

Abstractions, and why they lose nothing that decides: a destination record has its source's offset, since only order is asked; a
batch is everything that is there or one record (deciding in parts is the same, `tests.test_rule`); reading the frontier and
the destination at an assignment is one step (between the two nobody else can commit: pending offsets were waited for and
the group fences the rest; output that is undecided is waited for, `Shell.waits_for_output`);
intermediate records that everybody has read are forgotten, as the purge does.
"""
