"""The two transactional producers of a worker, used in turn."""

from __future__ import annotations

import pytest

from deduplicator.transactions.producer_pair import ProducerPair
from tests.unit.deduplicator.test_transaction_table import commit, producer


def test_the_two_producers_take_turns() -> None:
    """Each transaction is the other producer's; one is begun only when the one before it is known
    to have ended.
    """
    first, second = producer()[0], producer()[0]
    turns = ProducerPair(first, second)
    turns.initialise()
    used = []
    for _ in range(4):
        turns.begin()
        used.append(turns.current)
        turns.current.send_offsets([], None)
        commit(turns.current)
    assert used == [second, first, second, first]


@pytest.mark.parametrize("prepared", [False, True])
def test_no_second_transaction_is_begun_while_one_is_open(prepared: bool) -> None:
    """Whether the first is committed is not known yet: commits would lose their order. Nothing
    changes.
    """
    first, second = producer()[0], producer()[0]
    turns = ProducerPair(first, second)
    turns.begin()
    if prepared:
        turns.current.send_offsets([], None)
    with pytest.raises(RuntimeError):
        turns.begin()
    assert turns.current is second
    assert first.state == "new"


def test_closing_leaves_no_transaction_open() -> None:
    """SIGTERM in the middle of a transaction: aborted, not left to the timeout."""
    first, second = producer()[0], producer()[0]
    turns = ProducerPair(first, second)
    turns.begin()
    turns.close()
    assert turns.current.state == "ready"
