"""What a start makes of destination records that are written, but whose transaction is not decided,
on a real broker.
"""

from __future__ import annotations

import pytest

from common.frontier import Frontier
from common.liveness import Liveness
from common.routes import TopicPartition
from common.settings import load
from deduplicator.destination import Output
from deduplicator.frontiers.committed_frontiers import TransactionUndecided, WorkerGroup
from deduplicator.frontiers.frontier_store import KafkaFrontierStore
from tests.harness.kafka import Clusters, until
from tests.harness.service import build_environment

ANSWER_S = 30


@pytest.mark.parametrize("cleanup_policy", ["delete", "compact"])
def test_records_that_are_not_visible_yet_are_not_missing(
    clusters: Clusters, topic: str, cleanup_policy: str
) -> None:
    """The frontier counts them, and can be readable before the marker of its transaction is written
    to their partition. A compacted topic may lack records, but not these: a worker that counted on
    from less than was written would later take its own records for somebody else's.
    """
    cluster, tp = clusters.destination, TopicPartition(topic, 0)
    cluster.create(topic, 1, cleanup_policy=cleanup_policy)
    settings = load(build_environment(clusters, topic, {}))
    store = KafkaFrontierStore(WorkerGroup(settings, Liveness("test")))
    frontier = Frontier(2, 1, "1d" * 8, 1, "id", -1, 2)
    producer = cluster.producer(transactional_id=topic)
    producer.init_transactions(ANSWER_S)
    producer.begin_transaction()
    for key in (b"one", b"two"):
        producer.produce(topic, key, key, 0)
    producer.flush(ANSWER_S)
    with pytest.raises(TransactionUndecided, match=f"a transaction on {topic} is open"):
        store.check_outputs({tp: frontier})
    producer.commit_transaction(ANSWER_S)
    until(lambda: cluster.has_no_open_transaction(topic), "its marker is written", ANSWER_S)
    assert store.check_outputs({tp: frontier}) == (
        {tp: Output(1, 0, is_known_written=True)},
        {},
    )
