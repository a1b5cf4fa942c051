"""Records of a torn transaction are counted when the frontier has moved over them: not before the
commit is confirmed, and not when it fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, cast

import pytest

from common.frontier import Frontier, RuleState
from common.liveness import Liveness
from common.metrics import TORN
from common.routes import Route
from common.settings import load
from deduplicator.destination import KafkaDestination
from deduplicator.frontier_check import Surplus
from deduplicator.loop import Loop
from deduplicator.partitions import AssignedPartition, Partitions
from deduplicator.transactions.transaction_failures import TransactionFailed
from deduplicator.unwrap import split_by_partition
from tests.unit.test_cost_of_a_record import HERE, IDENTITY, THERE, Recorded, Taker, batch
from tests.unit.test_settings import GOOD

RECORDS = 1000


class Committing(Taker):
    """Its commit is done, or fails."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.fails = fails

    def finish_commit(self) -> None:
        """As ProducerPair.finish_commit."""
        if self.fails:
            raise TransactionFailed("no answer")


@pytest.fixture(autouse=True)
def no_torn_records() -> Iterator[None]:
    """None are counted before and after a test."""
    TORN.clear()
    yield
    TORN.clear()


def count_torn() -> float:
    """As the metric says."""
    return sum(
        sample.value
        for metric in TORN.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    )


def run_torn_round(fails: bool) -> Loop:
    """All records of the round are at the destination; its commit was started."""
    messages = batch(RECORDS)
    records = split_by_partition(messages)[HERE].list_records(range(RECORDS), None)
    partitions = Partitions()
    partitions.start(
        {
            HERE: AssignedPartition(
                0,
                Frontier(RuleState(-1, 1, None), IDENTITY, 1, "id", -1, 0),
                Surplus(THERE, -1, deque(enumerate(records))),
            )
        }
    )
    loop = Loop(
        load(GOOD),
        {HERE.topic: Route(THERE.topic, THERE.topic, HERE.topic)},
        partitions,
        cast(Any, Recorded(messages)),
        cast(Any, None),
        KafkaDestination(cast(Any, Committing(fails)), cast(Any, None)),
        Liveness("deduplicator"),
    )
    loop.run_round()
    return loop


def test_torn_records_are_counted_with_their_commit() -> None:
    """Not while its answer may still say that it failed."""
    loop = run_torn_round(fails=False)
    assert count_torn() == 0
    loop.finish_commit()
    assert count_torn() == RECORDS


def test_a_commit_that_fails_counts_no_torn_records() -> None:
    """They will be found again, and counted then."""
    loop = run_torn_round(fails=True)
    with pytest.raises(TransactionFailed):
        loop.finish_commit()
    assert count_torn() == 0
