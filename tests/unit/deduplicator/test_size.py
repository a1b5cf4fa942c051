"""How many records a transaction may have, after how long the ones before it took."""

from __future__ import annotations

from deduplicator.transactions.transaction_limits import IN_A_ROW, TransactionLimits

TIMEOUT_S = 20.0


def test_a_long_transaction_is_followed_by_half_of_it() -> None:
    """Half of what it had, not of what it might have had; a failed one too; never less than one."""
    size = TransactionLimits(20_000, TIMEOUT_S)
    size.on_committed(3000, 6.0)
    assert size.records == 1500
    size.on_failed(1500)
    assert size.records == 750
    size.on_failed(1)
    size.on_failed(1)
    assert size.records == 1


def test_short_ones_grow_back_and_others_stay() -> None:
    """Twice as many after several short ones in a row, up to the setting; what takes its time, but
    not too much, is left as it is.
    """
    size = TransactionLimits(1000, TIMEOUT_S)
    size.on_failed(400)
    for number in range(5 * IN_A_ROW):
        size.on_committed(200, 3.0 if number % IN_A_ROW == 0 else 0.5)
    assert size.records == 200
    size.on_committed(200, 3.0)
    grown = []
    for _ in range(4 * IN_A_ROW):
        size.on_committed(size.records, 0.5)
        grown.append(size.records)
    assert grown[IN_A_ROW - 1 :: IN_A_ROW] == [400, 800, 1000, 1000]
    assert grown[IN_A_ROW - 2] == 200


def test_at_a_slow_cluster_it_settles() -> None:
    """Where a record takes a hundredth of a second, transactions end in a quarter of the timeout,
    and all but a few are committed.
    """
    size, committed = TransactionLimits(20_000, TIMEOUT_S), 0
    for _ in range(100):
        seconds = size.records / 100
        if seconds > TIMEOUT_S:
            size.on_failed(size.records)
        else:
            committed += 1
            size.on_committed(size.records, seconds)
    assert committed > 90
    assert size.records / 100 <= TIMEOUT_S / 4
