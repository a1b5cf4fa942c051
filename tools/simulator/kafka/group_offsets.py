"""The committed offsets of a consumer group.

Offsets of an open transaction are pending until its marker reaches the group. A fetch that requires
stable offsets gets UNSTABLE_OFFSET_COMMIT for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from tools.simulator.kafka.errors import BrokerError
from tools.simulator.kafka.log import Log

if TYPE_CHECKING:
    from tools.simulator.kafka.cluster import Cluster

PartitionKey = tuple[str, int]
METADATA_BYTES_MAX = 4096


class GroupOffsets:
    """The offsets of a group, which decides who may commit."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.committed: dict[PartitionKey, tuple[int, str]] = {}
        """For each partition, the offset and its metadata."""
        self.pending: dict[int, dict[PartitionKey, tuple[int, str]]] = {}
        """Pending offsets, by producer id."""
        self.commit_count = 0
        """How many commits there were, pending or not."""
        self.commit_numbers: dict[PartitionKey, int] = {}
        """For each partition, the number of the commit that its offset is from."""
        self.previous: dict[PartitionKey, tuple[int, str]] = {}
        """For each partition, what was committed before."""
        self.pending_commit_numbers: dict[tuple[int, PartitionKey], int] = {}
        """The same for pending offsets."""

    def commit(self, offsets: Mapping[PartitionKey, tuple[int, str]]) -> dict[PartitionKey, int]:
        """Commit; for each partition an error code, or 0."""
        codes = {
            partition_key: self._code(partition_key, metadata)
            for partition_key, (_, metadata) in offsets.items()
        }
        self.commit_count += 1
        Log.change_count += 1
        for partition_key, offset in offsets.items():
            if not codes[partition_key]:
                self._set_offset(partition_key, offset, self.commit_count)
        return codes

    def _set_offset(
        self, partition_key: PartitionKey, offset: tuple[int, str], commit_number: int
    ) -> None:
        if partition_key in self.committed:
            self.previous[partition_key] = self.committed[partition_key]
        self.committed[partition_key] = offset
        self.commit_numbers[partition_key] = commit_number

    def _code(self, partition_key: PartitionKey, metadata: str) -> int:
        if self.cluster.find_log(*partition_key) is None:
            return int(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return (
            int(KafkaError.OFFSET_METADATA_TOO_LARGE)
            if len(metadata.encode()) > METADATA_BYTES_MAX
            else 0
        )

    def add_pending(
        self, producer_id: int, offsets: Mapping[PartitionKey, tuple[int, str]]
    ) -> None:
        """Add the offsets of an open transaction."""
        if any(len(metadata.encode()) > METADATA_BYTES_MAX for _, metadata in offsets.values()):
            raise BrokerError(KafkaError.OFFSET_METADATA_TOO_LARGE)
        self.pending.setdefault(producer_id, {}).update(offsets)
        self.commit_count += 1
        Log.change_count += 1
        self.pending_commit_numbers.update(
            {(producer_id, partition_key): self.commit_count for partition_key in offsets}
        )

    def complete_transaction(self, producer_id: int, commit: bool) -> None:
        """A marker ends a transaction. It can come after the marker of a later one; then it does
        not replace newer offsets (`OffsetMetadataManager`).
        """
        Log.change_count += 1
        for partition_key, offset in self.pending.pop(producer_id, {}).items():
            commit_number = self.pending_commit_numbers.pop((producer_id, partition_key))
            if commit and self.commit_numbers.get(partition_key, 0) < commit_number:
                self._set_offset(partition_key, offset, commit_number)

    def fetch(
        self, partition_keys: Iterable[PartitionKey] | None, require_stable: bool
    ) -> dict[PartitionKey, tuple[int, str, int]]:
        """OffsetFetch: offset, metadata and error code; -1 for a partition without a committed
        offset. None fetches all partitions.
        """
        pending_keys = (
            {partition_key for offsets in self.pending.values() for partition_key in offsets}
            if require_stable
            else set()
        )
        answers = {}
        for partition_key in (
            sorted(self.committed.keys() | pending_keys)
            if partition_keys is None
            else partition_keys
        ):
            offset, metadata = self.committed.get(partition_key, (-1, ""))
            answers[partition_key] = (
                (-1, "", int(KafkaError.UNSTABLE_OFFSET_COMMIT))
                if partition_key in pending_keys
                else (offset, metadata, 0)
            )
        return answers

    def remove_topic(self, topic: str) -> None:
        """Remove the offsets of a deleted topic."""
        for offsets in (self.committed, *self.pending.values()):
            for partition_key in [
                partition_key for partition_key in offsets if partition_key[0] == topic
            ]:
                del offsets[partition_key]
