"""Where things stand: the ends of topics, the frontiers of the group, the newest origin on the intermediate topic.

Both stages and the command line ask the same questions of the clusters; nothing is remembered here.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import NamedTuple, cast

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from common import frontier as frontiers
from common import machine, read_up_to
from common import origin as origins
from common.errors import ClusterUnreachable, ForeignRecord, FrontierUnreadable, RecordRefused, ReoError, TopicMissing
from common.frontier import Frontier
from common.kafka_clients import REQUEST_TIMEOUT_S, ask_with_retries, translate
from common.origin import Origin
from common.read_up_to import ReadUpTo
from common.records import Consumed, headers_of
from common.routes import Place

POLL_S = 5.0
FROM_BEGINNING = OFFSET_BEGINNING
"""For `visible`: the first offset that the partition has when it is read."""


GROUPS_TOPIC = "__consumer_offsets"
"""Kafka's own topic, which every cluster knows of."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A group's commit on one intermediate partition: the next intermediate offset, and the frontier in the metadata."""

    intermediate_offset: int
    frontier: Frontier


class End(NamedTuple):
    """Where a partition ends, and under which leader."""

    offset: int
    leader_epoch: int | None
    """None where the broker does not say."""


def listed(client: AdminClient, places: Iterable[Place], spec: OffsetSpec, committed_only: bool = False,
           timeout_s: float = REQUEST_TIMEOUT_S) -> dict[Place, int]:
    """Offsets per place. With `committed_only`, "latest" is the last stable offset: what a read_committed reader can reach.

    ClusterUnreachable when there is no answer in `timeout_s`, like all that asks for offsets.
    """
    return {place: found.offset for place, found in _listed(client, places, spec, committed_only, timeout_s).items()}


def stable_ends(client: AdminClient, places: Iterable[Place], timeout_s: float = REQUEST_TIMEOUT_S) -> dict[Place, End]:
    """The last stable offset of each partition, with the epoch of its leader."""
    return _listed(client, places, OffsetSpec.latest(), committed_only=True, timeout_s=timeout_s)


def _listed(client: AdminClient, places: Iterable[Place], spec: OffsetSpec, committed_only: bool, timeout_s: float) -> dict[Place, End]:
    isolation = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
    asked = {TopicPartition(*place): spec for place in places}
    names = sorted({place.topic for place in asked})

    def ask() -> dict[Place, End]:
        futures = client.list_offsets(asked, isolation_level=isolation, request_timeout=timeout_s)
        try:
            return {Place(place.topic, place.partition): _end(future.result()) for place, future in futures.items()}
        except KafkaException:
            renew(client, names, timeout_s)
            raise

    later = (ClusterUnreachable, TopicMissing)  # a client learns of a partition that was just added a moment later
    return ask_with_retries(f"reading the offsets of topic {', '.join(names)}", timeout_s, ask, later) if asked else {}


def renew(client: AdminClient, names: Iterable[str], timeout_s: float) -> None:
    """Have the client learn the topics' partitions, leaders and leader epochs anew, for which it asks nobody by itself when it is told that it has old ones:

    after a change of the leader, questions for offsets are answered with FENCED_LEADER_EPOCH or NOT_LEADER_OR_FOLLOWER until then (seen for 30 s).
    """
    for name in names:
        client.list_topics(name, timeout_s)


def _end(result: ListOffsetsResultInfo) -> End:
    return End(answered(result), result.leader_epoch)


def answered(result: ListOffsetsResultInfo) -> int:
    """The offset in an answer; KafkaException when it is none: a question that timed out is answered without an error (confluent-kafka 2.16)."""
    if result.offset == OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no offset in the answer"))
    return int(result.offset)


def ends(client: AdminClient, places: Iterable[Place], committed_only: bool = False, timeout_s: float = REQUEST_TIMEOUT_S) -> dict[Place, int]:
    """The next offset of each partition."""
    return listed(client, places, OffsetSpec.latest(), committed_only, timeout_s)


def beginnings(client: AdminClient, places: Iterable[Place], timeout_s: float = REQUEST_TIMEOUT_S) -> dict[Place, int]:
    """The first offset that each partition still has."""
    return listed(client, places, OffsetSpec.earliest(), timeout_s=timeout_s)


def ends_by(reader: Consumer, places: Iterable[Place], timeout_s: float) -> dict[Place, int]:
    """The same, by a reader, with every partition in one request; ClusterUnreachable and the like unless all are answered.

    Without a partition the cluster is asked all the same: whoever asks wants to know whether it answers.
    """
    asked = [TopicPartition(*place, OFFSET_END) for place in places]
    try:
        if not asked:
            reader.list_topics(GROUPS_TOPIC, timeout_s)
        answers = reader.offsets_for_times(asked, timeout_s) if asked else []
        for answer in answers:
            if answer.error is not None:
                raise KafkaException(answer.error)
    except KafkaException as failed:
        raise translate(failed.args[0], "reading the ends of topics") from None
    return {Place(answer.topic, answer.partition): answer.offset for answer in answers}


def committed(consumer: Consumer, places: Iterable[Place], timeout_s: float = REQUEST_TIMEOUT_S) -> dict[Place, Committed]:
    """The group's commits; a partition without one is left out. Offsets of an open transaction are waited for (KIP-447).

    Raises HangingTransaction or another translated error when the answer does not come; FrontierUnreadable when a commit
    is not ours.
    """
    asked = [TopicPartition(*place) for place in places]
    if not asked:
        return {}
    doing = f"reading the frontier of group on topic {', '.join(sorted({place.topic for place in asked}))}"
    try:
        answers = consumer.committed(asked, timeout=timeout_s)
    except KafkaException as failed:
        raise translate(failed.args[0], doing) from None
    found = {}
    for answer in answers:
        if answer.error is not None:
            raise translate(answer.error, doing)
        if answer.offset >= 0:
            try:
                found[Place(answer.topic, answer.partition)] = Committed(answer.offset, frontiers.decode(answer.metadata))
            except ValueError as reason:
                raise FrontierUnreadable(f"the committed offset of {answer.topic}-{answer.partition} carries no frontier of reo ({reason}): another "
                                         "application commits with this group (then set application to a name of its own), or its offsets were reset (stop the "
                                         "service; `reo recover` finds the frontier from the data)") from None
    return found


def firsts(reader: Consumer, begins: Mapping[Place, int]) -> dict[Place, Consumed | None]:
    """The first visible record of each partition from the given offset on; None where there is none (any more), nothing for one that does not answer."""
    found: dict[Place, Consumed | None] = {}
    if not begins:
        return found
    reader.assign([TopicPartition(*place, offset) for place, offset in begins.items()])
    deadline = machine.monotonic() + POLL_S
    try:
        while len(found) < len(begins) and machine.monotonic() < deadline:
            message = cast(Consumed | None, reader.poll(0.5))
            if message is None:
                continue
            error, place = message.error(), Place(message.topic(), message.partition())
            if error is None:
                found.setdefault(place, message)
            elif error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):  # the second: it was deleted a moment ago
                found.setdefault(place, None)
            elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise translate(error, f"reading {message.topic()}")
    finally:
        reader.unassign()
    return found


def newest_origins(reader: Consumer, ranges: Mapping[Place, tuple[int, int]]) -> dict[Place, Origin | ReadUpTo]:
    """What the last record of each intermediate partition says; `ranges` are (beginning, end). Empty partitions are left out."""
    newest = firsts(reader, {place: end - 1 for place, (beginning, end) in ranges.items() if end > beginning})
    return {place: read_up_to_of(message) or origin_of(message) for place, message in newest.items() if message is not None}


def origin_of(message: Consumed) -> Origin:
    """The origin that an intermediate record carries; ForeignRecord when it has none or not one of this partition."""
    with _foreign_unless_readable(message):
        headers = headers_of(message)
        if not headers or headers[-1][0] != origins.HEADER:
            raise ValueError(f"its last header is not {origins.HEADER}")
        if headers[-1][1] is None:
            raise ValueError("the header has no value")
        origin = origins.parse(headers[-1][1])
        if origin.source_partition != message.partition():
            raise ValueError(f"its origin is partition {origin.source_partition}")
    return origin


def read_up_to_of(message: Consumed) -> ReadUpTo | None:
    """What a read-up-to record says; None for any other record, ForeignRecord when it is not one of this partition."""
    with _foreign_unless_readable(message):
        headers = headers_of(message)
        if not headers or headers[-1][0] != read_up_to.HEADER:
            return None
        said = read_up_to.parse(headers[-1][1] or b"")
        if said.source_partition != message.partition():
            raise ValueError(f"it is of partition {said.source_partition}")
    return said


@contextmanager
def _foreign_unless_readable(message: Consumed) -> Iterator[None]:
    """ForeignRecord, with the record's place, for what is wrong with a record of an intermediate topic."""
    try:
        yield
    except RecordRefused as unreadable:
        raise foreign(str(unreadable)) from None
    except ValueError as reason:
        raise foreign(f"the record on {message.topic()}-{message.partition()} at offset {message.offset()}: {reason}") from None


