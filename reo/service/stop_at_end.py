"""`reo run deduplicator --stop-at-end`: tells when stage two, running alone, has copied all records
that existed at the start.

With both stages in one service, stage one tells it: it compares the frontier with the source. For
stage two alone, the group's committed offsets have to reach the ends that the intermediate topics
had at the start.
"""

from __future__ import annotations

from collections.abc import Iterable

from common import runtime
from common.errors import ClusterUnreachable, HangingTransaction
from common.kafka import partition_offsets
from common.kafka.clients import create_admin_client
from common.kafka.consumer_group import create_commit_reader
from common.routes import TopicPartition
from common.settings import Settings

INTERVAL_S = 0.5


class StopAtEnd:
    """The end offsets of the intermediate topics at the start, and whether the group has reached
    them.
    """

    def __init__(self, settings: Settings, topic_partitions: Iterable[TopicPartition]) -> None:
        self.reader = create_commit_reader(settings.destination_cluster, settings)
        self.ends = partition_offsets.list_end_offsets(
            create_admin_client(settings.destination_cluster, settings), topic_partitions
        )
        self.next_check_s = 0.0

    def is_complete(self) -> bool:
        """Whether everything is committed; asks the cluster at most once per INTERVAL_S."""
        if runtime.monotonic() < self.next_check_s:
            return False
        self.next_check_s = runtime.monotonic() + INTERVAL_S
        try:
            commits = partition_offsets.read_commits(self.reader, self.ends, INTERVAL_S)
        except (ClusterUnreachable, HangingTransaction):
            return False
        return all(
            tp in commits and commits[tp].intermediate_offset >= end
            for tp, end in self.ends.items()
        )
