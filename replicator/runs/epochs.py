"""Epochs: the number of a run, by which stage two tells the statements of a newer run from those of
an older one (`deduplicator.rule`); and how the epoch of the next run is installed.

An epoch is above every one that was seen; no clock is asked, because the clocks of two machines
differ. The low bits are random: two processes that plan at the same moment, from the same
frontiers, choose the same upper bits, and their runs must not share an epoch. (Up to version 1 of
the frontier the upper bits were the time in ms. A number that is one higher is above those too.)

Between two runs the world may change: another `filter.sql`, another source cluster, a source that
lost records and grew again. What an older run has written about its world may still be unread when
the next run begins. So a run first installs its epoch: it writes an empty envelope with it to each
intermediate partition, and reads the frontiers that it begins at only when all of them show exactly
this epoch. By then stage two has read everything before that envelope, and drops whatever older
runs still write. So a frontier with this epoch does not move before the run itself writes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from common import clock
from common.envelope import Head
from common.kafka.partition_offsets import GroupCommit
from common.routes import TopicPartition
from replicator.runs.empty_envelopes import EmptyEnvelopes

log = logging.getLogger(__name__)
RANDOM_BITS = 20
INSTALL_AGAIN_S = 5.0
"""When the envelope is written again to a partition that does not show its epoch: the topic may
have lost it.
"""


def choose_epoch(seen: Iterable[int], random_bits: int) -> int:
    """An epoch above all that were seen; `random_bits` is random and below 2^RANDOM_BITS."""
    return ((max(seen, default=0) >> RANDOM_BITS) + 1) << RANDOM_BITS | random_bits


class EpochInstaller:
    """Chooses the epoch of the next run, and has it installed at every frontier."""

    def __init__(self, empty_envelopes: EmptyEnvelopes) -> None:
        self.empty_envelopes = empty_envelopes
        self.epoch = 0
        """The last one that was chosen. All before it are lower."""
        self.is_used = True
        """Whether a run has begun with it. No second one may."""

    def find_waiting(
        self,
        commits: Mapping[TopicPartition, GroupCommit],
        sources: Mapping[TopicPartition, TopicPartition],
    ) -> dict[TopicPartition, GroupCommit]:
        """The partitions whose frontier does not show the epoch of the next run yet: it is written
        to them. When there is none, the epoch is installed. `sources`: the source partitions, by
        intermediate partition.
        """
        epochs = [commit.frontier.epoch for commit in commits.values()]
        if self.is_used or max(epochs, default=0) > self.epoch:
            if not self.is_used:
                log.warning("another run of stage one has begun: this one takes a higher epoch")
            self.epoch = choose_epoch([*epochs, self.epoch], clock.get_random_bits(RANDOM_BITS))
            self.is_used = False
        waiting = {
            tp: commit for tp, commit in commits.items() if commit.frontier.epoch != self.epoch
        }
        self.empty_envelopes.write(
            {
                tp: Head(commit.frontier.source_identity, self.epoch, sources[tp].partition, -1, -1)
                for tp, commit in waiting.items()
            },
            INSTALL_AGAIN_S,
        )
        return waiting
