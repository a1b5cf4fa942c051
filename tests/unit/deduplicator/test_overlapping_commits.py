"""What is found while the commit of the round before is not answered, and depends on it."""

from __future__ import annotations

import pytest

from common.errors import DestinationTruncated, ReoError
from deduplicator.transactions.transaction_failures import TransactionFailed
from tests.harness.intermediate_records import HERE
from tests.unit.deduplicator.test_torn_records import run_torn_round


@pytest.mark.parametrize(
    ("fails", "raised"), [(False, DestinationTruncated), (True, TransactionFailed)]
)
def test_a_destination_lacks_what_was_never_written(
    monkeypatch: pytest.MonkeyPatch, fails: bool, raised: type[Exception]
) -> None:
    """The last record of a round gets an offset that is too low. That is a loss only if the round
    before was written: when its commit fails, because a record was refused, say, the frontier is
    read again, and the record is named.
    """
    loop = run_torn_round(fails).loop
    partition = loop.partitions.assigned[HERE]
    partition.get_decisions()

    def find_loss(*_: object) -> None:
        raise DestinationTruncated("t-0 lost records while it was copied to")

    monkeypatch.setattr(loop.destination, "send_offsets", find_loss)
    monkeypatch.setattr(loop.destination, "abort", lambda: None)
    with pytest.raises(raised):
        loop.run_transaction([partition])
    assert loop.started_commit is None
    assert not issubclass(TransactionFailed, ReoError), "the loop goes on after it"
