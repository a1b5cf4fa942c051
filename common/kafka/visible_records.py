"""Reading the records that a read_committed consumer sees: the first one from an offset on, or all
up to the end.

Offsets cannot tell where such a read ends, because they also count markers and aborted records. So
a reader reports the ends of partitions (`common.kafka.clients.create_reader`).

Each broker has its own end of a partition: a leader that was replaced and does not know it yet, or
a new one whose high watermark still lags (KIP-207 is for ListOffsets only), has a lower one than
another broker has told before. So where a caller knows an end, the read goes on up to there.

Markers and aborted records are fetched and never returned. There can be millions of them, so a read
is not over while the consumer's position moves: it moves with each marker.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from typing import cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError
from confluent_kafka import TopicPartition as ClientTopicPartition

from common import clock
from common.errors import ClusterUnreachable, ReoError
from common.kafka.client_errors import translate
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.records import Consumed
from common.routes import TopicPartition, name_some

PARTITIONS_MAX = 200
"""Partitions whose records are read at once, in turn with the others: the first records of 2,000
partitions took 4 s.
"""
POLL_S = 5.0
MOVES_S = 1.0
"""In this time a consumer that fetches passes a marker: it gets at least 64 KB a request."""
SILENCE_S = 60.0
"""A read without a record for so long fails: no answer, or it began after the stable end."""
FROM_BEGINNING = OFFSET_BEGINNING
"""For `read_visible`: the first offset that the partition has at the time of the read."""


class _Patience:
    """Whether a reader may still answer: its last sign is not older than so many seconds. `beat` is
    called when it has passed markers since.
    """

    def __init__(self, reader: Consumer, seconds: float, beat: Callable[[], None]) -> None:
        self.reader = reader
        self.seconds = seconds
        self.beat = beat
        self.passed: int | None = None
        """The sum of the positions when it was silent for so long; None since its last answer."""
        self.deadline = clock.monotonic() + seconds

    def renew(self) -> None:
        """It has answered."""
        self.passed = None
        self.deadline = clock.monotonic() + self.seconds

    def is_over(self, unanswered: Iterable[tuple[str, int]]) -> bool:
        """Whether it neither answered nor passed a marker for so long, and MOVES_S more."""
        now = clock.monotonic()
        if now <= self.deadline:
            return False
        passed = sum(
            max(0, position.offset)
            for position in self.reader.position([ClientTopicPartition(*tp) for tp in unanswered])
        )
        if passed == self.passed:
            return True
        if self.passed is not None:
            self.beat()
        self.deadline = now + (MOVES_S if self.passed is None else self.seconds)
        self.passed = passed
        return False


def read_first_records(
    reader: Consumer,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int] | None = None,
    beat: Callable[[], None] = lambda: None,
) -> dict[TopicPartition, Consumed | None]:
    """Read the first visible record of each partition from an offset on.

    None: no record exists, or it was deleted. A partition that is missing in the result did not
    answer; what a broker says that has less than `ends`, which are last stable offsets or below, is
    no answer.
    """
    records: dict[TopicPartition, Consumed | None] = {}
    known_ends = ends or {}
    if not begins:
        return records
    reader.assign([ClientTopicPartition(*tp, offset) for tp, offset in begins.items()])
    patience = _Patience(reader, POLL_S, beat)
    try:
        while len(records) < len(begins) and not patience.is_over(begins.keys() - records.keys()):
            message = cast(Consumed | None, reader.poll(0.5))
            if message is None:
                continue
            error, tp = message.error(), TopicPartition(message.topic(), message.partition())
            if error is None:
                records.setdefault(tp, message)
            elif error.code() == KafkaError._PARTITION_EOF:
                if message.offset() >= known_ends.get(tp, 0):
                    records.setdefault(tp, None)
            # it was deleted a moment ago, or is above the broker's end
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                if begins[tp] >= known_ends.get(tp, 0):
                    records.setdefault(tp, None)
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise translate(error, f"reading {message.topic()}")
    finally:
        reader.unassign()
    return records


def read_visible(
    reader: Consumer,
    begins: Mapping[TopicPartition, int],
    silence_s: float = SILENCE_S,
    ends: Mapping[TopicPartition, int] | None = None,
    beat: Callable[[], None] = lambda: None,
) -> Generator[Consumed]:
    """Read every visible record from these offsets up to the current ends, and at least up to
    `ends`, which are last stable offsets or below; ClusterUnreachable when no record comes for
    `silence_s`.
    """
    with closing(read_batches(reader, begins, silence_s, ends, beat)) as batches:
        for messages in batches:
            yield from messages


def read_batches(
    reader: Consumer,
    begins: Mapping[TopicPartition, int],
    silence_s: float = SILENCE_S,
    ends: Mapping[TopicPartition, int] | None = None,
    beat: Callable[[], None] = lambda: None,
) -> Generator[list[Consumed]]:
    """As `read_visible`, in lists of 1 to 1,000 records, for callers that read millions.

    The reader must report partition ends (`clients.create_reader`): offsets cannot tell the end,
    because they also count markers and aborted records.
    """
    if not begins:
        return
    reader.assign([ClientTopicPartition(*tp, begin) for tp, begin in begins.items()])
    unfinished: set[tuple[str, int]] = set(begins)
    patience = _Patience(reader, silence_s, beat)
    try:
        while unfinished:
            messages = cast(list[Consumed], reader.consume(1000, 0.05))
            if messages:
                patience.renew()
            elif patience.is_over(unfinished):
                raise ClusterUnreachable(
                    f"reading {name_some([*begins])}: no record for {silence_s:.0f} s"
                )
            has_error = [message.error() is not None for message in messages]
            if len(unfinished) == len(begins) and not any(has_error):
                records, error = messages, None
            else:
                records, error = _split_records_and_ends(messages, unfinished, ends or {})
            if records:
                yield records
            if error is not None:
                raise error
    finally:
        reader.unassign()


def _split_records_and_ends(
    messages: list[Consumed],
    unfinished: set[tuple[str, int]],
    ends: Mapping[TopicPartition, int],
) -> tuple[list[Consumed], ReoError | None]:
    """The records of partitions that have not ended, up to the first error. Removes ended
    partitions from `unfinished`; a broker's end below `ends` is none.
    """
    records = []
    for message in messages:
        error, tp = message.error(), (message.topic(), message.partition())
        if error is None:
            if tp in unfinished:
                records.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            if message.offset() >= ends.get(TopicPartition(*tp), 0):
                unfinished.discard(tp)
        # librdkafka looks for the group coordinator, which a reader does not need
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            return records, translate(error, f"reading {tp[0]}-{tp[1]}")
    return records, None


def find_first_visible(
    reader: Consumer,
    tp: TopicPartition,
    begin: int,
    end: int,
    beat: Callable[[], None] = lambda: None,
) -> int | None:
    """The offset of the first visible record in [begin, end), or None: there are markers and
    aborted records only. `end` is a last stable offset or below; ClusterUnreachable when the read
    does not get there.
    """
    if begin >= end:
        return None
    with closing(read_visible(reader, {tp: begin}, REQUEST_TIMEOUT_S, {tp: end}, beat)) as records:
        offset = next((message.offset() for message in records), end)
    return offset if offset < end else None
