"""Requests for offsets: the beginnings and ends of partitions, and the frontiers that the group has
committed.

Both stages and the command line ask for them here; this module keeps no state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_END,
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
)
from confluent_kafka import (
    TopicPartition as ClientTopicPartition,
)
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

from common import clock
from common import frontier as frontiers
from common.errors import ClusterUnreachable, FrontierUnreadable, TopicMissing
from common.frontier import Frontier
from common.kafka.client_errors import translate
from common.kafka.cluster_metadata import read_metadata
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S, ask_with_retries
from common.routes import TopicPartition, name_some

ASK_AGAIN_S = 1.0
OFFSETS_MAX = 250
"""Partitions in one call of a consumer, whose time grows with their square (librdkafka 2.16)."""
COMMIT_PARTITIONS_MAX = 100
"""How many partitions are committed in one request. The group coordinator writes a request as one
batch of __consumer_offsets, which has to fit `message.max.bytes` (1,048,588 by default); with a
frontier a partition takes 310 bytes and the topic's name (measured, Kafka 3.9 and 4.3), and never
more than 4,700: 4,095 of metadata and two names of 249.
"""


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
    topic_partitions: Iterable[TopicPartition],
    spec: OffsetSpec,
    committed_only: bool = False,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> dict[TopicPartition, int]:
    """The offset of each partition. With `committed_only`, "latest" is the last stable offset: the
    end for a read_committed consumer.

    Raises ClusterUnreachable without an answer in `timeout_s`, like all functions here that list
    offsets.
    """
    return {
        tp: end.offset
        for tp, end in _list_offsets(
            client, topic_partitions, spec, committed_only, timeout_s
        ).items()
    }


def list_stable_ends(
    client: AdminClient,
    topic_partitions: Iterable[TopicPartition],
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> dict[TopicPartition, EndOffset]:
    """The last stable offset of each partition, with the epoch of its leader."""
    return _list_offsets(
        client, topic_partitions, OffsetSpec.latest(), committed_only=True, timeout_s=timeout_s
    )


def _list_offsets(
    client: AdminClient,
    topic_partitions: Iterable[TopicPartition],
    spec: OffsetSpec,
    committed_only: bool,
    timeout_s: float,
) -> dict[TopicPartition, EndOffset]:
    isolation = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
    requested = {ClientTopicPartition(*tp): spec for tp in topic_partitions}
    names = sorted({tp.topic for tp in requested})

    def ask() -> dict[TopicPartition, EndOffset]:
        futures = client.list_offsets(
            requested, isolation_level=isolation, request_timeout=timeout_s
        )
        try:
            return {
                TopicPartition(tp.topic, tp.partition): _parse_end(future.result())
                for tp, future in futures.items()
            }
        except KafkaException:
            refresh_metadata(client, names, timeout_s)
            raise

    # a client learns of an added partition a moment later
    retriable = (ClusterUnreachable, TopicMissing)
    return (
        ask_with_retries(
            f"reading the offsets of topic {name_some(names)}", timeout_s, ask, retriable
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


def wait_before_asking_again(client: AdminClient, names: Iterable[str]) -> None:
    """Before an answer that one broker gave is believed: a leader that was replaced, and does not
    know it yet, ends earlier. Waits for a moment, and refreshes the leaders if the cluster answers.
    """
    with suppress(KafkaException):
        refresh_metadata(client, names, REQUEST_TIMEOUT_S)
    clock.sleep(ASK_AGAIN_S)


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
    topic_partitions: Iterable[TopicPartition],
    committed_only: bool = False,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> dict[TopicPartition, int]:
    """The end of each partition: its next offset."""
    return list_offsets(client, topic_partitions, OffsetSpec.latest(), committed_only, timeout_s)


def list_bounds(
    client: AdminClient,
    topic_partitions: Collection[TopicPartition],
    committed_only: bool = False,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The beginning of each partition, and then the end (with `committed_only`, the last stable
    offset).
    """
    return (
        list_beginning_offsets(client, topic_partitions, timeout_s),
        list_end_offsets(client, topic_partitions, committed_only, timeout_s),
    )


