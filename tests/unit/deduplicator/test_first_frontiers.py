"""First frontiers without clusters: what keeps a source from being copied a second time. On real
brokers: `tests/e2e/test_start.py`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from common.envelope import compute_identity
from common.errors import FrontierLost, SettingsInvalid
from common.frontier import Frontier, LastRecord
from common.kafka import partition_offsets, source_topics
from common.kafka.partition_offsets import GroupCommit
from common.kafka.topics import Topic
from common.routes import Route, TopicPartition
from common.settings import load
from deduplicator.frontiers import start as module
from deduplicator.frontiers.found_partition import ClusterState, FoundPartition
from deduplicator.frontiers.start import PartitionStarter

ORDERS = Topic("orders", "id of orders", 1, "cluster b")
DESTINATION = Topic("all", "id of all", 1, "destination")
NEW = TopicPartition("all-orders-proxy", 0)
SHARED = {
    "REO_SOURCE_BOOTSTRAP_SERVERS": "a:1",
    "REO_TOPICS": "orders=all,invoices=all",
    "REO_APPLICATION": "reo-all",
    "REO_DESTINATION_BOOTSTRAP_SERVERS": "d:1",
}
FAILOVER = {"REO_SOURCE_BOOTSTRAP_SERVERS": "b:1;c:1", "REO_SOURCE_MODE": "failover"}


def make_frontier(source_identity: str, destination_topic_id: str = "id of all") -> Frontier:
    """Of a partition of which records were copied."""
    return Frontier(9, 5, source_identity, 1, destination_topic_id, 9, 10)


def create_starter(
    values: dict[str, str], found: dict[TopicPartition, Frontier]
) -> PartitionStarter:
    """With these frontiers in the group."""
    settings = load(SHARED | values)
    consumer_group = SimpleNamespace(
        admin=None,
        group=SimpleNamespace(list_frontiers=lambda: found),
        list_partitions=lambda names: [
            TopicPartition(name, partition) for name in names for partition in range(4)
        ],
    )
    return PartitionStarter(
        settings,
        {route.intermediate_topic: route for route in settings.build_routes()},
        cast(Any, consumer_group),
        cast(
            Any,
            SimpleNamespace(
                list_started_topics=set, get_end_offsets=lambda outputs: dict.fromkeys(outputs, 0)
            ),
        ),
    )


def find_partition(
    starter: PartitionStarter,
    tp: TopicPartition,
    commits: Mapping[TopicPartition, GroupCommit] = MappingProxyType({}),
) -> FoundPartition:
    """What a start finds of a partition whose destination is DESTINATION and has records."""
    found = FoundPartition(starter, tp, commits.get(tp), DESTINATION)
    ends = dict.fromkeys(found.outputs, 7)
    found.cluster = ClusterState(
        commits, ends, cast(Any, None), {found.route: ORDERS}, starter, [tp]
    )
    return found


@pytest.mark.parametrize(
    ("values", "topic", "identity", "is_from_others"),
    [
        pytest.param({}, "all-proxy", ORDERS.identity, False, id="was alone"),
        pytest.param({}, "all-proxy", "another", True, id="another was alone"),
        pytest.param(
            FAILOVER, "all-proxy", compute_identity("", "orders", ""), False, id="with failover"
        ),
        pytest.param(
            FAILOVER,
            "all-proxy",
            compute_identity("cluster a", "orders", "first id"),
            False,
            id="failover from a cluster that is no candidate any more",
        ),
        pytest.param(
            FAILOVER,
            "all-invoices-proxy",
            compute_identity("", "invoices", ""),
            True,
            id="others with failover",
        ),
        pytest.param(
            FAILOVER,
            "all-invoices-proxy",
            compute_identity("cluster a", "invoices", "first id"),
            True,
            id="others from a cluster that is no candidate any more",
        ),
    ],
)
def test_a_route_that_gets_company_is_not_copied_again(
    monkeypatch: pytest.MonkeyPatch,
    values: dict[str, str],
    topic: str,
    identity: str,
    is_from_others: bool,
) -> None:
    """Its intermediate topic has another name now, and the records are under the old one. With
    failover the identity is made of the name, or is that of the cluster that was copied before.
    """
    starter = create_starter(values, {TopicPartition(topic, 0): make_frontier(identity)})
    monkeypatch.setattr(partition_offsets, "list_end_offsets", lambda _, tps: dict.fromkeys(tps, 0))
    assert find_partition(starter, NEW).is_from_other_sources is is_from_others


COPIED = LastRecord(9, "1d" * 8, False)
OTHERS = {
    TopicPartition("all-invoices-proxy", 0): make_frontier(
        compute_identity("cluster a", "invoices", "id")
    )
}


@pytest.mark.parametrize(
    ("partition", "last_record", "more", "is_from_others"),
    [
        pytest.param(0, COPIED, OTHERS, False, id="lost"),
        pytest.param(1, COPIED, OTHERS, True, id="added later"),
        pytest.param(0, None, OTHERS, True, id="no run yet"),
        pytest.param(0, None, {}, False, id="the records can only be this topic's"),
        pytest.param(
            0,
            COPIED,
            OTHERS | {NEW: make_frontier(ORDERS.identity, "deleted")},
            True,
            id="of a destination that was recreated",
        ),
    ],
)
def test_a_frontier_that_is_lost_is_told_from_a_new_one_by_its_topics_others(
    monkeypatch: pytest.MonkeyPatch,
    partition: int,
    last_record: LastRecord | None,
    more: dict[TopicPartition, Frontier],
    is_from_others: bool,
) -> None:
    """A run begins only when every partition has a frontier. The intermediate topic was created
    again, and another worker has committed those again that it knew.
    """
    own = replace(make_frontier(ORDERS.identity), last_record=last_record)
    starter = create_starter({}, {TopicPartition(NEW.topic, 7): own, **more})
    monkeypatch.setattr(partition_offsets, "list_end_offsets", lambda _, tps: dict.fromkeys(tps, 0))
    found = find_partition(starter, TopicPartition(NEW.topic, partition))
    assert found.is_from_other_sources is is_from_others


@pytest.mark.parametrize(
    ("destination_topic_id", "missing", "is_checked"),
    [
        pytest.param("id of all", 1, False, id="the present one"),
        pytest.param("deleted", 1, True, id="a deleted one"),
        pytest.param("", 1, False, id="another worker's in a store of the user's own"),
        pytest.param("", 0, True, id="deleted in a store"),
    ],
)
def test_start_offsets_are_checked_again_for_a_new_destination(
    monkeypatch: pytest.MonkeyPatch, destination_topic_id: str, missing: int, is_checked: bool
) -> None:
    """The destination topic was deleted and created again, and `source.start` is still set: the
    frontier of the deleted one is not where partition 0 begins. Partition 1 has none yet.
    """
    starter = create_starter({"REO_TOPICS": "orders=all", "REO_SOURCE_START": "0=120"}, {})
    source = Topic("orders", "id of orders", 2, "cluster b")

    def describe_sources(*_: object) -> dict[Route, Topic]:
        return {starter.routes["all-proxy"]: source}

    def list_bounds(_: object, tps: Any) -> tuple[dict[TopicPartition, int], ...]:
        return dict.fromkeys(tps, 500), dict.fromkeys(tps, 900)

    monkeypatch.setattr(module, "create_admin_client", lambda *_: None)
    monkeypatch.setattr(source_topics, "describe_sources", describe_sources)
    monkeypatch.setattr(partition_offsets, "list_bounds", list_bounds)
    commits = {
        TopicPartition("all-proxy", 0): GroupCommit(
            9, make_frontier(source.identity, destination_topic_id)
        )
    }
    with (
        pytest.raises(SettingsInvalid, match="offset 120 of orders-0, which has 500 to 900")
        if is_checked
        else contextlib.nullcontext()
    ):
        starter.read_cluster_state(
            [FoundPartition(starter, TopicPartition("all-proxy", missing), None, DESTINATION)],
            commits,
        )


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [({}, 0), ({0: 7 << 20 | 9}, (7 << 20 | 9) + 1), ({0: 5, 1: 0, 3: 12}, 13)],
    ids=["the first copy", "a partition that is added", "a destination that was recreated"],
)
def test_no_run_of_before_is_believed(
    monkeypatch: pytest.MonkeyPatch, epochs: dict[int, int], expected: int
) -> None:
    """What an earlier run has written was for another copy: the epoch is above those of all
    frontiers of the topic, its own former one among them. Another topic's are its own business.
    """
    starter = create_starter({}, {})
    commits = {
        TopicPartition(NEW.topic, partition): GroupCommit(
            9, replace(make_frontier(ORDERS.identity, "deleted"), epoch=epoch)
        )
        for partition, epoch in epochs.items()
    } | {
        TopicPartition("all-invoices-proxy", 0): GroupCommit(
            9, replace(make_frontier("another"), epoch=99 << 20)
        )
    }
    found = find_partition(starter, NEW._replace(partition=3), commits)
    found.route = replace(found.route, shared=False)
    found.cluster = replace(
        found.cluster, ends={found.route.get_destination(3): 7}, sources={found.route: ORDERS}
    )
    partition = starter.build_first_frontier(found, 120)
    frontier = partition.frontier
    former = commits.get(found.tp)
    assert partition.replaced == (former and former.frontier)
    assert (frontier.source_offset, frontier.epoch, frontier.gap) == (119, expected, None)
    assert (frontier.destination_topic_id, frontier.source_identity) == (
        DESTINATION.topic_id,
        ORDERS.identity,
    )
    assert (frontier.destination_known, frontier.sent, frontier.is_known_written) == (6, 0, False)


def test_what_a_lost_frontier_can_come_from() -> None:
    """A changed `application` first, and what appending does to a copy."""
    starter = create_starter({}, {})
    found = find_partition(starter, NEW)
    with pytest.raises(
        FrontierLost,
        match=(
            r"group reo-all has no frontier for all-orders-proxy-0: `application` was changed \("
            r".* writes all source records .* each record is there twice then$"
        ),
    ):
        raise found._build_lost_error()


def test_a_copy_begins_at_the_end_of_the_intermediate_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is there was written for another one."""
    starter = create_starter({}, {})
    found = find_partition(starter, NEW)
    found.cluster = replace(found.cluster, ends=dict.fromkeys(found.outputs, 0))
    monkeypatch.setattr(starter, "read_cluster_state", lambda *_: None)
    monkeypatch.setattr(
        module, "find_first_source_offsets", lambda *given: dict.fromkeys(given[2], 120)
    )
    monkeypatch.setattr(
        partition_offsets, "list_end_offsets", lambda _, tps: dict.fromkeys(tps, 17)
    )
    (partition,) = starter._create_first_frontiers([found], {})
    assert (partition.next_offset, partition.frontier.source_offset) == (17, 119)
    assert partition.is_uncommitted
