"""What decides about the runs of stage one: where the next one begins, from which source, and when
it has to end. Spark is not asked.

    run.py              a run: its plan, and the engine that runs its query
    planner.py          where the next run begins; epochs.py: its epoch
    source_selection.py whether a source can be copied from where the frontiers are;
                        last_record_check.py, tail_comparison.py: whether it has the last copied
                        records. `common.source_pool` has which of several sources is tried
    watch.py            takes snapshots of both clusters while a run lives (snapshot.py)
    end_reasons.py      why a run ends: what two snapshots show, and what a failed query means
    source_losses.py    records that the source has lost meanwhile
    empty_envelopes.py  write how far the source has nothing to copy, and that a run begins
    snapshot_report.py  what a run reports of its snapshots
    clients.py          the clients that ask both clusters
"""
