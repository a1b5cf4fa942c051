"""The record of a move: `reo cutover run` writes it, in the end, into the frontiers of the topics
(`common.frontier.Move`), and `reo cutover back` removes it.

The frontier then says where the copy has ended on both sides: the source's end, and the destination
offset after the last copied record. Stage two does not start a partition that has a record, and
never writes one. It lives as long as the group's offsets: seven days after the last member has
left, by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from common import clock
from common.errors import HangingTransaction, StageFailed
from common.frontier import Move
from common.kafka import partition_offsets, permissions, source_topics, topics
from common.kafka.client_errors import translate
from common.kafka.clients import create_admin_client, create_idempotent_producer, create_reader
from common.kafka.cluster_requests import REQUEST_TIMEOUT_S
from common.kafka.consumer_group import Group
from common.kafka.partition_offsets import GroupCommit
from common.kafka.topics import Topic
from common.route_states import describe_user
from common.routes import Route, TopicPartition
from common.settings import Settings
from deduplicator.frontiers.frontier_check import check_destination
from deduplicator.frontiers.frontier_store import reset_uncounted

POLL_S = 0.05


class MoveRecord:
    """Of these sources, whose routes are one to one. No service copies them while it is written.
    AccessRefused without the right to write it.
    """

    def __init__(self, settings: Settings, sources: Mapping[Route, Topic]) -> None:
        self.settings = settings
        self.sources = sources
        self.group = Group(settings)
        self.admin = create_admin_client(settings.destination_cluster, settings)
        self.producer = create_idempotent_producer(
            settings.destination_cluster,
            settings,
            "cutover",
            **{"transactional.id": f"{settings.application}-cutover"},
        )
        with permissions.explain_refusals(settings, "run deduplicator"):
            self._call("init_transactions", REQUEST_TIMEOUT_S)

    def write(self, source_ends: Mapping[TopicPartition, int]) -> None:
        """Everything up to these ends is copied, and compared."""
        commits = self._read_commits()
        routes = {route.intermediate_topic: route for route in self.sources}
        outputs = {
            routes[tp.topic].get_destination(tp.partition): commit.frontier
            for tp, commit in commits.items()
        }
        # up to an open transaction: that is somebody else's, whose records come after the copy's
        begins, ends = partition_offsets.list_bounds(self.admin, outputs, committed_only=True)
        compacted = {
            name
            for name in {tp.topic for tp in outputs}
            if topics.is_compacted(self.admin, self.settings.destination_cluster, name)
        }
        states, surplus = check_destination(
            create_reader(self.settings.destination_cluster, self.settings),
            reset_uncounted(outputs, ends),
            begins,
            ends,
            compacted,
        )
        at_ms, by = round(clock.time() * 1000), describe_user()
        moved = {}
        for tp, commit in commits.items():
            route = routes[tp.topic]
            output = route.get_destination(tp.partition)
            others = surplus.get(output)
            frontier = replace(
                commit.frontier,
                source_offset=source_ends[route.get_source(tp.partition)] - 1,
                destination_known=states[output].known_offset,
                sent=0,
                is_known_written=states[output].is_known_written,
                move=Move(at_ms, by, others.records[0][0] if others else ends[output]),
            )
            moved[tp] = replace(commit, frontier=frontier)
        self._commit(moved)

    def remove(self) -> None:
        """The copy can go on from where it has ended."""
        self._commit(
            {
                tp: replace(commit, frontier=replace(commit.frontier, move=None))
                for tp, commit in self._read_commits().items()
            }
        )

    def _read_commits(self) -> dict[TopicPartition, GroupCommit]:
        """Waits for the markers of a transaction whose end is answered."""
        deadline = clock.monotonic() + REQUEST_TIMEOUT_S
        while True:
            try:
                return self.group.read_commits(
                    source_topics.list_intermediate_partitions(self.sources), require_stable=True
                )
            except HangingTransaction:
                if clock.monotonic() > deadline:
                    raise
                clock.sleep(POLL_S)

    def _commit(self, commits: Mapping[TopicPartition, GroupCommit]) -> None:
        """In one transaction: there a broker asks for no member, also while members of the group
        copy other topics. StageFailed when the group has something else afterwards.
        """
        reader = create_reader(self.settings.destination_cluster, self.settings)
        offsets = [
            ClientTopicPartition(*tp, commit.intermediate_offset, commit.frontier.encode())
            for tp, commit in commits.items()
        ]
        metadata = reader.consumer_group_metadata()
        self._call("begin_transaction")
        for batch in partition_offsets.split_commit(offsets):
            self._call("send_offsets_to_transaction", batch, metadata, REQUEST_TIMEOUT_S)
        self._call("commit_transaction", REQUEST_TIMEOUT_S)
        if self._read_commits() != commits:
            raise StageFailed(
                f"group {self.group.name} does not have the offsets that were committed: another"
                " client commits with it. Run the command again"
            )

    def _call(self, method: str, *arguments: object) -> None:
        try:
            getattr(self.producer, method)(*arguments)
        except KafkaException as failed:
            raise translate(
                failed.args[0], f"writing the record of the move of group {self.group.name}"
            ) from None
