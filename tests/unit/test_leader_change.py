"""Records of the intermediate topic that are lost, unread, together with their leader
(`deduplicator.leader_change`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from common.frontier import Link, RuleState
from common.origin import Origin
from common.routes import TopicPartition
from deduplicator.leader_change import check_leader_change
from deduplicator.position_errors import RecordsMissing
from deduplicator.round_decisions import RoundDecisions
from deduplicator.unwrap import Batch

PLACE = TopicPartition("copy-proxy", 0)
EPOCH, BATCH = 1000, 7
READ_TO = RuleState(10, EPOCH, Link(10, BATCH, 3))


def read(*records: tuple[int | None, int, int, int]) -> Batch:
    """A batch; each record is its leader epoch, source offset, Spark batch and sequence."""
    batch = Batch()
    for number, (leader_epoch, source_offset, spark_batch, sequence) in enumerate(records):
        batch.messages.append(
            cast(
                "object",
                SimpleNamespace(
                    leader_epoch=lambda epoch=leader_epoch: epoch,
                    offset=lambda number=number: number,
                ),
            )
        )
        batch.origins.append(Origin(0, source_offset, 1, 0, EPOCH, spark_batch, sequence, "0" * 16))
    return batch


def check(known: int | None, batch: Batch) -> int | None:
    """The leader epoch that is known after the batch."""
    work = RoundDecisions(READ_TO, 0, known)
    check_leader_change(PLACE, work, batch)
    return work.leader_epoch


def test_a_batch_that_begins_under_another_leader_is_not_believed() -> None:
    """The end of the batch before it may have been lost with the leader."""
    with pytest.raises(
        RecordsMissing,
        match=(
            r"copy-proxy-0 has another leader \(leader epoch 5 after 4\), and a batch begins at"
            r" offset 1"
        ),
    ) as missing:
        check(4, read((4, 11, BATCH, 4), (5, 12, BATCH + 1, 0)))
    assert missing.value.tp == PLACE


def test_a_batch_that_goes_on_under_another_leader_shows_that_nothing_is_missing() -> None:
    """Then the next batch may begin under the same leader."""
    assert check(4, read((5, 11, BATCH, 4), (5, 12, BATCH + 1, 0))) == 5


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([(5, 9, BATCH + 1, 0)], id="duplicate"),
        pytest.param([(5, 13, BATCH, 6)], id="hole"),
        pytest.param([(4, 11, BATCH + 1, 0)], id="same leader"),
        pytest.param([(3, 11, BATCH + 1, 0)], id="an earlier leader"),
    ],
)
def test_what_shows_nothing_changes_nothing(records: list[tuple[int, int, int, int]]) -> None:
    """Only a record that is accepted under a newer leader counts."""
    assert check(4, read(*records)) == 4


def test_a_duplicate_under_another_leader_does_not_vouch_for_the_next_batch() -> None:
    """It may have come late: what followed it is lost all the same."""
    with pytest.raises(RecordsMissing):
        check(4, read((5, 9, BATCH, 2), (5, 12, BATCH + 1, 0)))


def test_without_leader_epochs_nothing_is_checked() -> None:
    """Brokers with an old message format do not report them."""
    assert check(4, read((None, 11, BATCH + 1, 0))) == 4
    assert check(None, read((5, 11, BATCH + 1, 0))) is None
