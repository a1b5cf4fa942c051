"""Where a group's offsets are: `reo recover` names a partition of __consumer_offsets in a command
that aborts a transaction there.
"""

from __future__ import annotations

import pytest

from common.kafka.cluster_metadata import OFFSETS_TOPIC
from common.kafka.consumer_group import Group, find_offsets_partition
from common.routes import TopicPartition
from common.settings import load
from tests.unit.common.settings.test_settings import GOOD


@pytest.mark.parametrize(
    ("group", "partition"),
    [
        ("g", 3),
        ("reo-test-undecided-offsets-and-records-name-the-command-d16310", 1),
        ("polygenelubricants", 0),
    ],
)
def test_the_partition_is_the_brokers(group: str, partition: int) -> None:
    """Of four: a positive hash and a negative one as seen on a real broker, and the one that has no
    absolute value.
    """
    assert find_offsets_partition(group, 4) == partition


def test_a_transaction_of_before_keeps_its_timeout() -> None:
    """The setting may have been lowered since: nobody should abort what ends by itself."""
    settings = load(
        GOOD
        | {
            "REO_DEDUPLICATOR_TRANSACTION_TIMEOUT_MS": "5000",
            "REO_DEDUPLICATOR_SESSION_TIMEOUT_MS": "5000",
        }
    )
    text = Group(settings).describe_abort(TopicPartition(OFFSETS_TOPIC, -1))
    assert (
        "(5 s for those of this copy, or what was set when it began, and up to 10 s more)" in text
    )
