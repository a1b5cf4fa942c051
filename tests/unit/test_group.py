"""Where a group's offsets are: `reo recover` names a partition of __consumer_offsets in a command
that aborts a transaction there.
"""

from __future__ import annotations

import pytest

from common.kafka.consumer_group import find_offsets_partition


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
