"""A topic that one service has copied is divided between two: nothing is copied again, and nothing
is left out. Stage two alone, with envelopes written by hand.
"""

from __future__ import annotations

import json

from tests.conftest import Start
from tests.harness.commands import reo_with
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.merged_topics import build_topics_environment
from tests.harness.recovery import FIRST_RECORDS, PARTITIONS, STOP_S, copy_and_stop
from tests.harness.service import stopped


def test_a_copied_topic_is_divided(clusters: Clusters, topic: str, start: Start) -> None:
    """While its intermediate topic is there, each part is refused, also by `reo check`. Without it
    a start finds no frontier, and `reo recover` those of the part.
    """
    records = make_records(range(FIRST_RECORDS), PARTITIONS)
    copy_and_stop(clusters, topic, start, records)
    parts = {
        partition: build_topics_environment(
            clusters, f"{topic}-{partition}", f"{topic}[{partition}-{partition}]"
        )
        for partition in range(PARTITIONS)
    }
    for environment in parts.values():
        stopped(
            start(topic, "deduplicator", environment=environment), 13, "TopicsUnfit", "-proxy is"
        )
        reo_with(environment, "check", exit_code=13)
    clusters.destination.delete(f"{topic}-proxy")
    for partition, environment in parts.items():
        lost = f"{topic}-{partition} has records"
        stopped(start(topic, "deduplicator", environment=environment), 22, "FrontierLost", lost)
        recovered = json.loads(reo_with(environment, "recover", "--apply", "--json").stdout)
        last = FIRST_RECORDS // PARTITIONS - 1
        assert [(row["partition"], row["write"]["f"]) for row in recovered["partitions"]] == [
            (partition, last)
        ]
        service = start(topic, "deduplicator", environment=environment)
        until(
            lambda service=service, number=str(partition), last=last: (
                service.metric("reo_frontier_offset", topic=topic, partition=number) == last
            ),
            f"the service of partition {partition} goes on",
        )
        verified = json.loads(reo_with(environment, "verify", "--json").stdout)
        assert [row["partition"] for row in verified["partitions"]] == [partition]
    clusters.wait_for_copy(topic, FIRST_RECORDS, STOP_S)
