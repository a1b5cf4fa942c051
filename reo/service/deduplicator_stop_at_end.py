"""`reo run deduplicator --stop-at-end`: tells when stage two, running alone, has copied all records
that existed at the start.

With both stages in one service, stage one tells it: it compares the frontier with the source. For
stage two alone, the group's committed offsets have to reach the ends that the intermediate topics
had at the start. What was read is not always copied: stage two reads over records behind a hole,
and over all of them after it has moved a frontier back. Then only a stage one can write the missing
records again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from common import runtime
from common.errors import ClusterUnreachable, HangingTransaction, ReoError
from common.kafka import destination_contents, partition_offsets, topics
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
    """The end offsets of the intermediate topics at the start, the commits of the group then, and
    whether it has reached the ends.
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
        self.empty = {tp for tp, end in self.ends.items() if begins[tp] == end}
        """The partitions without a record at the start."""
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
            if not has_copied_what_was_read(commit, self.commits.get(tp), tp in self.empty)
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
    commit: GroupCommit, before: GroupCommit | None, was_empty: bool = False
) -> bool:
    """Whether nothing was left out since the commit of the start: no hole is open, the frontier is
    still of the same destination and has not moved back, and no records were deleted unread (then
    the epoch was raised, and there is no link until a run has written again what is missing).

    A first frontier, or one whose position was not known, begins at the end, without a link: what
    was there before is not copied, unless the partition `was_empty`.
    """
    now = commit.frontier.rule
    if now.hole is not None:
        return False
    if before is None:
        return was_empty or now.link is not None
    return (
        now.frontier >= before.frontier.rule.frontier
        and commit.frontier.destination_topic_id == before.frontier.destination_topic_id
        and (now.link is not None or now.epoch == before.frontier.rule.epoch)
    )
