"""Requests about consumer groups with the admin client: their commits and members, and commits for
them. `ConsumerGroup` is any group, `Group` is stage two's.

The stages read frontiers with a consumer (`partition_offsets.read_commits`). It waits silently for
offsets of an open transaction and ends with a plain timeout. The admin client answers at once that
offsets are unstable, also returns commits that reo did not write, and can commit metadata. Its
commit is an OffsetCommit without a member. A broker accepts that only for a group without members,
in both protocols, so it refuses it while stage two runs. (All measured; an offset in a transaction
without a member is not refused.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple, TypeVar

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
from common.errors import ClusterUnreachable, HangingTransaction, ReoError, ServiceRuns
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
    """What a group has committed for a partition, whoever wrote it: the next offset to read, and
    the metadata. Stage two has its frontier there, Kafka Streams its stream time (KAFKA-7994).
    """

    offset: int
    metadata: str = ""


class Members(NamedTuple):
    """The members of a group, and how many partitions each has. `state` is Kafka's group state,
    "dead" for a group that does not exist.
    """

    state: str
    partitions: dict[str, int]


class ConsumerGroup(ABC):
    """Any group at a cluster, by admin client: nothing joins it. `errors_to_retry` are those after
    which a request is sent again, for a bounded time.
    """

    errors_to_retry: ClassVar[tuple[type[ReoError], ...]] = (ClusterUnreachable,)

    def __init__(self, coordinator: CoordinatorClient, name: str) -> None:
        self.coordinator = coordinator
        self.cluster = coordinator.cluster
        self.name = name

    def ask(self, doing: str, request: Callable[[AdminClient], Result]) -> Result:
        """Send a request to the group's coordinator."""
        return self.coordinator.ask(
            f"{doing} of group {self.name} at the {self.cluster.name} cluster",
            request,
            self.errors_to_retry,
        )

    def list_commits(
        self,
        topic_partitions: Iterable[TopicPartition] | None = None,
        require_stable: bool = True,
    ) -> dict[TopicPartition, Commit]:
        """What is committed, for these partitions or for all; a partition without a commit is left
        out. HangingTransaction while offsets are undecided (KIP-447).

        Without `require_stable`: the offsets before any open transaction, whether it commits or
        aborts.
        """
        asked = ConsumerGroupTopicPartitions(
            self.name,
            topic_partitions
            if topic_partitions is None
            else [ClientTopicPartition(*tp) for tp in topic_partitions],
        )
        if asked.topic_partitions == []:
            return {}

        def request(client: AdminClient) -> dict[TopicPartition, Commit]:
            commits = {}
            for answer in list_group_offsets(client, asked, require_stable):
                if answer.error is not None:
                    raise self.build_undecided_error(answer)
                if answer.offset >= 0:
                    tp = TopicPartition(answer.topic, answer.partition)
                    commits[tp] = Commit(answer.offset, answer.metadata or "")
            return commits

        return self.ask("reading the offsets", request)

    def commit(self, commits: Mapping[TopicPartition, Commit]) -> None:
        """Commit for a group without members; the error of `build_busy_error` when it has members
        by now. Of more than COMMIT_PARTITIONS_MAX partitions some can be committed all the same.
        """
        self.ask("committing the offsets", lambda client: self.commit_once(client, commits))

    def commit_once(self, client: AdminClient, commits: Mapping[TopicPartition, Commit]) -> None:
        """As `commit`, with a client of the caller's."""
        offsets = [ClientTopicPartition(*tp, *commit) for tp, commit in commits.items()]
        for batch in partition_offsets.split_commit(offsets):
            answers = client.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(self.name, list(batch))],
                request_timeout=REQUEST_TIMEOUT_S,
            )[self.name]
            for answer in answers.result().topic_partitions:
                if answer.error is None:
                    continue
                if answer.error.code() == KafkaError.UNKNOWN_MEMBER_ID:
                    raise self.build_busy_error()
                raise KafkaException(answer.error)

    def describe(self) -> Any:
        """See `describe_group`."""
        return self.ask("describing", lambda client: describe_group(client, self.name))

    def build_undecided_error(self, answer: ClientTopicPartition) -> Exception:
        """The error for an offset that an open transaction may replace."""
        return KafkaException(answer.error)

    @abstractmethod
    def build_busy_error(self) -> ReoError:
        """The error for a group that has members, and takes no offsets from outside."""


