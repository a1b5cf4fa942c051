"""Positions in the clusters: the ends of topics, the frontiers of the group, the newest origin on
the intermediate topic.

Both stages and the command line read them here; this module keeps no state.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import NamedTuple, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from common import frontier as frontiers
from common import origin as origins
from common import read_up_to, runtime
from common.errors import (
    ClusterUnreachable,
    ForeignRecord,
    FrontierUnreadable,
    RecordRefused,
    ReoError,
    TopicMissing,
)
from common.frontier import Frontier
from common.kafka.clients import REQUEST_TIMEOUT_S, ask_with_retries, translate
from common.origin import Origin
from common.read_up_to import ReadUpTo
from common.records import Consumed, headers_of
from common.routes import Place

POLL_S = 5.0
SILENCE_S = 60.0
"""A read that gets no record for this long fails: a broker does not answer, or the read begins
behind the last stable offset.
"""
FROM_BEGINNING = OFFSET_BEGINNING
"""For `read_visible`: the first offset that the partition has at the time of the read."""


GROUPS_TOPIC = "__consumer_offsets"
"""Kafka's internal topic, which exists in every cluster."""


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """A group's commit on one intermediate partition: the next intermediate offset, and the
    frontier in the metadata.
    """

    intermediate_offset: int
    frontier: Frontier


class EndOffset(NamedTuple):
    """The end of a partition, and the epoch of its leader."""

    offset: int
    leader_epoch: int | None
    """None when the broker does not report it."""


