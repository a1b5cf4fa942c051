"""One topic that two services divide by ranges of its partitions: together they make one exact
copy, and neither does what the other has to do.
"""

from __future__ import annotations

import json

from tests.conftest import Start
from tests.harness.commands import reo_with
from tests.harness.kafka import COPY_S, Clusters, make_records, until
from tests.harness.merged_topics import build_topics_environment
from tests.harness.recovery import delete_group
from tests.harness.service import Service, send_signal, stopped

PARTITIONS = 6
RECORDS = 12_000
FIRST, SECOND = "[0-2]", "[3-5]"


def build_environment(clusters: Clusters, topic: str, which: str, **more: str) -> dict[str, str]:
    """Of a service of its own for this range."""
    return build_topics_environment(
        clusters, f"reo-{topic}-{which.strip('[]')}", f"{topic}{which}", **more
    )


def find_frontiers(text: str) -> list[tuple[int, int]]:
    """By partition, in a status."""
    return [(row["partition"], row["frontier"]) for row in json.loads(text)["partitions"]]


def compare_reports(
    clusters: Clusters, topic: str, which: str, service: Service, own: list[int]
) -> None:
    """What the service and each command say is about its own partitions; the service stops, and
    `reo recover` finds the frontiers again.
    """
    ends, environment = (
        clusters.source.end_offsets(topic),
        build_environment(clusters, topic, which),
    )
    frontiers = [(partition, ends[partition] - 1) for partition in own]
    until(
        lambda: find_frontiers(service.http_get("/status")[1]) == frontiers,
        f"the service says the frontiers of {which}",
    )
    assert find_frontiers(reo_with(environment, "status", "--json").stdout) == frontiers
    service.stop()
    verified = json.loads(reo_with(environment, "verify", "--json").stdout)
    assert [row["partition"] for row in verified["partitions"]] == own
    delete_group(clusters.destination, f"{topic}-{which.strip('[]')}")
    recovered = json.loads(reo_with(environment, "recover", "--apply", "--json").stdout)
    found = [(row["partition"], row["write"]["f"]) for row in recovered["partitions"]]
    assert found == frontiers


def test_two_services_divide_a_topic(clusters: Clusters, topic: str, start: Start) -> None:
    """Both run while records are written; of one stage two is killed, of the other stage one. The
    whole copy is exact, each service knows of its own partitions only, and a third one that would
    copy some of them is refused before it changes anything.
    """
    clusters.source.create(topic, PARTITIONS)
    clusters.source.write(topic, make_records(range(RECORDS), PARTITIONS))
    more = {"deduplicator_transaction_records": "500"}
    services = {
        which: start(topic, environment=build_environment(clusters, topic, which, **more))
        for which in (FIRST, SECOND)
    }
    for which, stage in ((FIRST, "deduplicator"), (SECOND, "replicator")):
        service = services[which]
        until(
            lambda service=service: service.metric("reo_records_out_total", stage="deduplicator"),
            f"{which} copies",
            COPY_S,
        )
        send_signal(until(lambda s=service, n=stage: s.find_pid(n), f"{stage} of {which} lives"))
    clusters.source.write(topic, make_records(range(RECORDS, 2 * RECORDS), PARTITIONS))
    last: list[str] = []

    def is_exact() -> bool:
        assert not [which for which, service in services.items() if service.process.poll()]
        if clusters.destination.count_offsets(topic) >= 2 * RECORDS:
            last[:] = clusters.differences(topic)
            return not last
        return False

    until(is_exact, "the copy is exact", COPY_S, last)
    for which in (f"{topic}[2-3]", f"{topic}[5-]", topic):
        environment = build_topics_environment(clusters, f"{topic}-third", which)
        stopped(start(topic, environment=environment), 13, "TopicsUnfit", f"{topic}-proxy-")
    assert clusters.destination.partitions(f"{topic}-proxy-2-to-3") == 0
    assert clusters.destination.partitions(f"{topic}-proxy") == 0
    for which, own in ((FIRST, [0, 1, 2]), (SECOND, [3, 4, 5])):
        between = f"{topic}-proxy-{own[0]}-to-{own[-1]}"
        assert clusters.destination.partitions(between) == len(own)
        compare_reports(clusters, topic, which, services[which], own)
    assert clusters.differences(topic) == []
