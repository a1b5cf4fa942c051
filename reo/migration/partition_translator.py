"""Translates a source offset of one partition into the destination offset that corresponds to it,
and proves it.

No map of offsets is stored. The frontier gives one offset of each side that correspond: source
offset `f`, and the destination's record `sent` records after `destination_known`. By invariant 1
of the design, the destination up to there is the source's visible records in order; so the n-th
visible record before that offset on one side is the n-th on the other. Per partition:

1. read the group's committed offset at the source: the next record that it would read;
2. count the visible records of the source from there to the frontier;
3. count as many visible records back from the frontier at the destination: there the group
   continues;
4. read both sides in step from there to the frontier, and compare them record by record.

Step 4 is the proof: from the translated offset on, a reader sees what the group has not read yet,
whatever retention or compaction did before it. When the comparison fails, or the records are not
there (any more, or yet), the partition is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from common.errors import (
    CopyDiffers,
    FrontierLost,
    HangingTransaction,
    OffsetUntranslatable,
    RecordRefused,
    TopicMissing,
)
from common.frontier import Frontier, LastRecord
from common.kafka import partition_offsets, visible_records
from common.kafka.clients import create_readers
from common.records import Consumed, compute_message_checksum, get_compared_content
from common.routes import TopicPartition
from common.settings import Settings, destination_kind
from reo.compare.comparison import describe_difference
from reo.report import convert_error_to_dict

SEGMENT_MIN = 1000
"""The destination is read backwards in segments of at least so many offsets."""


@dataclass(slots=True)
class TranslatedPartition:
    """One partition: the group's offset at the source, at the destination, and the translated
    one.
    """

    source: TopicPartition
    destination: TopicPartition
    source_offset: int | None = None
    """What the group reads next at the source; None when it has committed nothing."""
    committed_offset: int | None = None
    """The same at the destination, before anything is changed."""
    destination_offset: int | None = None
    metadata: str = ""
    """Of the group's commit at the source."""
    refusal: CopyDiffers | FrontierLost | OffsetUntranslatable | TopicMissing | None = None

    @property
    def moves(self) -> bool:
        """Whether to commit the translated offset: a group is never moved back."""
        return self.destination_offset is not None and (
            self.committed_offset is None or self.destination_offset > self.committed_offset
        )

    @property
    def offsets_ahead(self) -> int:
        """How many offsets the group is further at the destination than at the source."""
        if self.destination_offset is None or self.committed_offset is None:
            return 0
        return max(0, self.committed_offset - self.destination_offset)

    @property
    def continues_at(self) -> int | None:
        """Where the group continues at the destination, when the translated offset is committed if
        it moves the group; None when nothing tells.
        """
        if self.destination_offset is None:
            return None
        return self.destination_offset + self.offsets_ahead

    def describe_commit(self) -> str:
        """As text for a person."""
        if self.refusal:
            return f"refused ({type(self.refusal).__name__})"
        if self.destination_offset is None:
            return "nothing: no offset at the source"
        if self.moves:
            return f"offset {self.destination_offset}"
        return f"nothing: already {'further' if self.offsets_ahead else 'at this offset'}"

    def list_cells(self) -> tuple[object, ...]:
        """As the row of a table."""
        return (
            self.source,
            self.source_offset,
            self.destination,
            self.committed_offset,
            self.destination_offset,
            self.describe_commit(),
        )

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "source_topic": self.source.topic,
            "destination_topic": self.destination.topic,
            "partition": self.source.partition,
            "source_offset": self.source_offset,
            "destination_offset": self.destination_offset,
            "destination_offset_before": self.committed_offset,
            "moves": self.moves,
            "refused": convert_error_to_dict(self.refusal),
        }


