"""What a partition's log consists of: records, markers, and the producers that write them."""

from __future__ import annotations

from typing import NamedTuple

DATA, COMMIT, ABORT = 0, 1, 2
CREATE_TIME, LOG_APPEND_TIME = 1, 2
Headers = list[tuple[str, bytes | None]]


class Record(NamedTuple):
    """A record or a marker in the log."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    timestamp_ms: int
    timestamp_type: int
    leader_epoch: int
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    is_transactional: bool = False
    kind: int = DATA


class ProducerState:
    """The state of a producer in one partition."""

    __slots__ = ("epoch", "sequence")

    def __init__(self, epoch: int, sequence: int) -> None:
        self.epoch = epoch
        self.sequence = sequence


class NewRecord(NamedTuple):
    """A record before it is appended."""

    key: bytes | None
    value: bytes | None
    headers: Headers | None
    timestamp_ms: int


class Writer(NamedTuple):
    """The producer of a batch, and its first sequence. A plain producer has no id."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    is_transactional: bool = False


PLAIN = Writer()
