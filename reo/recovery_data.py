"""The topics of one route on both clusters, as `reo recover` reads them: their ends, what alignment
needs, and the record that was copied last. It changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from common.errors import HangingTransaction, TopicMissing
from common.frontier import LastRecord
from common.kafka import partition_offsets, topics, visible_records
from common.kafka.clients import create_admin_client, create_reader
from common.kafka.consumer_group import Group
from common.records import compute_message_checksum
from common.routes import Route
from common.settings import Settings, destination_kind
from reo.compare.alignment import AlignmentInput, LastCopiedPair


class RouteData:
    """The clients, the topics of the route, and what is read of them."""

    def __init__(self, settings: Settings, route: Route, source: topics.Topic) -> None:
        self.settings = settings
        self.route = route
        self.source = source
        clusters = (self.settings.source_cluster, self.settings.destination_cluster)
        self.source_admin, self.destination_admin = (
            create_admin_client(cluster, self.settings) for cluster in clusters
        )
        self.source_reader, self.destination_reader = (
            create_reader(cluster, self.settings) for cluster in clusters
        )
        self.group = Group(self.settings)
        name = route.destination_topic
        destination_topics = topics.look_up(
            self.settings.destination_cluster,
            self.destination_admin,
            [name],
            self.settings.connect_timeout_s,
        )
        if name not in destination_topics:
            raise TopicMissing(
                f"the destination topic {name} does not exist: nothing was copied, so there is"
                " nothing to recover. Start the service"
            )
        self.destination = destination_topics[name]
        self.common_partitions = range(min(self.source.partitions, self.destination.partitions))

    def is_compacted(self) -> bool:
        """Whether compaction may have removed records of either topic."""
        return topics.is_compacted(
            self.source_admin, self.settings.source_cluster, self.source.name
        ) or topics.is_compacted(
            self.destination_admin, self.settings.destination_cluster, self.destination.name
        )

    def list_destination_ends(self) -> Mapping[int, int]:
        """The end offsets of the partitions; HangingTransaction while a transaction there is open:
        its records could still become visible.
        """
        topic_partitions = list(map(self.route.get_destination, self.common_partitions))
        ends = partition_offsets.list_end_offsets(self.destination_admin, topic_partitions)
        for tp, offset in partition_offsets.find_open_transactions(
            self.destination_admin, ends
        ).items():
            raise HangingTransaction(
                f"a transaction on {tp} is open from offset {offset} on."
                f" {self.group.describe_abort(tp)}"
            )
        return {tp.partition: end for tp, end in ends.items()}

    def describe_alignment(self, partition: int, source_partitions: int) -> AlignmentInput:
        """What alignment needs of a partition. Each reader begins at the same offset: when
        retention deletes it meanwhile, that is an error, and not another alignment.
        """
        source, destination = (
            self.route.get_source(partition),
            self.route.get_destination(partition),
        )
        source_begin = partition_offsets.list_beginning_offsets(self.source_admin, [source])
        destination_begin = partition_offsets.list_beginning_offsets(
            self.destination_admin, [destination]
        )
        source_end, destination_end = (
            partition_offsets.list_end_offsets(client, [tp], committed_only=True)
            for client, tp in ((self.source_admin, source), (self.destination_admin, destination))
        )
        return AlignmentInput(
            str(destination),
            lambda: visible_records.read_visible(self.source_reader, source_begin, ends=source_end),
            lambda: visible_records.read_visible(
                self.destination_reader, destination_begin, ends=destination_end
            ),
            source_begin[source] == 0,
            destination_begin[destination] == 0,
            self.settings.start.is_from_beginning(partition, added=partition >= source_partitions),
            destination_kind.get_zero_timestamp_ms(self.settings) or 0,
        )

    def read_last_record(
        self, partition: int, last_copied: LastCopiedPair | None
    ) -> LastRecord | None:
        """The source's record that was copied last; None when nothing was copied, or the source has
        deleted it.
        """
        if last_copied is None:
            return None
        tp, offset = self.route.get_source(partition), last_copied.source_offset
        record = visible_records.read_first_records(self.source_reader, {tp: offset}).get(tp)
        if record is None or record.offset() != offset:
            return None
        return LastRecord(record.offset(), compute_message_checksum(record))
