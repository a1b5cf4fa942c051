"""Records of a torn transaction are counted when the frontier has moved over them: not before the
commit is confirmed, and not when it fails.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from common.errors import ForeignWriter
from common.metrics import TORN
from deduplicator.transactions.transaction_failures import TransactionFailed
from tests.harness.intermediate_records import build_envelopes, build_surplus, unwrap_offsets
from tests.harness.stage_two import Copy

RECORDS = 1000


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


def run_torn_round(fails: bool) -> Copy:
    """All records of the round are at the destination; its commit was started."""
    surplus = build_surplus(unwrap_offsets(*range(RECORDS)))
    copy = Copy(build_envelopes(RECORDS // 2 - 1, RECORDS - 1), surplus=surplus)
    if fails:
        copy.producers.failures.append(TransactionFailed("no answer"))
    copy.loop.run_round()
    return copy


def test_torn_records_are_counted_with_their_commit() -> None:
    """Not while its answer may still say that it failed. None is written a second time."""
    copy = run_torn_round(fails=False)
    assert count_torn() == 0
    copy.loop.finish_commit()
    assert count_torn() == RECORDS
    assert copy.producers.list_records() == []
    assert copy.frontier.source_offset == RECORDS - 1


def test_a_commit_that_fails_counts_no_torn_records() -> None:
    """They will be found again, and counted then."""
    copy = run_torn_round(fails=True)
    with pytest.raises(TransactionFailed):
        copy.loop.finish_commit()
    assert count_torn() == 0


@pytest.mark.parametrize("fails", [False, True])
def test_an_end_waits_for_the_commit_and_counts_it(fails: bool) -> None:
    """Also an end in between: a stop, or a worker that is fenced while it polls."""
    copy = run_torn_round(fails)
    copy.loop.close()
    assert count_torn() == (0 if fails else RECORDS)
    assert copy.loop.started_commit is None


def test_what_is_no_accepted_record_was_written_by_somebody_else() -> None:
    """Nothing is committed, and no transaction stays open."""
    surplus = build_surplus([(b"other", b"record", None, 1)])
    copy = Copy(build_envelopes(3), surplus=surplus)
    with pytest.raises(ForeignWriter, match="t-0 at offset 0 was not written by this copy"):
        copy.run_rounds()
    assert (copy.producers.aborted, copy.producers.commits) == (1, [])
