"""Requests about stage two's consumer group with the admin client: its commits and members, and a
commit for it.

The stages read frontiers with a consumer (`partition_offsets.read_commits`). It waits silently for
offsets of an open transaction and ends with a plain timeout. The admin client answers at once that
offsets are unstable, also returns commits that reo did not write, and can commit metadata. Its
commit is an OffsetCommit without a member. A broker accepts that only for a group without members,
in both protocols, so it refuses it while stage two runs. (All measured; an offset in a transaction
without a member is not refused.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
)
from confluent_kafka import (
    TopicPartition as ClientTopicPartition,
)
from confluent_kafka.admin import AdminClient

from common import frontier as frontiers
from common.errors import HangingTransaction, ReoError, ServiceRuns
from common.frontier import Frontier
from common.kafka import partition_offsets
from common.kafka.clients import create_reader
from common.kafka.cluster_metadata import OFFSETS_TOPIC, read_metadata
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.coordinator_client import CoordinatorClient
from common.routes import TopicPartition
from common.settings import Settings
from common.settings.clusters import Cluster

Result = TypeVar("Result")


class Commit(NamedTuple):
    """A committed offset and its metadata string, written by reo or by another application."""

    intermediate_offset: int
    metadata: str | None


class Members(NamedTuple):
    """The members of a group, and how many partitions each has. `state` is Kafka's group state,
    "dead" for a group that does not exist.
    """

    state: str
    partitions: dict[str, int]


class Group:
    """The consumer group of one service, on its intermediate topics."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.coordinator = CoordinatorClient(settings.destination_cluster, settings)
        self.name = settings.application

    def list_commits(
        self, topic_partitions: Iterable[TopicPartition], require_stable: bool = True
    ) -> dict[TopicPartition, Commit]:
        """The committed offsets; a partition without one is left out. HangingTransaction, with the
        commands to run, while offsets are unstable.

        Without `require_stable`: the offsets before any open transaction, whether it commits or
        aborts.
        """
        asked = ConsumerGroupTopicPartitions(
            self.name, [ClientTopicPartition(*tp) for tp in topic_partitions]
        )
        answers = (
            self._ask(
                "reading the offsets",
                lambda client: list_group_offsets(client, asked, require_stable),
            )
            if asked.topic_partitions
            else []
        )
        for answer in answers:
            if answer.error is not None:
                hanging = TopicPartition(OFFSETS_TOPIC, self._offsets_partition)
                raise HangingTransaction(
                    f"the offsets of group {self.name} on {answer.topic}-{answer.partition} are"
                    f" undecided ({answer.error.name()}): a transaction that sent them is neither"
                    " committed nor aborted."
                    f" {self.describe_abort(hanging)}. Other groups share that partition: abort"
                    " only what describe-producers shows to be older than its timeout"
                )
        return {
            TopicPartition(answer.topic, answer.partition): Commit(answer.offset, answer.metadata)
            for answer in answers
            if answer.offset >= 0
        }

    def read_commits(
        self, topic_partitions: Iterable[TopicPartition], require_stable: bool = False
    ) -> dict[TopicPartition, partition_offsets.GroupCommit]:
        """The commits of these partitions with their frontiers, as of before any open transaction,
        unless `require_stable`; FrontierUnreadable when one is not reo's.
        """
        return {
            tp: partition_offsets.decode_commit(tp, *commit)
            for tp, commit in self.list_commits(topic_partitions, require_stable).items()
        }

    def list_frontiers(self) -> dict[TopicPartition, Frontier]:
        """Every frontier of the group, of all topics, as of before any open transaction. Commits
        without a frontier are left out.
        """
        everything = ConsumerGroupTopicPartitions(self.name)
        answers = self._ask(
            "reading the offsets",
            lambda client: list_group_offsets(client, everything, require_stable=False),
        )
        decoded = {}
        for answer in answers:
            with contextlib.suppress(ValueError):
                decoded[TopicPartition(answer.topic, answer.partition)] = frontiers.decode(
                    answer.metadata
                )
        return decoded

    def list_assigned(self, member_id: str | None = None) -> set[TopicPartition] | None:
        """The partitions that its members have, or this one of them; None while the group is
        rebalancing.
        """
        description = self._describe()
        if description.state != ConsumerGroupState.STABLE:
            return None
        return {
            TopicPartition(tp.topic, tp.partition)
            for member in description.members
            if member_id in (None, member.member_id)
            for tp in member.assignment.topic_partitions
        }

    def describe_members(self) -> Members:
        """Who is in the group now."""
        description = self._describe()
        return Members(
            description.state.name.lower(),
            {
                f"{member.client_id} on {member.host}": (
                    len(member.assignment.topic_partitions) if member.assignment else 0
                )
                for member in description.members
            },
        )

    def check_stopped(self) -> None:
        """ServiceRuns while the group has members."""
        assignments = self.describe_members()
        if assignments.partitions:
            raise self._build_error(", ".join(sorted(assignments.partitions)))

    def commit(self, commits: Mapping[TopicPartition, Commit]) -> None:
        """Commit for a group without members, all partitions in one request; ServiceRuns when it
        has members by now.
        """
        topic_partitions = [
            ClientTopicPartition(*tp, commit.intermediate_offset, commit.metadata or "")
            for tp, commit in commits.items()
        ]
        answers = self._ask(
            "committing",
            lambda client: (
                client.alter_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(self.name, topic_partitions)],
                    request_timeout=REQUEST_TIMEOUT_S,
                )[self.name]
                .result()
                .topic_partitions
            ),
        )
        for answer in answers:
            if answer.error is not None and answer.error.code() == KafkaError.UNKNOWN_MEMBER_ID:
                raise self._build_error("joined just now")
            if answer.error is not None:
                self._ask(
                    f"committing {answer.topic}-{answer.partition}",
                    lambda _, error=answer.error: _raise_error(error),  # type: ignore[misc]
                )

    def describe_abort(self, held_up: TopicPartition) -> str:
        """The commands to end a transaction that blocks this partition; it begins at the
        partition's last stable offset.
        """
        tool = (
            "kafka-transactions.sh --bootstrap-server"
            f" {self.settings.destination_cluster.bootstrap_servers}"
        )
        known = held_up.partition >= 0
        tp = (
            f"--topic {held_up.topic} --partition"
            f" {held_up.partition if known else '<the one of this group>'}"
        )
        begin: int | str = "<its CurrentTransactionStartOffset there>"
        if known:
            with suppress(ReoError):
                begin = partition_offsets.list_end_offsets(
                    self.coordinator.client, [held_up], committed_only=True
                )[held_up]
        timeout_ms = self.settings.deduplicator.transaction_timeout_ms
        return (
            f"A transaction that is only slow ends by its timeout ({timeout_ms / 1000:.0f} s for"
            " those of this copy, or what was set when it began, and up to 10 s more). One that is"
            " still there after that hangs:"
            f" look at its producer with `{tool} describe-producers {tp}`, end it with `{tool}"
            f" abort {tp} --start-offset {begin}`, then run `reo recover`: it finds the frontier"
            " from the data"
        )

    @property
    def _offsets_partition(self) -> int:
        """The partition of the offsets topic that has this group; -1 when the principal may not
        describe that topic.
        """
        metadata = self._ask(
            "describing the offsets topic",
            lambda client: read_metadata(client, REQUEST_TIMEOUT_S),
        )
        partitions = len(metadata.topics[OFFSETS_TOPIC].partitions)
        return find_offsets_partition(self.name, partitions) if partitions else -1

    def _describe(self) -> Any:
        return self._ask(
            "describing",
            lambda client: client.describe_consumer_groups(
                [self.name], request_timeout=REQUEST_TIMEOUT_S
            )[self.name].result(),
        )

    def _build_error(self, who: str) -> ServiceRuns:
        session_s = self.settings.deduplicator.session_timeout_ms / 1000
        return ServiceRuns(
            f"group {self.name} has members ({who}): stop the service first. A worker that was"
            f" killed counts for up to {session_s:.0f} s more (deduplicator.session_timeout_ms)"
        )

    def _ask(self, doing: str, ask: Callable[[AdminClient], Result]) -> Result:
        return self.coordinator.ask(f"{doing} of group {self.name}", ask)


