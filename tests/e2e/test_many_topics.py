"""Several topics in one service: exact copies of each, even if any process is killed, and topics
that appear while it runs.
"""

from __future__ import annotations

import pytest

from tests.conftest import Start
from tests.harness.copy_judge import compare_partitions
from tests.harness.kafka import COPY_S, Clusters, make_record, make_records, until
from tests.harness.merged_topics import build_topics_environment
from tests.harness.service import send_signal

SHAPE = {"one": 1, "three": 3, "two": 2}
"""Topics by their number of partitions."""


def differences(clusters: Clusters, copies: dict[str, str]) -> dict[str, list[str]]:
    """The judge's verdict on each copy that is not exact."""
    found = {source: clusters.differences(source, copy) for source, copy in copies.items()}
    return {source: lines for source, lines in found.items() if lines}


def wait_for_copies(
    clusters: Clusters, copies: dict[str, str], records: dict[str, int], timeout_s: float = COPY_S
) -> None:
    """Wait until every copy is exact."""
    last: list[str] = []

    def is_exact() -> bool:
        if all(
            clusters.destination.partitions(copy)
            and clusters.destination.count_offsets(copy) >= records[source]
            for source, copy in copies.items()
        ):
            last[:] = [str(differences(clusters, copies) or "")]
            return not last[0]
        return False

    until(is_exact, f"{copies} are exact", timeout_s, last)


