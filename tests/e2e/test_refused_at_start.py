"""What is wrong before anything is copied ends the start: one clear error that names it, the
documented exit code, and nothing is made or written.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conftest import Start
from tests.harness.kafka import Clusters, make_records, until
from tests.harness.postgresql import STORE
from tests.harness.service import STOP_S, Service, deaf_address, stopped
from tests.harness.to_tables import PARTITIONS, WRONG

BRIEF = {"connect_timeout_s": "2"}


def wait_until_named(begin: Callable[[], Service], address: str) -> Service:
    """A service whose error names this. In so short a timeout another cluster, which lives, can be
    late too, and is named in its place.
    """

    def is_named() -> Service | None:
        service = begin()
        service.wait_for_exit()
        return service if any(address in line for line in service.errors) else None

    return until(is_named, f"a start names {address}")


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_wrong_address_is_named(clusters: Clusters, topic: str, start: Start, side: str) -> None:
    """A cluster that does not answer ends the start within its timeout, with the side and the
    address in the error.
    """
    clusters.source.create(topic, 1)
    address = deaf_address()
    service = wait_until_named(
        lambda: start(topic, **BRIEF, **{f"{side}_bootstrap_servers": address}), address
    )
    stopped(service, 10, "ClusterUnreachable", f"the {side} cluster", address)


def test_a_missing_source_topic_is_named(clusters: Clusters, topic: str, start: Start) -> None:
    """No source topic: the error names it, and nothing is created on either side."""
    stopped(start(topic), 11, "TopicMissing", topic)
    assert (
        clusters.source.partitions(topic)
        == clusters.destination.partitions(topic)
        == clusters.destination.partitions(f"{topic}-proxy")
        == 0
    )


def test_a_destination_with_fewer_partitions_is_refused(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Two partitions cannot hold three; the destination is left as it is."""
    clusters.source.create(topic, 3)
    clusters.destination.create(topic, 2)
    stopped(start(topic), 13, "TopicsUnfit", topic, "2 partitions", "3")
    assert clusters.destination.partitions(topic) == 2


def test_a_destination_that_replaces_timestamps_is_refused(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """With LogAppendTime at the destination no timestamp would survive."""
    clusters.source.create(topic, 1)
    clusters.destination.create(topic, 1, message_timestamp_type="LogAppendTime")
    stopped(start(topic), 13, "TopicsUnfit", topic, "LogAppendTime")
    assert clusters.destination.partitions(f"{topic}-proxy") == 0, "nothing was created"


def test_an_intermediate_topic_that_takes_less_than_the_source_is_refused(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """The largest record that the source can hold has to fit, alone in an envelope."""
    clusters.source.create(topic, 1)
    clusters.destination.create(f"{topic}-proxy", 1, max_message_bytes="100000")
    stopped(start(topic), 13, "TopicsUnfit", f"{topic}-proxy", "100000", "1052684")


def test_a_cycle_is_refused(clusters: Clusters, topic: str, start: Start) -> None:
    """The same topic of the same cluster, although the address is written in another way, is not
    copied into itself.
    """
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(10), 1))
    other_spelling = clusters.source.address.replace("127.0.0.1", "localhost")
    stopped(start(topic, destination_bootstrap_servers=other_spelling), 14, "Cycle", topic)
    assert clusters.source.count_offsets(topic) == 10


def test_wrong_settings_are_all_listed(clusters: Clusters, topic: str, start: Start) -> None:
    """Unknown, malformed and contradictory settings are one error that lists each of them; no
    client is made, so nothing is created.
    """
    clusters.source.create(topic, 1)
    service = start(
        topic,
        deduplicator_wokers="3",
        metrics_port="many",
        source_start="sometime",
        producer_acks="1",
    )
    assert service.wait_for_exit(STOP_S) == 2
    for words in (
        "4 settings are wrong",
        "REO_DEDUPLICATOR_WOKERS",
        "did you mean REO_DEDUPLICATOR_WORKERS",
        "REO_METRICS_PORT",
        "'many'",
        "REO_SOURCE_START",
        "'sometime'",
        "REO_PRODUCER_ACKS",
    ):
        assert words in service.log, service.log
    assert "Traceback" not in service.log
    assert clusters.destination.partitions(topic) == 0


def test_contradictory_settings_are_refused(clusters: Clusters, topic: str, start: Start) -> None:
    """Settings that are legal alone and not together are one error that names both."""
    service = start(
        topic,
        intermediate_topic=topic,
        deduplicator_session_timeout_ms="60000",
        deduplicator_transaction_timeout_ms="5000",
    )
    assert service.wait_for_exit(STOP_S) == 2
    for words in (
        "2 settings are wrong",
        "REO_INTERMEDIATE_TOPIC and REO_DESTINATION_TOPIC",
        "REO_DEDUPLICATOR_SESSION_TIMEOUT_MS",
        "REO_DEDUPLICATOR_TRANSACTION_TIMEOUT_MS",
    ):
        assert words in service.log, service.log


def test_a_destination_with_records_but_no_frontier_is_refused(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Somebody's records at the destination and no frontier: nothing is written behind them."""
    clusters.source.create(topic, 1)
    clusters.source.write(topic, make_records(range(10), 1))
    clusters.destination.create(topic, 1)
    clusters.destination.write(topic, make_records(range(5), 1))
    stopped(start(topic), 22, "FrontierLost", f"{topic}-0", "append")
    assert len(clusters.destination.read(topic)[0]) == 5
    assert clusters.destination.partitions(f"{topic}-proxy") == 0, "nothing was created"


def test_a_server_that_does_not_answer_is_named(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Exit code 10 within the timeout, and no password."""
    clusters.source.create(topic, PARTITIONS)
    port = deaf_address().rpartition(":")[2]
    service = wait_until_named(
        lambda: start(
            topic,
            "deduplicator",
            destination_class=STORE,
            destination_connection=f"host=127.0.0.1 port={port} user=a password={WRONG}",
            **BRIEF,
        ),
        port,
    )
    stopped(service, 10, "ClusterUnreachable", "the database does not answer", port)
    assert WRONG not in service.log
