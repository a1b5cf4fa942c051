"""An upgrade from the last version whose intermediate records had one source record each: nothing
is copied twice, and nothing is missing.

`upgrade-fixture.json` was recorded from that version (commit f2c256aa), with both stages and two
brokers: source, destination and intermediate topic as they were after a stop, and the group's
commits. Stage two was stopped first, so it had not read all that stage one wrote: records of
partitions 0 and 2, and for partition 1 a record that only says how far the source is read.

Topic ids cannot be chosen. So those of this test's topics replace the recorded ones: the
destination topic's id (`t`) and the source topic's identity (`i`) in the frontiers, and the
identity in the headers of the intermediate records.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from common.envelope import compute_identity
from common.frontier import VERSION, Frontier, decode
from tests.conftest import Start
from tests.harness.compared_sides import wait_for_markers
from tests.harness.copy_judge import Record
from tests.harness.kafka import Cluster, Clusters, make_record, make_records, until
from tests.harness.producing import produce_records
from tests.harness.service import CERTAIN_COMMITS

RECORDED = json.loads(Path(__file__).with_name("upgrade-fixture.json").read_text())
PARTITIONS = len(RECORDED["commits"])
NEW_RECORDS = 30
Log = list[tuple[int, Record]]
"""The visible records of a partition, each with its offset."""


def load_log(recorded: dict[str, Any]) -> Log:
    """A recorded partition."""
    return [
        (
            offset,
            Record(
                decode_bytes(key),
                decode_bytes(value),
                tuple((name, decode_bytes(content)) for name, content in headers),
                timestamp_ms,
            ),
        )
        for offset, key, value, headers, timestamp_ms in recorded["records"]
    ]


def decode_bytes(encoded: str | None) -> bytes | None:
    """Null stays null."""
    return None if encoded is None else base64.b64decode(encoded)


def write_topic(
    cluster: Cluster, topic: str, name: str, change: Callable[[Record], Record] = lambda same: same
) -> None:
    """Create a topic with the recorded records, changed, at the recorded offsets."""
    cluster.create(topic, PARTITIONS)
    for partition, recorded in enumerate(RECORDED[name]):
        begin, waiting = 0, list[Record]()
        for offset, record in [*load_log(recorded), (recorded["end"], None)]:
            gap = offset - begin - len(waiting)
            if gap or record is None:
                write_run(cluster, topic, partition, waiting, gap)
                begin, waiting = offset, []
            if record is not None:
                waiting.append(change(record))
    wait_for_markers(cluster, topic)
    assert cluster.end_offsets(topic) == {
        partition: recorded["end"] for partition, recorded in enumerate(RECORDED[name])
    }


def write_run(
    cluster: Cluster, topic: str, partition: int, records: Iterable[Record], gap: int
) -> None:
    """Records, and so many offsets of which no reader sees anything: the marker of their own
    transaction, or records that are aborted, with theirs.
    """
    of_partition = [(partition, record) for record in records]
    if gap != 1:
        cluster.write(topic, of_partition)
        of_partition = [(partition, make_record(number)) for number in range(gap - 1)]
    if not gap:
        return
    producer = cluster.producer(transactional_id=f"{topic}-{partition}")
    producer.init_transactions(30)
    producer.begin_transaction()
    produce_records(producer, topic, of_partition)
    assert producer.flush(30) == 0
    (producer.commit_transaction if gap == 1 else producer.abort_transaction)(30)


def replace_identity(record: Record, identity: str) -> Record:
    """An intermediate record of this test's source topic."""
    *others, (name, content) = record.headers
    assert content is not None
    if name == "__origin":  # the identity follows the version
        content = content[:1] + bytes.fromhex(identity) + content[9:]
    else:
        assert name == "__read_up_to"
        content = json.dumps(json.loads(content) | {"i": identity}).encode()
    return record._replace(headers=(*others, (name, content)))


def commit_recorded(cluster: Cluster, topic: str, identity: str) -> None:
    """The group's commits, of this test's topics."""
    _, topic_id = cluster.topic_id(topic)
    consumer = Consumer({"bootstrap.servers": cluster.address, "group.id": f"reo-{topic}"})
    offsets = [
        TopicPartition(
            f"{topic}-proxy",
            partition,
            offset,
            json.dumps(json.loads(metadata) | {"i": identity, "t": topic_id}),
        )
        for partition, (offset, metadata) in enumerate(RECORDED["commits"])
    ]
    for answer in consumer.commit(offsets=offsets, asynchronous=False):
        assert answer.error is None
    consumer.close()


def read_metadata(cluster: Cluster, topic: str) -> list[str]:
    """Of the group's commits."""
    consumer = Consumer({"bootstrap.servers": cluster.address, "group.id": f"reo-{topic}"})
    committed = consumer.committed(
        [TopicPartition(f"{topic}-proxy", partition) for partition in range(PARTITIONS)], 30
    )
    consumer.close()
    return [answer.metadata for answer in committed]


def has_been_upgraded(metadata: str) -> bool:
    """Whether a frontier was written by this version."""
    return bool(json.loads(metadata)["v"] == VERSION)


def test_a_copy_of_the_version_before_goes_on(clusters: Clusters, topic: str, start: Start) -> None:
    """The old intermediate records are counted and dropped, and what they had is read again from
    the source; the frontiers are of the new version, and go on where they were.
    """
    write_topic(clusters.source, topic, "source")
    write_topic(clusters.destination, topic, "destination")
    cluster_id, topic_id = clusters.source.topic_id(topic)
    identity = compute_identity(cluster_id, topic, topic_id)
    write_topic(
        clusters.destination,
        f"{topic}-proxy",
        "intermediate",
        lambda record: replace_identity(record, identity),
    )
    commit_recorded(clusters.destination, topic, identity)
    before = list[Frontier](map(decode, read_metadata(clusters.destination, topic)))
    unread = [
        recorded["end"] - offset
        for recorded, (offset, _) in zip(RECORDED["intermediate"], RECORDED["commits"], strict=True)
    ]
    assert all(unread)
    assert clusters.differences(topic), "there is something to copy"
    service = start(topic, **CERTAIN_COMMITS)
    visible = sum(map(len, clusters.source.read(topic).values()))
    clusters.wait_for_copy(topic, visible)
    until(
        lambda: service.metric("reo_records_dropped_total", reason="old format") == sum(unread),
        "the old records are counted",
    )
    until(
        lambda: all(map(has_been_upgraded, read_metadata(clusters.destination, topic))),
        "the frontiers are of the new version",
    )
    after = list[Frontier](map(decode, read_metadata(clusters.destination, topic)))
    assert all(new.epoch > old.epoch for old, new in zip(before, after, strict=True))
    assert all(
        new.source_offset >= old.source_offset for old, new in zip(before, after, strict=True)
    )
    clusters.source.write(topic, make_records(range(1000, 1000 + NEW_RECORDS), PARTITIONS))
    clusters.wait_for_copy(topic, visible + NEW_RECORDS)
    service.stop()
    assert clusters.differences(topic) == []
