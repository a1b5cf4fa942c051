"""The group is rebalanced again and again while it copies."""

from __future__ import annotations

from functools import partial

from faults.run import Run, Story
from faults.stories.freezes import assigned
from tests.kafka import until

ROUNDS = 4


def rebalances(run: Run, rounds: int = ROUNDS) -> None:
    """Workers come and go: one, three, two, one … each change gives partitions to somebody else, with records flowing."""
    first = run.start()
    run.flows()
    for _ in range(rounds):
        before = assigned(first)
        more = run.start("deduplicator", deduplicator_workers="2")
        until(lambda more=more: assigned(more) >= 2, "two more workers have partitions")  # type: ignore[misc]
        run.flows(300, 1000)
        run.kill_stage(more, "deduplicator", run.chance.randint(0, 1))
        run.flows(300, 1000)
        run.stop(more)
        until(lambda before=before: assigned(first) > before, "the first worker has them again")  # type: ignore[misc]
        run.hit("rebalances", assigned(more) + assigned(first) - before)
    assert "is not a member of the group now" not in first.log or first.process.poll() is None
    run.flows()


STORIES = (
    Story("workers 1 → 3 → 2 → 1", rebalances),
    Story("a hundred rebalances", partial(rebalances, rounds=25)),
)