class PartitionTranslator:
    """Translates the offset of one partition after the other. `on_progress` is called again and
    again while it reads.
    """

    def __init__(
        self,
        settings: Settings,
        destination_admin: AdminClient,
        load_frontiers: Callable[..., dict[TopicPartition, Frontier]],
        on_progress: Callable[[], None],
    ) -> None:
        self.settings = settings
        self.destination_admin = destination_admin
        self.load_frontiers = load_frontiers
        self.on_progress = on_progress
        self.source_reader, self.destination_reader = create_readers(settings)
        self.zero_timestamp_ms = destination_kind.get_zero_timestamp_ms(settings) or 0

    def translate(
        self,
        row: TranslatedPartition,
        offset: int,
        bounds: tuple[int, int, int],
        frontier: Frontier | None,
        proved: tuple[int, int] | None,
    ) -> int:
        """The four steps; an error when one of them is impossible. From what is proved, see
        `_translate_from`, it is two. `bounds` are the source's beginning, last stable offset and
        end.
        """
        if frontier is None:
            raise FrontierLost(
                f"{row.source}: the copy has no frontier for this partition. Start the service, or"
                " run `reo recover` when it is lost"
            )
        (source_begin, stable_end, end), copied = bounds, frontier.source_offset + 1
        at = f"{row.source}: the group is at offset {offset}"
        if not source_begin <= offset <= end:
            raise OffsetUntranslatable(
                f"{at}, the source has {source_begin} to {end}: the record that it would read next"
                " is not there (any more). Reset the group at the source (kafka-consumer-groups.sh"
                " --reset-offsets), then translate again"
            )
        if offset > stable_end:  # a group with isolation.level=read_uncommitted reads on there
            raise OffsetUntranslatable(
                f"{at}, and an open transaction of the source begins at {stable_end}. Translate"
                " again when it has ended, and is copied"
            )
        if stable_end < copied:
            raise OffsetUntranslatable(
                f"{row.source}: the source ends at offset {stable_end}, the copy is at {copied}:"
                " the source lost records, or is a candidate (source.mode=failover) that is behind."
                " Translate again when the source has what is copied"
            )
        if (
            visible_records.find_first_visible(self.source_reader, row.source, copied, offset)
            is not None
        ):
            raise OffsetUntranslatable(
                f"{at}, the copy at {copied}: the group has read records that are not copied yet."
                " Let the service catch up, then translate again"
            )
        if proved is not None and source_begin <= proved[0] <= offset:
            return self._translate_from(row, proved, offset, copied)
        unread = sum(1 for _ in self._read_records(self.source_reader, row.source, offset, copied))
        begin, skip, destination_end = self._find_begin(row, frontier, unread)
        if unread:
            return self._compare(row, (offset, copied), (begin, destination_end), skip)
        self._check_last_record(row, source_begin, frontier.last_record)
        return destination_end

    def _check_last_record(
        self, row: TranslatedPartition, source_begin: int, last: LastRecord | None
    ) -> None:
        """With failover, where the group has nothing to read that could be compared:
        OffsetUntranslatable unless the candidate has the last copied record. One that retention has
        deleted there proves nothing.
        """
        if not self.settings.failover or last is None or last.source_offset < source_begin:
            return
        reading = self._read_records(
            self.source_reader, row.source, last.source_offset, last.source_offset + 1
        )
        with closing(reading) as records, suppress(RecordRefused):  # a name that is never copied
            if any(compute_message_checksum(record) == last.checksum for record in records):
                return
        raise OffsetUntranslatable(
            f"{row.source}: the candidate at {self.settings.source_cluster.bootstrap_servers} does"
            f" not have the record that was copied last, at offset {last.source_offset} (any more):"
            " nothing shows that the group's offset there is one of what was copied. Translate"
            " again when another candidate answers, or more is copied"
        )

    def _translate_from(
        self, row: TranslatedPartition, proved: tuple[int, int], offset: int, copied: int
    ) -> int:
        """Go on from a source offset and its place at the destination: the records up to `offset`
        are the next ones there, compared one by one.
        """
        source_begin, destination_offset = proved
        if source_begin == offset:
            return destination_offset
        source = source_begin, min(offset, copied)
        destination = max(self._find_first(row.destination), destination_offset), None
        with self._read_both(row, source, destination) as (source_records, destination_records):
            for left in source_records:
                right = next(destination_records, None)
                if right is None or not self._is_equal(left, right):
                    raise OffsetUntranslatable(
                        f"{row.destination}: the records after offset {destination_offset} are not"
                        " (any more) those that the group has read at the source since. Translate"
                        " again: it then reads from the group's offset to the end"
                    )
                destination_offset = right.offset() + 1
            following = next(destination_records, None)
        return destination_offset if following is None else following.offset()

    def _find_begin(
        self, row: TranslatedPartition, frontier: Frontier, unread: int
    ) -> tuple[int, int, int]:
        """A destination offset, how many visible records to skip from it so that `unread` records
        remain up to the frontier, and the offset after these.
        """
        tp = row.destination
        if frontier.sent < 0:
            raise OffsetUntranslatable(
                f"{tp}: the frontier does not count the records at the destination, because this"
                " route was not one to one before. Start the service, then translate again"
            )
        first = self._find_first(tp)
        begin = max(first, frontier.destination_known + 1)
        stable_end, end = (
            partition_offsets.list_end_offsets(self.destination_admin, [tp], committed_only)[tp]
            for committed_only in (True, False)
        )
        records = self._read_records(self.destination_reader, tp, begin, stable_end)
        sent = [message.offset() for message in islice(records, frontier.sent)]
        if (begin > frontier.destination_known + 1 or len(sent) < frontier.sent) and not (
            stable_end == end and self._is_last(row, frontier)
        ):
            raise OffsetUntranslatable(
                f"{tp}: some of the last {frontier.sent} records after offset"
                f" {frontier.destination_known} are not visible yet, or retention or compaction"
                " deleted them while the service copies: the offset cannot be translated now."
                " Translate again, at the latest when the service is stopped"
            )
        destination_end, total = sent[-1] + 1 if sent else begin, len(sent)
        while total < unread and begin > first:
            end, begin = begin, max(first, begin - max(SEGMENT_MIN, 2 * (unread - total)))
            total += sum(1 for _ in self._read_records(self.destination_reader, tp, begin, end))
        if total < unread:
            raise OffsetUntranslatable(
                f"{tp} has {total} records up to the frontier, and the group has {unread} to"
                " read there: retention or compaction deleted the others, or the copy began after"
                " them. Deleted records cannot be read at the destination"
            )
        return begin, total - unread, destination_end

    def _is_last(self, row: TranslatedPartition, frontier: Frontier) -> bool:
        """Whether this is the group's frontier still, and no transaction is about to replace it:
        then all that was there before, with no transaction open, was copied up to the frontier.
        """
        try:
            return self.load_frontiers(require_stable=True).get(row.source) == frontier
        except HangingTransaction:
            return False

    def _compare(
        self,
        row: TranslatedPartition,
        source: tuple[int, int],
        destination: tuple[int, int],
        skip: int,
    ) -> int:
        """The destination offset of the first record; CopyDiffers unless all records are equal."""
        first = -1
        with self._read_both(row, source, destination) as (source_records, destination_records):
            for left, right in zip_longest(source_records, islice(destination_records, skip, None)):
                if left is None or right is None:
                    raise CopyDiffers(
                        f"{row.destination}: records were added or deleted while they were"
                        " compared. Translate again"
                    )
                if not self._is_equal(left, right):
                    raise CopyDiffers(
                        f"{row.destination} is not a copy of what the group has to read:"
                        f" {describe_difference(left, right)}. With cleanup.policy=compact one side"
                        " can have lost a record; otherwise `reo verify` tells more"
                    )
                first = right.offset() if first < 0 else first
        return first

    def _is_equal(self, left: Consumed, right: Consumed) -> bool:
        """Whether a destination record is the copy of a source record."""
        return get_compared_content(left, self.zero_timestamp_ms) == get_compared_content(
            right, self.zero_timestamp_ms
        )

    def _find_first(self, destination: TopicPartition) -> int:
        """The first offset that the destination still has."""
        begins = partition_offsets.list_beginning_offsets(self.destination_admin, [destination])
        return begins[destination]

    @contextmanager
    def _read_both(
        self,
        row: TranslatedPartition,
        source: tuple[int, int],
        destination: tuple[int, int | None],
    ) -> Iterator[tuple[Iterator[Consumed], Iterator[Consumed]]]:
        """The visible records of both sides, from one offset to before the other."""
        with (
            closing(self._read_records(self.source_reader, row.source, *source)) as left,
            closing(
                self._read_records(self.destination_reader, row.destination, *destination)
            ) as right,
        ):
            yield left, right

    def _read_records(
        self, client: Consumer, tp: TopicPartition, begin: int, end: int | None = None
    ) -> Generator[Consumed]:
        """The visible records in [begin, end); `end` is a last stable offset or below, and no
        broker's lower one is believed.
        """
        ends = {} if end is None else {tp: end}
        with closing(visible_records.read_visible(client, {tp: begin}, ends=ends)) as records:
            for message in records:
                self.on_progress()
                if end is not None and message.offset() >= end:
                    return
                yield message
