"""The core of the tests again, with a broker of another version at one side and of 4.3 at the
other: the oldest line that is supported (3.9) and the newest (4.4), as source and destination.

The tests are those of their own modules; here `clusters` is a mixed pair. `make broker-versions`
fetches the brokers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.conftest import EAGER_RETENTION, Start
from tests.e2e.test_bad_input import (
    test_a_torn_transaction_is_repaired as a_torn_transaction_is_repaired,
)
from tests.e2e.test_exact_copy import Copied, copied, test_the_copy_is_exact
from tests.e2e.test_exact_copy import (
    test_a_second_run_changes_nothing as a_second_run_changes_nothing,
)
from tests.e2e.test_faults import test_the_copy_is_exact_after as the_copy_is_exact_after
from tests.harness.commands import reo
from tests.harness.kafka import UNFENCED, Cluster, Clusters, find_jars, make_records, until
from tests.harness.recovery import (
    FIRST_RECORDS,
    PARTITIONS,
    copy_and_stop,
    resume_copy,
    run_recover,
    wait_for_empty_group,
)
from tests.harness.service import stopped
from tools.demo.broker import Broker

__all__ = ["copied", "test_the_copy_is_exact"]
pytestmark = pytest.mark.long
BRIEF_SESSION = {"deduplicator_session_timeout_ms": "6000"}
"""A member that has stopped is waited for; brokers allow no less by default."""


@pytest.fixture(scope="module", params=["3.9", "4.4"])
def version(request: pytest.FixtureRequest) -> str:
    """Of the broker at the one side."""
    return str(request.param)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, version: str) -> Iterator[Cluster]:
    """A single node of this version."""
    broker = Broker(
        tmp_path_factory.mktemp("other") / "broker",
        find_jars(version),
        settings=EAGER_RETENTION | UNFENCED,
    )
    try:
        yield Cluster(broker.start().wait())
    finally:
        broker.kill()


@pytest.fixture(scope="module", params=["from", "to"])
def way(request: pytest.FixtureRequest) -> str:
    """Which side has the other version; apart, so that the pair of all other modules is not created
    again for each.
    """
    return str(request.param)


@pytest.fixture(scope="module")
def clusters(clusters: Clusters, other: Cluster, way: str) -> Clusters:
    """The pair with the other broker at that side, in the place of the one that all other modules
    have.
    """
    return (
        Clusters(other, clusters.destination) if way == "from" else Clusters(clusters.source, other)
    )


@pytest.fixture
def other_destination(clusters: Clusters, way: str) -> Clusters:
    """For what concerns the destination only."""
    if way == "from":
        pytest.skip("the destination's version is what matters")
    return clusters


def test_a_second_run_changes_nothing(clusters: Clusters, copied: Copied, start: Start) -> None:
    """See `tests.e2e.test_exact_copy`."""
    a_second_run_changes_nothing(clusters, copied, start)


def test_a_torn_transaction_is_repaired(clusters: Clusters, topic: str, start: Start) -> None:
    """See `tests.e2e.test_bad_input`."""
    a_torn_transaction_is_repaired(clusters, topic, start)


@pytest.mark.parametrize("compiled", ["yes", "no"])
def test_the_copy_is_exact_after_kills(clusters: Clusters, tmp_path: Path, compiled: str) -> None:
    """Both stages are killed while records and transactions, some of them aborted, flow; see
    `tests.e2e.test_faults`.
    """
    the_copy_is_exact_after(clusters, tmp_path, "SIGKILL of both stages", compiled)


def test_what_the_newer_brokers_refuse_is_said_by_the_check(
    clusters: Clusters, version: str, way: str, topic: str, start: Start
) -> None:
    """4.x takes no `segment.bytes` under 1 MB (KIP-1030), and none of the service's topics exists
    yet: `reo check` ends as the service does.
    """
    if version != "3.9" or way != "from":
        pytest.skip("only a source of 3.9 takes it")
    clusters.source.create(topic, 1, segment_bytes="16384")
    said = reo(clusters, topic, "check", exit_code=13).stdout
    assert re.search(
        r"Invalid value 16384 for configuration segment\.bytes", " ".join(said.split())
    )
    stopped(start(topic, "deduplicator"), 13, "TopicsUnfit", "segment.bytes")


def test_undecided_offsets_are_named(other_destination: Clusters, topic: str, start: Start) -> None:
    """A transaction that is open over the group's offsets: `reo recover` names the command that
    ends it, and confirms the frontier when it is ended.
    """
    records = make_records(range(2 * FIRST_RECORDS), PARTITIONS)
    copy_and_stop(other_destination, topic, start, records, **BRIEF_SESSION)
    destination, group = (
        other_destination.destination,
        wait_for_empty_group(other_destination.destination, topic),
    )
    hanging = destination.producer(
        transactional_id=f"{topic}-hanging", transaction_timeout_ms=180_000
    )
    hanging.init_transactions(30)
    hanging.begin_transaction()
    consumer = Consumer({"bootstrap.servers": destination.address, "group.id": group})
    hanging.send_offsets_to_transaction(
        [TopicPartition(f"{topic}-proxy", 0, 1, "pending")], consumer.consumer_group_metadata(), 30
    )
    refused = run_recover(other_destination, topic, "--apply")
    assert refused.returncode == 28
    command = re.search(
        r"abort --topic __consumer_offsets --partition (\d+) --start-offset (\d+)", refused.stderr
    )
    assert command, refused.stderr
    partition, ends = int(command[1]), destination.end_offsets("__consumer_offsets")
    assert (
        destination.end_offsets("__consumer_offsets", stable=True)[partition]
        == int(command[2])
        < ends[partition]
    )
    hanging.abort_transaction(30)
    until(lambda: destination.has_no_open_transaction(topic), "it is aborted")
    assert "nothing to recover" in run_recover(other_destination, topic).stdout
    resume_copy(other_destination, topic, start, records, **BRIEF_SESSION)
