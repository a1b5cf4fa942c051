"""What a consumer group has committed.

Offsets of an open transaction are pending until its marker comes to the group; who asks for decided offsets is told that they are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError

from simulator.kafka.refused import Refused

if TYPE_CHECKING:
    from simulator.kafka.cluster import Cluster

Place = tuple[str, int]
METADATA_BYTES_MAX = 4096


class GroupOffsets:
    """The offsets of a group; who may commit is for `Group` to say."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.schedule = cluster.schedule
        self.name = name
        self.offsets: dict[Place, tuple[int, str]] = {}
        self.pending: dict[int, dict[Place, tuple[int, str]]] = {}
        """By producer id."""
        self.written = 0
        """How many commits there were, decided or not."""
        self.order: dict[Place, int] = {}
        """Which of them an offset is from."""
        self.pending_order: dict[tuple[int, Place], int] = {}
        """The same, of pending ones."""

    def check_member(self, generation: int, member_id: str, instance_id: str | None, is_transactional: bool = False) -> None:
        """Refused for a commit that is not from a member of this generation."""
        raise NotImplementedError

    def commit(self, offsets: Mapping[Place, tuple[int, str]], generation: int = -1, member_id: str = "",
               instance_id: str | None = None) -> dict[Place, int]:
        """OffsetCommit: by partition an error code, 0 for none."""
        self.check_member(generation, member_id, instance_id)
        codes = {place: self._code(place, metadata) for place, (_, metadata) in offsets.items()}
        self.written += 1
        for place, offset in offsets.items():
            if not codes[place]:
                self.offsets[place], self.order[place] = offset, self.written
        return codes

    def _code(self, place: Place, metadata: str) -> int:
        if self.cluster.log_of(*place) is None:
            return int(KafkaError.UNKNOWN_TOPIC_OR_PART)
        return int(KafkaError.OFFSET_METADATA_TOO_LARGE) if len(metadata.encode()) > METADATA_BYTES_MAX else 0

    def pend(self, producer_id: int, offsets: Mapping[Place, tuple[int, str]]) -> None:
        """Offsets of an open transaction."""
        if any(len(metadata.encode()) > METADATA_BYTES_MAX for _, metadata in offsets.values()):
            raise Refused(KafkaError.OFFSET_METADATA_TOO_LARGE)
        self.pending.setdefault(producer_id, {}).update(offsets)
        self.written += 1
        self.pending_order.update({(producer_id, place): self.written for place in offsets})

    def complete(self, producer_id: int, commit: bool) -> None:
        """The marker of a transaction. It may come after that of a later one, and does not replace what was committed since (`OffsetMetadataManager`)."""
        for place, offset in self.pending.pop(producer_id, {}).items():
            written = self.pending_order.pop((producer_id, place))
            if commit and self.order.get(place, 0) < written:
                self.offsets[place], self.order[place] = offset, written

    def fetch(self, places: Iterable[Place] | None, stable: bool) -> dict[Place, tuple[int, str, int]]:
        """OffsetFetch: offset, metadata and error code; -1 where nothing is committed. None asks for all that is."""
        undecided = {place for offsets in self.pending.values() for place in offsets} if stable else set()
        found = {}
        for place in (sorted(self.offsets.keys() | undecided) if places is None else places):
            offset, metadata = self.offsets.get(place, (-1, ""))
            found[place] = (-1, "", int(KafkaError.UNSTABLE_OFFSET_COMMIT)) if place in undecided else (offset, metadata, 0)
        return found

    def forget_topic(self, topic: str) -> None:
        """It was deleted."""
        for offsets in (self.offsets, *self.pending.values()):
            for place in [place for place in offsets if place[0] == topic]:
                del offsets[place]