def test_three_topics_through_one_service_that_is_killed(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Topics of one, three and two partitions, one of them to another name, two workers; each stage
    is killed while records flow: all three are exact.
    """
    copies = {f"{topic}-{name}": f"{topic}-{name}" for name in SHAPE} | {
        f"{topic}-two": f"{topic}-copy"
    }
    for name, partitions in SHAPE.items():
        clusters.source.create(f"{topic}-{name}", partitions)
        clusters.source.write(f"{topic}-{name}", make_records(range(20_000), partitions))
    service = start(
        topic,
        environment=build_topics_environment(
            clusters,
            topic,
            f"{topic}-one,{topic}-three,{topic}-two={topic}-copy",
            deduplicator_workers="2",
            deduplicator_transaction_records="500",
        ),
    )
    until(
        lambda: service.metric("reo_records_out_total", stage="deduplicator") > 2000,
        "records flow",
        COPY_S,
    )
    send_signal(until(lambda: service.find_pid("deduplicator", 0), "the first worker lives"))
    until(
        lambda: service.metric("reo_records_out_total", stage="deduplicator") > 12_000,
        "records flow again",
        COPY_S,
    )
    send_signal(until(lambda: service.find_pid("deduplicator", 1), "the second worker lives"))
    wait_for_copies(clusters, copies, dict.fromkeys(copies, 20_000))
    for name, partitions in SHAPE.items():
        clusters.source.write(f"{topic}-{name}", make_records(range(20_000, 40_000), partitions))
    send_signal(until(lambda: service.find_pid("replicator"), "stage one lives"))
    wait_for_copies(clusters, copies, dict.fromkeys(copies, 40_000))
    for source, copy in copies.items():
        assert (
            clusters.destination.partitions(copy)
            == clusters.destination.partitions(f"{copy}-proxy")
            == clusters.source.partitions(source)
        )
        last = sum(clusters.source.end_offsets(source).values()) - clusters.source.partitions(
            source
        )
        until(
            lambda source=source, last=last: (
                service.metric("reo_frontier_offset", topic=source) == last
            ),
            "the frontiers are at the source's end",
            COPY_S,
        )
    service.stop()
    assert differences(clusters, copies) == {}


@pytest.mark.long
def test_a_topic_that_appears_later_is_followed(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """A pattern's new topic is copied from its first record, though the copy began at the end of
    what was there; nothing was started again for it.
    """
    first, later, other = f"{topic}-a", f"{topic}-b", f"not-{topic}"
    clusters.source.create(first, 2)
    clusters.source.write(first, make_records(range(50), 2))
    clusters.source.create(other, 1)
    service = start(
        topic,
        environment=build_topics_environment(
            clusters, topic, rf"^{topic}-(.*)=copy-{topic}-\1", source_start="latest"
        ),
    )
    until(lambda: service.http_get("/readyz")[0] == 200, "the service is ready", COPY_S)
    stage_two = service.find_pid("deduplicator")
    clusters.source.write(first, make_records(range(100, 600), 2))
    until(
        lambda: (
            clusters.destination.partitions(f"copy-{first}")
            and clusters.destination.count_offsets(f"copy-{first}") >= 500
        ),
        "the first topic is copied",
        COPY_S,
    )

    clusters.source.create(later, 3)
    clusters.source.write(later, make_records(range(1000), 3))
    wait_for_copies(clusters, {later: f"copy-{later}"}, {later: 1000})
    clusters.source.write(first, make_records(range(600, 700), 2))
    wanted = {partition: records[25:] for partition, records in clusters.source.read(first).items()}
    until(
        lambda: compare_partitions(wanted, clusters.destination.read(f"copy-{first}")) == [],
        "the first topic goes on",
        COPY_S,
    )
    # one that has stalled just then is followed by a run with the new topic too
    assert any(service.metric("reo_runs_total", reason=why) for why in ("grown", "stalled"))
    assert service.find_pid("deduplicator") == stage_two, "nothing may have been started again"
    # stage one also starts again when Spark does not stop a query within some seconds
    assert "restarts with more slots" not in service.log
    assert (
        clusters.destination.partitions(other)
        == clusters.destination.partitions(f"copy-{other}")
        == 0
    )
    service.stop()


@pytest.mark.long
def test_a_pattern_may_fit_nothing_yet(clusters: Clusters, topic: str, start: Start) -> None:
    """With --stop-at-end there is nothing to do; without it the service waits for the first topic,
    and copies it.
    """
    done = start(
        topic,
        "--stop-at-end",
        environment=build_topics_environment(clusters, topic, f"^{topic}-.*"),
    )
    assert done.wait_for_exit() == 0, done.read_log_tail()
    service = start(topic, environment=build_topics_environment(clusters, topic, f"^{topic}-.*"))
    service.wait_for_log("waiting for one")
    clusters.source.create(f"{topic}-a", 1)
    clusters.source.write(f"{topic}-a", make_records(range(100), 1))
    wait_for_copies(clusters, {f"{topic}-a": f"{topic}-a"}, {f"{topic}-a": 100})
    clusters.source.delete(f"{topic}-a")
    assert service.wait_for_exit() == 11, service.read_log_tail()
    assert "was deleted while it was copied" in service.log
    assert clusters.source.partitions(f"{topic}-a") == 0  # no consumer has created it again


@pytest.mark.long
def test_the_end_is_the_end_of_every_topic(clusters: Clusters, topic: str, start: Start) -> None:
    """--stop-at-end with a full topic, an empty one and one that ends with an aborted transaction,
    named on the command line: all exact, exit code 0.
    """
    names = [f"{topic}-full", f"{topic}-empty", f"{topic}-aborted"]
    for name in names:
        clusters.source.create(name, 2)
    clusters.source.write(names[0], make_records(range(5000), 2))
    producer = clusters.source.producer(transactional_id=topic)
    producer.init_transactions(30)
    for committed in (True, False):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(names[2], make_record(number).value, partition=0)
        (producer.commit_transaction if committed else producer.abort_transaction)(30)
    chosen = [part for name in names for part in ("--topic", f"{name}={name}-copy")]
    # what the command line names replaces it
    environment = build_topics_environment(clusters, topic, f"^{topic}.*")
    service = start(topic, "--stop-at-end", *chosen, environment=environment)
    assert service.wait_for_exit() == 0, service.read_log_tail()
    assert differences(clusters, {name: f"{name}-copy" for name in names}) == {}
    assert len(clusters.destination.read(f"{names[2]}-copy")[0]) == 10
    again = start(topic, "deduplicator", "--stop-at-end", *chosen, environment=environment)
    assert again.wait_for_exit() == 0, again.read_log_tail()


@pytest.mark.parametrize(
    ("topics", "code", "error", "part"),
    [
        ("{0}-a={0}-b,{0}-b={0}-c", 14, "Cycle", "reads what this service writes"),
        ("^{0}-.*", 14, "Cycle", "the same topic of the same cluster"),
        (r"^{0}-(.*)=x-{0}-\1,{0}-a", 2, "SettingsInvalid", "is the source of several rules"),
        ("{0}-a=x-{0}:1,{0}-missing=x-{0}", 11, "TopicMissing", "{0}-missing does not exist"),
    ],
)
def test_routes_that_can_not_be(
    clusters: Clusters, topic: str, start: Start, topics: str, code: int, error: str, part: str
) -> None:
    """A copy that would read what the service writes, inside one cluster; a topic that two rules
    name; one that is not there: one error, nothing made.
    """
    for name in ("a", "b"):
        clusters.source.create(f"{topic}-{name}", 1)
    environment = build_topics_environment(
        clusters, topic, topics.format(topic), destination_bootstrap_servers=clusters.source.address
    )
    service = start(topic, environment=environment)
    assert service.wait_for_exit() == code, service.read_log_tail()
    assert part.format(topic) in service.log
    assert error in service.log or error == "SettingsInvalid"
    assert (
        clusters.source.partitions(f"x-{topic}-a") == clusters.source.partitions(f"x-{topic}") == 0
    )
