"""A snapshot of a run: what both clusters answered, in one series of requests, about its source
topics, its intermediate topics and the group's frontiers.
"""

from __future__ import annotations

from dataclasses import dataclass

from common.kafka import intermediate_records, partition_offsets, topics
from common.kafka.partition_offsets import GroupCommit
from common.origin import Origin
from common.read_up_to_record import ReadUpTo
from common.routes import Route, TopicPartition
from common.settings import Settings
from common.source_candidates import get_request_timeout_s
from replicator.clients import Clients
from replicator.run import Plan


@dataclass(slots=True)
class ClusterSnapshot:
    """What both clusters answered to one series of requests. The `source_…` fields are by source
    partition, the others by intermediate partition.
    """

    sources: dict[Route, topics.Topic]
    source_beginnings: dict[TopicPartition, int]
    source_stable_ends: dict[TopicPartition, partition_offsets.EndOffset]
    """The last stable offsets: up to these the source can be read."""
    source_high_watermarks: dict[TopicPartition, int]
    """Between the last stable offset and this one are records of open transactions."""
    intermediate_ends: dict[TopicPartition, partition_offsets.EndOffset]
    newest: dict[TopicPartition, Origin | ReadUpTo]
    commits: dict[TopicPartition, GroupCommit]


def describe_sources(settings: Settings, clients: Clients, plan: Plan) -> dict[Route, topics.Topic]:
    """Every route with its source topic as it is now; TopicMissing when a source topic of this
    run is gone.
    """
    sources = topics.describe_sources(
        settings, clients.source_admin, get_request_timeout_s(settings)
    )
    topics.check_none_deleted(plan.sources, sources)
    return sources


def read_intermediate_ids(settings: Settings, clients: Clients, plan: Plan) -> dict[str, str]:
    """The ids of the run's intermediate topics, by name, of those that exist."""
    names = {tp.topic for tp in plan.start_offsets}
    described = topics.look_up(settings.destination_cluster, clients.destination_admin, names)
    return {name: topic.topic_id for name, topic in described.items()}


def take_snapshot(
    settings: Settings, clients: Clients, plan: Plan, commits: dict[TopicPartition, GroupCommit]
) -> ClusterSnapshot:
    """Ask both clusters; ClusterUnreachable when one does not answer, TopicMissing when a
    source topic is gone.
    """
    client, at_source, timeout_s = (
        clients.source_admin,
        plan.map_source_partitions().values(),
        get_request_timeout_s(settings),
    )
    sources = describe_sources(settings, clients, plan)
    beginnings = partition_offsets.list_beginning_offsets(
        clients.destination_admin, plan.start_offsets
    )
    ends = partition_offsets.list_stable_ends(clients.destination_admin, plan.start_offsets)
    newest = intermediate_records.read_last_origins(
        clients.frontier_reader,
        {tp: (beginnings[tp], end.offset) for tp, end in ends.items()},
    )
    # before the stable ends: records written in between are no open transaction
    high_watermarks = partition_offsets.list_end_offsets(client, at_source, timeout_s=timeout_s)
    return ClusterSnapshot(
        sources,
        partition_offsets.list_beginning_offsets(client, at_source, timeout_s),
        partition_offsets.list_stable_ends(client, at_source, timeout_s),
        high_watermarks,
        ends,
        newest,
        commits,
    )
