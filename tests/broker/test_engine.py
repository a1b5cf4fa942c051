"""Stage one without Spark: what runs its queries is a parameter (`replicator.runs.run.Engine`),
here one that copies by hand.
"""

from __future__ import annotations

from typing import Any

from common.settings import load
from replicator import stage
from replicator.runs.run import Plan
from tests.conftest import Start
from tests.harness.copy_judge import compare_partitions
from tests.harness.kafka import Clusters, make_record, until
from tests.harness.recovery import read_frontiers
from tests.harness.stage_one import wait_for_frontiers, wrap_records, write_intermediate

RECORDS = 20


class Ended:
    """A query that has ended, by itself or with an error."""

    isActive = False  # noqa: N815  (Spark's name)

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure

    def exception(self) -> Exception | None:
        """What it failed with."""
        return self.failure

    def awaitTermination(self, timeout: Any) -> bool:  # noqa: N802
        """It has ended."""
        raise AssertionError(timeout)

    def stop(self) -> None:
        """Nobody stops what has ended."""
        raise AssertionError


class ByHand:
    """Its first query fails; the next one writes all that the plan asks for."""

    def __init__(self, clusters: Clusters, topic: str) -> None:
        self.clusters = clusters
        self.topic = topic
        self.plans: list[Plan] = []
        self.asked = 0
        self.closed = False

    def count_slots(self) -> int | None:
        """It starts for a moment."""
        self.asked += 1
        return 8 if self.asked > 1 else None

    def start(self, plan: Plan) -> Ended:
        """One query."""
        self.plans.append(plan)
        if len(self.plans) == 1:
            return Ended(OSError("no"))
        (begin,) = plan.start_offsets.values()
        records = [(0, number, make_record(number)) for number in range(begin, RECORDS)]
        write_intermediate(
            self.clusters,
            self.topic,
            self.topic,
            wrap_records(self.clusters, self.topic, records, epoch=plan.epoch),
        )
        return Ended()

    def close(self) -> None:
        """It is over."""
        self.closed = True


def test_stage_one_runs_on_any_engine(clusters: Clusters, topic: str, start: Start) -> None:
    """A run that fails is followed by another one with another epoch, from where the frontiers are;
    that one is waited for until stage two has committed it, and the engine is closed.
    """
    clusters.source.create(topic, 1)
    clusters.source.write(topic, [(0, make_record(number)) for number in range(RECORDS)])
    service = start(topic, "deduplicator")
    wait_for_frontiers(service, 1)
    engine = ByHand(clusters, topic)
    stage.run_stage(
        load(service.environment, arguments={"stop_at_end": "true"}),
        lambda: False,
        lambda *_: engine,
    )
    assert read_frontiers(clusters.destination, topic) == {0: RECORDS - 1}
    assert len(engine.plans) >= 2
    assert engine.plans[0].epoch != engine.plans[1].epoch
    assert engine.asked > 1
    assert engine.closed
    wanted = {0: [make_record(number) for number in range(RECORDS)]}
    until(
        lambda: not compare_partitions(wanted, clusters.destination.read(topic)),
        "the copy is exact, with the markers of its last transaction",
    )