class Group(ConsumerGroup):
    """The consumer group of one service, on its intermediate topics."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            CoordinatorClient(settings.destination_cluster, settings), settings.application
        )
        self.settings = settings

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
        decoded = {}
        for tp, commit in self.list_commits(require_stable=False).items():
            with suppress(ValueError):
                decoded[tp] = frontiers.decode(commit.metadata)
        return decoded

    def list_assigned(self, member_id: str | None = None) -> set[TopicPartition] | None:
        """The partitions that its members have, or this one of them; None while the group is
        rebalancing.
        """
        description = self.describe()
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
        description = self.describe()
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
            raise self.build_busy_error(", ".join(sorted(assignments.partitions)))

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
        metadata = self.ask(
            "finding the coordinator", lambda client: read_metadata(client, REQUEST_TIMEOUT_S)
        )
        partitions = len(metadata.topics[OFFSETS_TOPIC].partitions)
        return find_offsets_partition(self.name, partitions) if partitions else -1

    def build_undecided_error(self, answer: ClientTopicPartition) -> Exception:
        """With the commands to run."""
        assert answer.error is not None
        hanging = TopicPartition(OFFSETS_TOPIC, self._offsets_partition)
        return HangingTransaction(
            f"the offsets of group {self.name} on {answer.topic}-{answer.partition} are undecided"
            f" ({answer.error.name()}): a transaction that sent them is neither committed nor"
            f" aborted. {self.describe_abort(hanging)}. Other groups share that partition: abort"
            " only what describe-producers shows to be older than its timeout"
        )

    def build_busy_error(self, who: str = "joined just now") -> ServiceRuns:
        """Stage two is to be stopped."""
        session_s = self.settings.deduplicator.session_timeout_ms / 1000
        return ServiceRuns(
            f"group {self.name} has members ({who}): stop the service first. A worker that was"
            f" killed counts for up to {session_s:.0f} s more (deduplicator.session_timeout_ms)"
        )


def create_commit_reader(cluster: Cluster, settings: Settings, **more: Any) -> Consumer:
    """A reader for which the group's commits are those before any open transaction. Stage two
    always has one open under load, and a client of `create_reader`, which asks for stable offsets
    (KIP-447), would wait for it.
    """
    return create_reader(cluster, settings, **{"isolation.level": "read_uncommitted", **more})


def describe_group(client: AdminClient, name: str) -> Any:
    """A group's state and members, as the client has them."""
    return client.describe_consumer_groups([name], request_timeout=REQUEST_TIMEOUT_S)[name].result()


def try_to_describe(client: AdminClient, name: str) -> Any:
    """As `describe_group`; None when members subscribe to topics that this principal may not
    describe (KIP-848).
    """
    try:
        return describe_group(client, name)
    except KafkaException as refused:
        if refused.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
        return None


def list_group_offsets(
    client: AdminClient, asked: ConsumerGroupTopicPartitions, require_stable: bool
) -> list[ClientTopicPartition]:
    """A group's offsets; KafkaException when its coordinator does not answer.

    The client (confluent-kafka 2.16) crashes with a segmentation fault when the answer is an error
    of the whole group: for example from a cluster that never had a group and is still creating
    its topic of offsets. So the group is described first, which raises the same error as an
    exception.
    """
    try_to_describe(client, asked.group_id)
    committed = client.list_consumer_group_offsets(
        [asked], require_stable=require_stable, request_timeout=REQUEST_TIMEOUT_S
    )[asked.group_id].result()
    return list(committed.topic_partitions)


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
