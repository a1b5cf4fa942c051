"""Several sources that share a destination topic: each record once, each source partition in its
order, even if stage two is killed; and who may join a destination that others have filled.
"""

from __future__ import annotations

import pytest

from tests.conftest import Start
from tests.harness.kafka import Clusters, until
from tests.harness.merged_topics import build_topics_environment, compare_merged_topics
from tests.harness.service import STOP_S, send_signal, stopped
from tests.harness.several_sources import (
    EACH,
    PARTITIONS,
    SOURCES,
    create_filled_sources,
    wait_for_source_frontiers,
    wait_until_group_is_empty,
    write_stage_one_records,
)

SMALL = {"deduplicator_transaction_records": "200"}


@pytest.mark.long
def test_three_sources_to_one_partition_while_stage_two_is_killed(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Two workers write three topics into one partition and are killed again and again: each record
    is there once, each source partition in its order.
    """
    sources = create_filled_sources(clusters, topic, SOURCES)
    rules = ",".join(f"{source}={topic}-all:1" for source in sources)
    service = start(
        topic,
        "deduplicator",
        environment=build_topics_environment(
            clusters, topic, rules, deduplicator_workers="2", **SMALL
        ),
    )
    wait_for_source_frontiers(service, sources)
    for place, source in enumerate(sources):
        before = clusters.destination.count_offsets(f"{topic}-all")
        write_stage_one_records(clusters, source, f"{topic}-all-{source}-proxy", place)
        for worker, more in ((0, 2000), (1, 4000)):
            until(
                lambda wanted=before + more: (
                    clusters.destination.count_offsets(f"{topic}-all") > wanted
                ),
                "records flow",
            )
            send_signal(
                until(
                    lambda worker=worker: service.find_pid("deduplicator", worker),
                    "the worker lives",
                )
            )
    until(
        lambda: (
            clusters.destination.count_offsets(f"{topic}-all") >= 3 * EACH
            and not compare_merged_topics(clusters, sources, f"{topic}-all", lambda *_: 1)
        ),
        "all is there",
    )

    def frontiers() -> float:
        return sum(service.metric("reo_frontier_offset", topic=source) for source in sources)

    # A killed worker's gauges are gone with it, and are there again when its successor has its
    # partitions; a counter of restarts moves when one is seen.
    until(
        lambda: service.metric("reo_stage_restarts_total", stage="deduplicator") >= 6,
        "the last kill is seen",
    )
    until(lambda: frontiers() == 3 * (EACH - PARTITIONS), "every frontier is at its source's end")
    service.stop()
    assert compare_merged_topics(clusters, sources, f"{topic}-all", lambda *_: 1) == []
    assert clusters.destination.partitions(f"{topic}-all") == 2


def test_a_source_that_joins_a_shared_destination(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Another source of a filled destination is new, and is copied; a route that is alone with what
    others have filled is not: exit code 22.
    """
    copy, rules = f"{topic}-all", [f"{topic}-{name}={topic}-all" for name in SOURCES]
    sources = create_filled_sources(clusters, topic, SOURCES, 100)
    for number in (2, 3):
        service = start(
            topic,
            "deduplicator",
            environment=build_topics_environment(clusters, topic, ",".join(rules[:number])),
        )
        wait_for_source_frontiers(service, sources[:number])
        for place in range(number) if number == 2 else [2]:
            write_stage_one_records(
                clusters, sources[place], f"{copy}-{sources[place]}-proxy", place, 100
            )
        until(
            lambda number=number: (
                clusters.destination.count_offsets(copy) >= 100 * number
                and not compare_merged_topics(
                    clusters, sources[:number], copy, lambda partition, _: partition
                )
            ),
            f"{number} sources are copied",
            STOP_S,
        )
        service.stop()
    wait_until_group_is_empty(clusters, topic)
    again = start(
        topic, "deduplicator", environment=build_topics_environment(clusters, topic, rules[0])
    )
    stopped(again, 22, "FrontierLost", f"no frontier for {copy}-proxy-", "reo recover")
    assert compare_merged_topics(clusters, sources, copy, lambda partition, _: partition) == []


def test_a_destination_that_gets_company_is_not_begun_again(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """A source that was copied alone would get another intermediate topic beside a second source:
    it is not taken for a new one, exit code 22.
    """
    sources, copy = create_filled_sources(clusters, topic, SOURCES[:2], 100), f"{topic}-all"
    service = start(
        topic,
        "deduplicator",
        environment=build_topics_environment(clusters, topic, f"{sources[0]}={copy}"),
    )
    wait_for_source_frontiers(service, sources[:1])
    write_stage_one_records(clusters, sources[0], f"{copy}-proxy", 0, 100)
    until(
        lambda: (
            clusters.destination.count_offsets(copy) >= 100
            and not clusters.differences(sources[0], copy)
        ),
        "it is copied",
        STOP_S,
    )
    service.stop()
    wait_until_group_is_empty(clusters, topic)
    both = start(
        topic,
        "deduplicator",
        environment=build_topics_environment(
            clusters, topic, ",".join(f"{source}={copy}" for source in sources)
        ),
    )
    stopped(both, 22, "FrontierLost", f"no frontier for {copy}-{sources[0]}-proxy-")
    assert clusters.differences(sources[0], copy) == []


def test_a_lost_frontier_of_a_shared_destination_is_a_stop(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """One source of three has no frontier though its intermediate topic was written to, then all
    have none: nothing tells how far they were, a stop.
    """
    everything, copy = create_filled_sources(clusters, topic, SOURCES, 100), f"{topic}-all"
    sources, third = everything[:2], everything[2]
    environment = build_topics_environment(
        clusters, topic, ",".join(f"{source}={copy}:0" for source in sources)
    )
    service = start(topic, "deduplicator", environment=environment)
    wait_for_source_frontiers(service, sources)
    for place, source in enumerate(sources):
        write_stage_one_records(clusters, source, f"{copy}-{source}-proxy", place, 100)
    until(
        lambda: (
            clusters.destination.count_offsets(copy) >= 200
            and not compare_merged_topics(clusters, sources, copy, lambda *_: 0)
        ),
        "both are copied",
        STOP_S,
    )
    service.stop()
    group = wait_until_group_is_empty(clusters, topic)
    write_stage_one_records(
        clusters, third, clusters.destination.create(f"{copy}-{third}-proxy", PARTITIONS), 2, 100
    )
    with_third = build_topics_environment(
        clusters, topic, ",".join(f"{source}={copy}:0" for source in everything)
    )
    stopped(
        start(topic, "deduplicator", environment=with_third),
        22,
        "FrontierLost",
        f"no frontier for {copy}-{third}-proxy-",
    )
    wait_until_group_is_empty(clusters, topic)
    clusters.destination.admin.delete_consumer_groups([group])[group].result()
    stopped(
        start(topic, "deduplicator", environment=environment),
        22,
        "FrontierLost",
        f"{copy}-0 has records",
        "Copy to a new topic",
    )
    assert compare_merged_topics(clusters, sources, copy, lambda *_: 0) == []
