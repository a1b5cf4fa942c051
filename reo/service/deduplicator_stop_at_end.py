"""`reo run deduplicator --stop-at-end`: tells when stage two, running alone, has copied all records
that existed at the start.

With both stages in one service, stage one tells it: it compares the frontier with the source. For
stage two alone, the group's committed offsets have to reach the ends that the intermediate topics
had at the start, and the frontiers what their newest envelopes said then. What was read is not
always copied: stage two reads over envelopes after a gap, and over all of them after it has moved a
frontier back. Then only a stage one can write the missing records again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from common import runtime
from common.envelope import Head
from common.errors import ClusterUnreachable, HangingTransaction, ReoError
from common.kafka import (
    destination_contents,
    intermediate_records,
    partition_offsets,
    topics,
)
from common.kafka.clients import create_admin_client, create_reader
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.consumer_group import create_commit_reader
from common.kafka.partition_offsets import GroupCommit
from common.routes import Route, TopicPartition
from common.settings import Settings

log = logging.getLogger(__name__)
INTERVAL_S = 0.5
WARNING_INTERVAL_S = 10.0


class StopAtEnd:
    """The end offsets and newest envelopes of the intermediate topics at the start, the commits of
    the group then, and whether it has reached the ends.
    """

    def __init__(self, settings: Settings, copied: Mapping[Route, topics.Topic]) -> None:
        self.settings = settings
        self.copied = copied
        self.reader = create_commit_reader(settings.destination_cluster, settings)
        self.record_reader = create_reader(settings.destination_cluster, settings)
        self.client = create_admin_client(settings.destination_cluster, settings)
        self.ends = partition_offsets.list_end_offsets(
            self.client, topics.list_intermediate_partitions(copied)
        )
        begins = partition_offsets.list_beginning_offsets(self.client, self.ends)
        self.newest = intermediate_records.read_newest_heads(
            self.record_reader, {tp: (begins[tp], end) for tp, end in self.ends.items()}
        )
        """The heads of the newest envelopes at the start."""
        self.commits: dict[TopicPartition, GroupCommit] = {}
        """At the start. Those of a transaction that is still undecided then are not known, and not
        compared.
        """
        try:
            self.commits = partition_offsets.read_commits(self.reader, self.ends, REQUEST_TIMEOUT_S)
        except HangingTransaction as undecided:
            log.warning("the frontiers at the start are not known: %s", undecided)
        self.has_warned = False
        self.has_warned_of_loss = False
        self.next_warning_s = 0.0
        self.next_check_s = 0.0

    def is_complete(self) -> bool:
        """Whether everything is committed, and the destination has it; asks the cluster at most
        once per INTERVAL_S.
        """
        if runtime.monotonic() < self.next_check_s:
            return False
        self.next_check_s = runtime.monotonic() + INTERVAL_S
        try:
            commits = partition_offsets.read_commits(self.reader, self.ends, INTERVAL_S)
        except (ClusterUnreachable, HangingTransaction):
            return False
        unread = {
            tp
            for tp, end in self.ends.items()
            if tp not in commits or commits[tp].intermediate_offset < end
        }
        if unread:
            self._warn_of_lost_records(unread)
            return False
        missing = [
            tp
            for tp, commit in commits.items()
            if not has_copied_what_was_read(commit, self.commits.get(tp), self.newest.get(tp))
        ]
        if missing and not self.has_warned:
            self.has_warned = True
            log.warning(
                "the intermediate topics are read to their ends, but not all of it is copied of %s:"
                " waiting until a stage one (reo run, or reo run replicator) writes again what is"
                " missing",
                ", ".join(map(str, missing)),
            )
        return not missing and destination_contents.has_copied_records(
            self.client, self.record_reader, self.settings, self.copied, commits, lambda: None
        )

    def _warn_of_lost_records(self, unread: Collection[TopicPartition]) -> None:
        """Once, where an end offset is lower than at the start: this never ends then. One broker's
        word is not enough to end for it.
        """
        if self.has_warned_of_loss or runtime.monotonic() < self.next_warning_s:
            return
        self.next_warning_s = runtime.monotonic() + WARNING_INTERVAL_S
        try:
            ends = partition_offsets.list_end_offsets(self.client, unread, timeout_s=INTERVAL_S)
        except ReoError:
            return
        lower = [tp for tp, end in ends.items() if end < self.ends[tp]]
        if lower:
            self.has_warned_of_loss = True
            log.warning(
                "the end offset of %s is lower than when this command was started: its newest"
                " records were lost, or the topic was deleted and created again. Run stage one"
                " (reo run replicator), then start this again",
                ", ".join(map(str, lower)),
            )


def has_copied_what_was_read(
    commit: GroupCommit, before: GroupCommit | None, newest: Head | None
) -> bool:
    """Whether nothing was left out since the commit of the start: no gap is open, the frontier is
    still of the same destination and has not moved back, and it has reached the end of what the
    `newest` envelope of the start covers. (That of a run older than the frontier is not to be
    copied.)
    """
    now = commit.frontier
    if now.gap is not None:
        return False
    if before is not None and (
        now.source_offset < before.frontier.source_offset
        or now.destination_topic_id != before.frontier.destination_topic_id
    ):
        return False
    if newest is None or (before is not None and newest.epoch < before.frontier.epoch):
        return True
    return now.source_offset >= newest.through