def find_open_transactions(
    client: AdminClient, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Of partitions with these ends, those that have an open transaction, with the offset at which
    it begins: the last stable offset.
    """
    stable_ends = list_end_offsets(client, ends, committed_only=True)
    return {tp: stable_ends[tp] for tp, end in ends.items() if stable_ends[tp] < end}


def list_beginning_offsets(
    client: AdminClient,
    topic_partitions: Iterable[TopicPartition],
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> dict[TopicPartition, int]:
    """The beginning of each partition: the first offset that it still has."""
    return list_offsets(client, topic_partitions, OffsetSpec.earliest(), timeout_s=timeout_s)


def read_ends(
    reader: Consumer, topic_partitions: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, int]:
    """The end of each partition, read by a consumer; raises a translated error when an answer is
    missing.

    Without partitions it still sends a request, because the caller needs to know whether the
    cluster answers.
    """
    ends = read_stable_ends(reader, topic_partitions, timeout_s)
    if not ends:
        try:
            read_metadata(reader, timeout_s)
        except KafkaException as failed:
            raise translate(failed.args[0], "reading the ends of topics") from None
    return {tp: end.offset for tp, end in ends.items()}


def read_stable_ends(
    reader: Consumer, topic_partitions: Iterable[TopicPartition], timeout_s: float
) -> dict[TopicPartition, EndOffset]:
    """As `list_stable_ends`, for a reader that reads committed records: it takes a quarter of the
    processor time, and is not repeated. Raises a translated error when an answer is missing.
    """
    requested = [ClientTopicPartition(*tp, OFFSET_END) for tp in topic_partitions]
    ends = {}
    for begin in range(0, len(requested), OFFSETS_MAX):
        try:
            answers = reader.offsets_for_times(requested[begin : begin + OFFSETS_MAX], timeout_s)
            for answer in answers:
                if answer.error is not None:
                    raise KafkaException(answer.error)
        except KafkaException as failed:
            raise translate(failed.args[0], "reading the ends of topics") from None
        for answer in answers:
            tp = TopicPartition(answer.topic, answer.partition)
            ends[tp] = EndOffset(answer.offset, answer.leader_epoch)
    return ends


def read_commits(
    consumer: Consumer,
    topic_partitions: Iterable[TopicPartition],
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> dict[TopicPartition, GroupCommit]:
    """Read the group's commits; a partition without one is left out. A client of `create_reader`
    waits for offsets of an open transaction (KIP-447), one of `create_commit_reader` does not.

    Raises HangingTransaction or another translated error when no answer comes, and
    FrontierUnreadable when a commit was not written by reo.
    """
    answers = read_committed(consumer, topic_partitions, timeout_s, "the frontier")
    return {tp: decode_commit(tp, *answer) for tp, answer in answers.items()}


def read_committed(
    consumer: Consumer, topic_partitions: Iterable[TopicPartition], timeout_s: float, what: str
) -> dict[TopicPartition, tuple[int, str | None]]:
    """As `read_commits`, whatever the metadata is: the offsets, with it."""
    requested = [ClientTopicPartition(*tp) for tp in topic_partitions]
    if not requested:
        return {}
    names = name_some(sorted({tp.topic for tp in requested}))
    operation = f"reading {what} of group on topic {names}"
    try:
        answers = consumer.committed(requested, timeout=timeout_s)
    except KafkaException as failed:
        raise translate(failed.args[0], operation) from None
    commits = {}
    for answer in answers:
        if answer.error is not None:
            raise translate(answer.error, operation)
        if answer.offset >= 0:
            tp = TopicPartition(answer.topic, answer.partition)
            commits[tp] = answer.offset, answer.metadata
    return commits


def split_commit(
    offsets: Sequence[ClientTopicPartition],
) -> Iterator[Sequence[ClientTopicPartition]]:
    """The requests in which these offsets are committed. In a transaction all become visible
    together (KIP-98).
    """
    for start in range(0, len(offsets), COMMIT_PARTITIONS_MAX):
        yield offsets[start : start + COMMIT_PARTITIONS_MAX]


def decode_commit(
    tp: TopicPartition, intermediate_offset: int, metadata: str | None
) -> GroupCommit:
    """FrontierUnreadable when the commit was not written by reo."""
    try:
        return GroupCommit(intermediate_offset, frontiers.decode(metadata))
    except ValueError as reason:
        raise FrontierUnreadable(
            f"the committed offset of {tp} carries no frontier of reo ({reason}): another"
            " application commits with this group (then set application to an unused name), or its"
            " offsets were reset (stop the service; `reo recover` finds the frontier from the"
            " data)",
            topic=tp.topic,
        ) from None
