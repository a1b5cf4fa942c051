"""The group rebalances repeatedly while it copies."""

from __future__ import annotations

from functools import partial

from tests.harness.kafka import until
from tools.faults.run import Run, Story
from tools.faults.stories.freezes import count_assignments

ROUNDS = 4


def rebalance(run: Run, rounds: int = ROUNDS) -> None:
    """Workers join and leave: one, three, two, one … each change moves partitions to another
    worker, during the copy.
    """
    first = run.start()
    run.wait_for_progress()
    for _ in range(rounds):
        before = count_assignments(first)
        more = run.start("deduplicator", deduplicator_workers="2")
        until(lambda more=more: count_assignments(more) >= 2, "two more workers have partitions")  # type: ignore[misc]
        run.wait_for_progress(300, 1000)
        run.kill_stage(more, "deduplicator", run.rng.randint(0, 1))
        run.wait_for_progress(300, 1000)
        run.stop(more)
        until(
            lambda before=before: count_assignments(first) > before,  # type: ignore[misc]
            "the first worker has them again",
        )
        run.record_fault("rebalances", count_assignments(more) + count_assignments(first) - before)
    assert "is not a member of the group now" not in first.log or first.process.poll() is None
    run.wait_for_progress()


STORIES = (
    Story("workers 1 → 3 → 2 → 1", rebalance),
    Story("a hundred rebalances", partial(rebalance, rounds=25)),
)
