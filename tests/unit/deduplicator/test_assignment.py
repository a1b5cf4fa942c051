"""A worker is ready only when it knows its partitions and has compared their frontiers: `reo run
--stop-at-end` believes it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from common.errors import ForeignWriter
from common.kafka.partition_offsets import GroupCommit
from common.settings import load
from deduplicator import worker
from deduplicator.frontiers.committed_frontiers import TransactionUndecided
from deduplicator.frontiers.frontier_store import LoadedFrontiers
from deduplicator.frontiers.start import PartitionStarter
from deduplicator.partitions import Partitions
from tests.unit.common.settings.test_settings import GOOD
from tests.unit.deduplicator.test_rebalance import FIRST, FRONTIER, SECOND, Stand


def test_a_worker_is_not_ready_while_its_frontiers_are_compared() -> None:
    """It was ready without partitions; the answer can take long. What it waited for before stays
    its reason.
    """
    stand = Stand()
    stand.loop.liveness.set_ready()
    stand.happens("on_assign", FIRST)
    stand.loop.run_round()
    assert stand.reason_at_start == "destination"
    stand.loop.liveness.report_waiting("transaction")
    stand.happens("on_assign", FIRST)
    stand.loop.run_round()
    assert stand.reason_at_start == "transaction"


def test_a_member_has_no_assignment_before_it_is_told() -> None:
    """Being a member is not enough; an assignment without partitions is one. After a revocation the
    next one counts.
    """
    stand = Stand()
    intermediate = stand.loop.intermediate
    assert not intermediate.has_assignment()
    for events in (
        [("on_assign", True)],
        [("on_assign", True), ("on_revoke", False), ("on_assign", True)],
        [("on_lost", False), ("on_assign", True)],
    ):
        for callback, expected in events:
            stand.client.callbacks[callback](stand.client, [])
            assert intermediate.has_assignment() == expected
    stand.client.generation = -1
    assert not intermediate.has_assignment(), "it is not a member"


@pytest.mark.parametrize(("has_assignment", "reason"), [(False, "group"), (True, None)])
def test_a_worker_without_an_assignment_is_not_ready(
    has_assignment: bool, reason: str | None
) -> None:
    """It has no partition that waits, so nothing else would say so; it may get some in a moment."""
    parts = SimpleNamespace(
        ends=SimpleNamespace(has_answered=True),
        partitions=Partitions(),
        destination=SimpleNamespace(is_answering=lambda: True),
        intermediate=SimpleNamespace(is_member=True, has_assignment=lambda: has_assignment),
        loop=SimpleNamespace(has_failed=False),
    )
    assert worker.Worker._find_wait_reason(cast(Any, parts), {}) == reason


def test_offsets_are_sent_as_of_the_assignment() -> None:
    """Librdkafka may have joined again, unseen: the generation of now would be accepted for
    partitions that are another worker's.
    """
    stand = Stand()
    stand.happens("on_assign", FIRST)
    stand.loop.run_round()
    when_assigned = stand.client.consumer_group_metadata()
    stand.client.generation += 1
    of_now = stand.client.consumer_group_metadata()
    member = stand.loop.intermediate.member_metadata
    assert when_assigned != of_now
    assert member.get() == when_assigned
    stand.happens("on_assign", FIRST)
    stand.loop.run_round()
    assert member.get() == of_now


def test_an_assignment_is_started_when_the_coordinator_has_it() -> None:
    """The callback of an assignment can run in a later generation, where it is another worker's."""
    stand = Stand()
    stand.is_coordinator_agreed = False
    stand.happens("on_assign", FIRST)
    stand.loop.run_round()
    assert not stand.asked
    assert stand.partitions.waiting.keys() == {FIRST}
    stand.is_coordinator_agreed = True
    stand.loop.run_round()
    assert stand.partitions.assigned.keys() == {FIRST}


@pytest.mark.parametrize("has_moved", [False, True])
def test_a_worker_that_stood_still_does_not_call_its_successor_foreign(has_moved: bool) -> None:
    """It has read a frontier, and then finds everything that the next owner has written since. It
    polls first; only with the last frontier are the records somebody else's.
    """
    commits = {FIRST: GroupCommit(7, FRONTIER)}
    later = {FIRST: GroupCommit(9, FRONTIER)} if has_moved else commits

    def find_foreign_records(_: object) -> None:
        raise ForeignWriter("more than it may be")

    starter = PartitionStarter(
        load(GOOD),
        {},
        cast(Any, None),
        cast(
            Any,
            SimpleNamespace(
                check_outputs=find_foreign_records,
                list_started_topics=set,
                load_frontiers=lambda _: LoadedFrontiers(later | {SECOND: commits[FIRST]}, set()),
            ),
        ),
    )
    with pytest.raises(TransactionUndecided if has_moved else ForeignWriter):
        starter._check_outputs([], commits, {})


def test_after_a_failure_the_client_is_moved() -> None:
    """A partition that is fetched already is read from its committed offset again: it is assigned
    anew, since librdkafka refuses to seek where it has stopped fetching.
    """
    stand = Stand()
    stand.happens("on_assign", FIRST)
    stand.loop.run_round()
    stand.partitions.start_again(stand.partitions.assigned)
    assert not stand.partitions.assigned, "nothing is taken of it meanwhile"
    stand.loop.run_round()
    assert stand.partitions.assigned.keys() == {FIRST}
    assert stand.client.calls == [("assign", []), ("assign", [(0, 7)]), ("assign", [(0, 7)])]