def foreign(which: str) -> ForeignRecord:
    """The error for a record of an intermediate topic."""
    return ForeignRecord(f"{which}. Stage one did not write it: find out who writes to the intermediate topic, stop it, and skip the record with "
                         "kafka-delete-records.sh up to the offset after it; stage one writes again what is missing")


def visible(reader: Consumer, begins: Mapping[Place, int], silence_s: float = math.inf) -> Generator[Consumed]:
    """Every visible record of the partitions from the given offsets up to what is there now, then the end; ClusterUnreachable after such a silence."""
    with closing(batches(reader, begins, silence_s)) as found:
        for messages in found:
            yield from messages


def batches(reader: Consumer, begins: Mapping[Place, int], silence_s: float = math.inf) -> Generator[list[Consumed]]:
    """The same in lists of up to 1,000, none of them empty: for what goes through millions.

    The reader must be one that reports partition ends (`kafka_clients.reader`): counting offsets does not do, they also count
    markers and aborted records.
    """
    if not begins:
        return
    reader.assign([TopicPartition(*place, begin) for place, begin in begins.items()])
    unfinished: set[tuple[str, int]] = set(begins)
    heard = machine.monotonic()
    try:
        while unfinished:
            messages = cast(list[Consumed], reader.consume(1000, 0.05))
            if messages:
                heard = machine.monotonic()
            elif machine.monotonic() > heard + silence_s:
                raise ClusterUnreachable(f"reading {', '.join(map(str, begins))}: nothing came for {silence_s:.0f} s")
            if len(unfinished) == len(begins) and all([message.error() is None for message in messages]):  # noqa: C419  (a list is quicker)
                taken, failed = messages, None
            else:
                taken, failed = _sorted_out(messages, unfinished)
            if taken:
                yield taken
            if failed is not None:
                raise failed
    finally:
        reader.unassign()


def _sorted_out(messages: list[Consumed], unfinished: set[tuple[str, int]]) -> tuple[list[Consumed], ReoError | None]:
    """The records of partitions that have not ended, up to the first error; ends are taken out of `unfinished`."""
    taken = []
    for message in messages:
        error, place = message.error(), (message.topic(), message.partition())
        if error is None:
            if place in unfinished:
                taken.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            unfinished.discard(place)
        elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # librdkafka looks for the group's coordinator, which a reader does not need
            return taken, translate(error, f"reading {place[0]}-{place[1]}")
    return taken, None


def first_visible(reader: Consumer, place: Place, begin: int, end: int) -> int | None:
    """The offset of the first visible record in [begin, end), or None: there may be markers and aborted records only."""
    if begin >= end:
        return None
    found = next((message.offset() for message in visible(reader, {place: begin}, REQUEST_TIMEOUT_S)), end)
    return found if found < end else None