def list_offsets(
    client: AdminClient,
    places: Iterable[Place],
    spec: OffsetSpec,
    committed_only: bool = False,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> dict[Place, int]:
    """The offset of each partition. With `committed_only`, "latest" is the last stable offset: the
    end for a read_committed consumer.

    Raises ClusterUnreachable without an answer in `timeout_s`, like all functions here that list
    offsets.
    """
    return {
        place: end.offset
        for place, end in _list_offsets(client, places, spec, committed_only, timeout_s).items()
    }


def list_stable_ends(
    client: AdminClient, places: Iterable[Place], timeout_s: float = REQUEST_TIMEOUT_S
) -> dict[Place, EndOffset]:
    """The last stable offset of each partition, with the epoch of its leader."""
    return _list_offsets(
        client, places, OffsetSpec.latest(), committed_only=True, timeout_s=timeout_s
    )


def _list_offsets(
    client: AdminClient,
    places: Iterable[Place],
    spec: OffsetSpec,
    committed_only: bool,
    timeout_s: float,
) -> dict[Place, EndOffset]:
    isolation = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
    requested = {TopicPartition(*place): spec for place in places}
    names = sorted({place.topic for place in requested})

    def ask() -> dict[Place, EndOffset]:
        futures = client.list_offsets(
            requested, isolation_level=isolation, request_timeout=timeout_s
        )
        try:
            return {
                Place(place.topic, place.partition): _parse_end(future.result())
                for place, future in futures.items()
            }
        except KafkaException:
            refresh_metadata(client, names, timeout_s)
            raise

    # a client learns of an added partition a moment later
    retriable = (ClusterUnreachable, TopicMissing)
    return (
        ask_with_retries(
            f"reading the offsets of topic {', '.join(names)}", timeout_s, ask, retriable
        )
        if requested
        else {}
    )


def refresh_metadata(client: AdminClient, names: Iterable[str], timeout_s: float) -> None:
    """Refresh the client's metadata: the topics' partitions, leaders and leader epochs.

    The client does not do it by itself when a broker answers that its metadata is outdated: after a
    leader change, every list_offsets failed with FENCED_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER (for
    30 s, measured).
    """
    for name in names:
        client.list_topics(name, timeout_s)


def _parse_end(result: ListOffsetsResultInfo) -> EndOffset:
    return EndOffset(get_offset(result), result.leader_epoch)


def get_offset(result: ListOffsetsResultInfo) -> int:
    """The offset in an answer; KafkaException when it has none: a request that timed out returns a
    result without an error (confluent-kafka 2.16).
    """
    if result.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no offset in the answer"))
    return int(result.offset)


def list_end_offsets(
    client: AdminClient,
    places: Iterable[Place],
    committed_only: bool = False,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> dict[Place, int]:
    """The end of each partition: its next offset."""
    return list_offsets(client, places, OffsetSpec.latest(), committed_only, timeout_s)


def list_beginning_offsets(
    client: AdminClient, places: Iterable[Place], timeout_s: float = REQUEST_TIMEOUT_S
) -> dict[Place, int]:
    """The beginning of each partition: the first offset that it still has."""
    return list_offsets(client, places, OffsetSpec.earliest(), timeout_s=timeout_s)


def read_ends(reader: Consumer, places: Iterable[Place], timeout_s: float) -> dict[Place, int]:
    """The end of each partition, read by a consumer in one request; raises a translated error when
    an answer is missing.

    Without partitions it still sends a request, because the caller needs to know whether the
    cluster answers.
    """
    requested = [TopicPartition(*place, OFFSET_END) for place in places]
    try:
        if not requested:
            reader.list_topics(GROUPS_TOPIC, timeout_s)
        answers = reader.offsets_for_times(requested, timeout_s) if requested else []
        for answer in answers:
            if answer.error is not None:
                raise KafkaException(answer.error)
    except KafkaException as failed:
        raise translate(failed.args[0], "reading the ends of topics") from None
    return {Place(answer.topic, answer.partition): answer.offset for answer in answers}


def read_commits(
    consumer: Consumer, places: Iterable[Place], timeout_s: float = REQUEST_TIMEOUT_S
) -> dict[Place, GroupCommit]:
    """Read the group's commits; a partition without one is left out. A `reader` waits for offsets
    of an open transaction (KIP-447), a `commit_reader` does not.

    Raises HangingTransaction or another translated error when no answer comes, and
    FrontierUnreadable when a commit was not written by reo.
    """
    requested = [TopicPartition(*place) for place in places]
    if not requested:
        return {}
    operation = (
        "reading the frontier of group on topic"
        f" {', '.join(sorted({place.topic for place in requested}))}"
    )
    try:
        answers = consumer.committed(requested, timeout=timeout_s)
    except KafkaException as failed:
        raise translate(failed.args[0], operation) from None
    commits = {}
    for answer in answers:
        if answer.error is not None:
            raise translate(answer.error, operation)
        if answer.offset >= 0:
            commits[Place(answer.topic, answer.partition)] = decode_commit(
                Place(answer.topic, answer.partition), answer.offset, answer.metadata
            )
    return commits


def decode_commit(place: Place, intermediate_offset: int, metadata: str | None) -> GroupCommit:
    """FrontierUnreadable when the commit was not written by reo."""
    try:
        return GroupCommit(intermediate_offset, frontiers.decode(metadata))
    except ValueError as reason:
        raise FrontierUnreadable(
            f"the committed offset of {place} carries no frontier of reo ({reason}): another"
            " application commits with this group (then set application to an unused name), or its"
            " offsets were reset (stop the service; `reo recover` finds the frontier from the"
            " data)"
        ) from None


def read_first_records(
    reader: Consumer, begins: Mapping[Place, int]
) -> dict[Place, Consumed | None]:
    """Read the first visible record of each partition from an offset on.

    None: no record exists, or it was deleted. A partition that is missing in the result did not
    answer.
    """
    records: dict[Place, Consumed | None] = {}
    if not begins:
        return records
    reader.assign([TopicPartition(*place, offset) for place, offset in begins.items()])
    deadline = runtime.monotonic() + POLL_S
    try:
        while len(records) < len(begins) and runtime.monotonic() < deadline:
            message = cast(Consumed | None, reader.poll(0.5))
            if message is None:
                continue
            error, place = message.error(), Place(message.topic(), message.partition())
            if error is None:
                records.setdefault(place, message)
            # the second: it was deleted a moment ago
            elif error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
                records.setdefault(place, None)
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise translate(error, f"reading {message.topic()}")
    finally:
        reader.unassign()
    return records


def read_last_origins(
    reader: Consumer, ranges: Mapping[Place, tuple[int, int]]
) -> dict[Place, Origin | ReadUpTo]:
    """Read the origin, or the read-up-to header, of each intermediate partition's last record;
    `ranges` are (beginning, end). Empty partitions are left out.
    """
    newest = read_first_records(
        reader, {place: end - 1 for place, (beginning, end) in ranges.items() if end > beginning}
    )
    return {
        place: parse_read_up_to(message) or parse_origin(message)
        for place, message in newest.items()
        if message is not None
    }


def parse_origin(message: Consumed) -> Origin:
    """The origin of an intermediate record; ForeignRecord when it has none, or one of another
    partition.
    """
    with _raise_foreign_record(message):
        headers = headers_of(message)
        if not headers or headers[-1][0] != origins.HEADER:
            raise ValueError(f"its last header is not {origins.HEADER}")
        if headers[-1][1] is None:
            raise ValueError("the header has no value")
        origin = origins.parse(headers[-1][1])
        if origin.source_partition != message.partition():
            raise ValueError(f"its origin is partition {origin.source_partition}")
    return origin


def parse_read_up_to(message: Consumed) -> ReadUpTo | None:
    """The content of a read-up-to record; None for any other record, ForeignRecord when it is of
    another partition.
    """
    with _raise_foreign_record(message):
        headers = headers_of(message)
        if not headers or headers[-1][0] != read_up_to.HEADER:
            return None
        content = read_up_to.parse(headers[-1][1] or b"")
        if content.source_partition != message.partition():
            raise ValueError(f"it is of partition {content.source_partition}")
    return content


@contextmanager
def _raise_foreign_record(message: Consumed) -> Iterator[None]:
    """Raise ForeignRecord, with partition and offset, for an error in a record of an intermediate
    topic.
    """
    try:
        yield
    except RecordRefused as unreadable:
        raise foreign_record_error(str(unreadable)) from None
    except ValueError as reason:
        raise foreign_record_error(
            f"the record on {message.topic()}-{message.partition()} at offset {message.offset()}:"
            f" {reason}"
        ) from None


def foreign_record_error(record: str) -> ForeignRecord:
    """The error for a record of an intermediate topic."""
    return ForeignRecord(
        f"{record}. Stage one did not write it: find out who writes to the intermediate topic, stop"
        " it, and skip the record with kafka-delete-records.sh up to the offset after it; stage"
        " one writes again what is missing"
    )


def read_visible(
    reader: Consumer, begins: Mapping[Place, int], silence_s: float = SILENCE_S
) -> Generator[Consumed]:
    """Read every visible record from these offsets up to the current ends; ClusterUnreachable when
    no record comes for `silence_s`.
    """
    with closing(read_batches(reader, begins, silence_s)) as batches:
        for messages in batches:
            yield from messages


def read_batches(
    reader: Consumer, begins: Mapping[Place, int], silence_s: float = SILENCE_S
) -> Generator[list[Consumed]]:
    """As `read_visible`, in lists of 1 to 1,000 records, for callers that read millions.

    The reader must report partition ends (`kafka_clients.reader`): offsets cannot tell the end,
    because they also count markers and aborted records.
    """
    if not begins:
        return
    reader.assign([TopicPartition(*place, begin) for place, begin in begins.items()])
    unfinished: set[tuple[str, int]] = set(begins)
    answered_at = runtime.monotonic()
    try:
        while unfinished:
            messages = cast(list[Consumed], reader.consume(1000, 0.05))
            if messages:
                answered_at = runtime.monotonic()
            elif runtime.monotonic() > answered_at + silence_s:
                raise ClusterUnreachable(
                    f"reading {', '.join(map(str, begins))}: no record for {silence_s:.0f} s"
                )
            # a list is quicker than a generator; an error may not be compared with None by ==
            has_error = True in [message.error() is not None for message in messages]
            if len(unfinished) == len(begins) and not has_error:
                records, error = messages, None
            else:
                records, error = _split_records_and_ends(messages, unfinished)
            if records:
                yield records
            if error is not None:
                raise error
    finally:
        reader.unassign()


def _split_records_and_ends(
    messages: list[Consumed], unfinished: set[tuple[str, int]]
) -> tuple[list[Consumed], ReoError | None]:
    """The records of partitions that have not ended, up to the first error. Removes ended
    partitions from `unfinished`.
    """
    records = []
    for message in messages:
        error, place = message.error(), (message.topic(), message.partition())
        if error is None:
            if place in unfinished:
                records.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            unfinished.discard(place)
        # librdkafka looks for the group coordinator, which a reader does not need
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            return records, translate(error, f"reading {place[0]}-{place[1]}")
    return records, None


def find_first_visible(reader: Consumer, place: Place, begin: int, end: int) -> int | None:
    """The offset of the first visible record in [begin, end), or None: there may be markers and
    aborted records only.
    """
    if begin >= end:
        return None
    offset = next(
        (message.offset() for message in read_visible(reader, {place: begin}, REQUEST_TIMEOUT_S)),
        end,
    )
    return offset if offset < end else None