def create_commit_reader(cluster: Cluster, settings: Settings, **more: Any) -> Consumer:
    """A reader for which the group's commits are those before any open transaction. Stage two
    always has one open under load, and a client of `create_reader`, which asks for stable offsets
    (KIP-447), would wait for it.
    """
    return create_reader(cluster, settings, **{"isolation.level": "read_uncommitted", **more})


def list_group_offsets(
    client: AdminClient, asked: ConsumerGroupTopicPartitions, require_stable: bool
) -> list[ClientTopicPartition]:
    """A group's offsets; KafkaException when its coordinator does not answer.

    The client (confluent-kafka 2.16) crashes with a segmentation fault when the answer is an error
    of the whole group: for example from a cluster that never had a group and is still creating
    its topic of offsets. So the group is described first, which raises the same error as an
    exception.
    """
    try:
        client.describe_consumer_groups([asked.group_id], request_timeout=REQUEST_TIMEOUT_S)[
            asked.group_id
        ].result()
    except KafkaException as refused:
        # its members subscribe to topics that this principal may not describe (KIP-848)
        if refused.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
    committed = client.list_consumer_group_offsets(
        [asked], require_stable=require_stable, request_timeout=REQUEST_TIMEOUT_S
    )[asked.group_id].result()
    return list(committed.topic_partitions)


def _raise_error(error: KafkaError) -> None:
    raise KafkaException(error)


def find_offsets_partition(group: str, partitions: int) -> int:
    """The partition of __consumer_offsets that has a group. Brokers choose it by the absolute value
    of Java's String.hashCode.
    """
    units = group.encode("utf-16-be")
    code = 0
    for position in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[position : position + 2], "big")) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    return 0 if signed == -(1 << 31) else abs(signed) % partitions
