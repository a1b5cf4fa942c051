"""Two services with the same application and instance, by mistake: Kafka lets only one of them
work.
"""

from __future__ import annotations

from tests.conftest import Start
from tests.harness.kafka import COPY_S, Clusters, make_records, until
from tests.harness.service import stopped

QUICK = {"intermediate_consumer_options_heartbeat_interval_ms": "500"}
"""A member learns of its successor with its next heartbeat."""


def test_one_of_two_services_with_one_name_ends(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """They do not fence each other for ever: one ends with the exit code of that, names the name
    that both have and the other's host, and the other one works.
    """
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(10), 1))
    services = [start(topic, "deduplicator", **QUICK)]
    until(lambda: services[0].http_get("/readyz")[0] == 200, "the first one works", COPY_S)
    services.append(start(topic, "deduplicator", **QUICK))
    until(lambda: any(one.process.poll() is not None for one in services), "one ends", COPY_S)
    (ended,) = [one for one in services if one.process.poll() is not None]
    (other,) = [one for one in services if one is not ended]
    stopped(ended, 3, "Fenced", f"application reo-{topic} and instance test runs", "`instance`")
    assert "instance test runs on 127.0.0.1" in ended.log
    until(lambda: other.http_get("/readyz")[0] == 200, "the other one works", COPY_S)
    other.stop()
