"""Epochs: a run is above all that was seen, no two runs share one, and a run begins only when its
epoch is installed (`replicator.runs.epochs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import clock
from common.envelope import Head
from common.frontier import Frontier
from common.kafka.partition_offsets import GroupCommit
from common.routes import TopicPartition
from replicator.runs import epochs as run_epochs
from replicator.runs.epochs import RANDOM_BITS, EpochInstaller, choose_epoch
from tests.harness.properties import property_test

BITS = st.integers(0, 2**RANDOM_BITS - 1)
OLD_MS = 1_760_000_000_000
"""Earlier versions had the time in ms in the upper bits."""
SEEN = st.lists(st.integers(0, 2**50) | st.just(OLD_MS << RANDOM_BITS | 5), max_size=4)
FIRST, SECOND = TopicPartition("orders-proxy", 0), TopicPartition("orders-proxy", 1)
IDENTITY = "0123456789abcdef"


@given(SEEN, BITS)
@property_test(examples=1000)
def test_a_run_is_above_what_was_seen(seen: list[int], bits: int) -> None:
    """Whatever that is, also of a version that used the clock; and an envelope can hold it."""
    epoch = choose_epoch(seen, bits)
    assert all(epoch > other for other in seen)
    assert 0 < epoch < 2**63


@given(SEEN, BITS, BITS)
@property_test(examples=1000)
def test_two_runs_share_an_epoch_only_by_chance(seen: list[int], one: int, other: int) -> None:
    """Planned at the same moment from the same frontiers: as long as their random bits differ, so
    do they.
    """
    assert (choose_epoch(seen, one) == choose_epoch(seen, other)) == (one == other)


class Written:
    """What an installer writes."""

    def __init__(self) -> None:
        self.heads: list[tuple[TopicPartition, Head]] = []

    def write(self, heads: Mapping[TopicPartition, Head], again_after_s: float) -> None:
        """As `EmptyEnvelopes`."""
        assert again_after_s == run_epochs.INSTALL_AGAIN_S
        self.heads += heads.items()


def show_epochs(*epochs: int) -> dict[TopicPartition, GroupCommit]:
    """The commits of the first partitions, with frontiers of these epochs."""
    return {
        tp: GroupCommit(0, Frontier(9, epoch, IDENTITY, 1, "id", -1, 0))
        for tp, epoch in zip((FIRST, SECOND), epochs, strict=False)
    }


def find_waiting(
    installer: EpochInstaller, commits: dict[TopicPartition, GroupCommit]
) -> dict[TopicPartition, GroupCommit]:
    """Of a route that begins at source partition 3."""
    sources = {tp: TopicPartition("orders", 3 + tp.partition) for tp in commits}
    return installer.find_waiting(commits, sources)


@pytest.fixture
def installer(monkeypatch: pytest.MonkeyPatch) -> EpochInstaller:
    """One whose random bits are 7."""
    monkeypatch.setattr(clock, "get_random_bits", lambda _: 7)
    return EpochInstaller(cast(Any, Written()))


def get_written(installer: EpochInstaller) -> list[tuple[TopicPartition, Head]]:
    """What it has written since the last call."""
    written = cast(Any, installer.empty_envelopes)
    heads, written.heads = written.heads, []
    return cast("list[tuple[TopicPartition, Head]]", heads)


def test_an_epoch_is_installed_when_every_frontier_shows_exactly_it(
    installer: EpochInstaller,
) -> None:
    """It is written where it is not shown, as an envelope that covers nothing, for the topic that
    was copied.
    """
    assert find_waiting(installer, show_epochs(3 << RANDOM_BITS, 1)).keys() == {FIRST, SECOND}
    epoch = 4 << RANDOM_BITS | 7
    head = Head(IDENTITY, epoch, 3, -1, -1)
    assert get_written(installer) == [(FIRST, head), (SECOND, head._replace(source_partition=4))]
    assert find_waiting(installer, show_epochs(epoch, 1)).keys() == {SECOND}
    assert [tp for tp, _ in get_written(installer)] == [SECOND]
    assert not find_waiting(installer, show_epochs(epoch, epoch))
    assert (installer.epoch, get_written(installer)) == (epoch, [])


def test_an_epoch_that_no_run_has_used_is_kept(installer: EpochInstaller) -> None:
    """The source could not be copied from: the next plan needs no other one. The next run does."""
    epoch = 1 << RANDOM_BITS | 7
    find_waiting(installer, show_epochs(0))
    assert not find_waiting(installer, show_epochs(epoch))
    assert not find_waiting(installer, show_epochs(epoch))
    installer.is_used = True
    assert find_waiting(installer, show_epochs(epoch))
    assert installer.epoch == 2 << RANDOM_BITS | 7


def test_a_higher_epoch_at_one_partition_takes_a_higher_one_everywhere(
    installer: EpochInstaller,
) -> None:
    """Another stage one runs, or has just planned."""
    find_waiting(installer, show_epochs(0, 0))
    other = 1 << RANDOM_BITS | 9
    assert find_waiting(installer, show_epochs(1 << RANDOM_BITS | 7, other)).keys() == {
        FIRST,
        SECOND,
    }
    assert installer.epoch == 2 << RANDOM_BITS | 7
    assert {head.epoch for _, head in get_written(installer)[-2:]} == {installer.epoch}


def test_a_lower_epoch_is_no_sign_that_this_one_was_seen(installer: EpochInstaller) -> None:
    """A frontier that was set back shows that later: this process still goes above its own runs,
    whose envelopes may be unread.
    """
    find_waiting(installer, show_epochs(5 << RANDOM_BITS))
    installer.is_used = True
    assert find_waiting(installer, show_epochs(0))
    assert installer.epoch == 7 << RANDOM_BITS | 7


def test_partitions_that_appear_meanwhile_are_waited_for(installer: EpochInstaller) -> None:
    """A source gets a partition between two looks: the same epoch, one more frontier."""
    find_waiting(installer, show_epochs(0))
    epoch = installer.epoch
    assert not find_waiting(installer, show_epochs(epoch))
    assert find_waiting(installer, show_epochs(epoch, 0)).keys() == {SECOND}
    assert installer.epoch == epoch
    assert get_written(installer)[-1][1].epoch == epoch
