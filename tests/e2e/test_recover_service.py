"""`reo recover` and then the whole service, Spark included. Every other case, with stage two alone:
`tests/broker/test_recover.py` and `tests/broker/test_recover_beginnings.py`.
"""

from __future__ import annotations

import json
import re

from common.frontier import decode
from tests.conftest import Start
from tests.harness.kafka import Clusters, make_records
from tests.harness.recovery import (
    FIRST_RECORDS,
    PARTITIONS,
    copy_and_stop,
    delete_group,
    read_commits,
    run_recover,
    wait_for_empty_group,
)
from tests.harness.service import stopped


def test_a_deleted_frontier_is_found_and_the_service_goes_on(
    clusters: Clusters, topic: str, start: Start
) -> None:
    """Exit code 22, then `recover` shows and changes nothing, `--apply` commits, and the whole
    service, Spark included, makes the copy exact.
    """
    records = make_records(range(2 * FIRST_RECORDS), PARTITIONS)
    copy_and_stop(clusters, topic, start, records)
    delete_group(clusters.destination, topic)
    stopped(start(topic, "deduplicator"), 22, "FrontierLost", "reo recover")
    wait_for_empty_group(clusters.destination, topic)
    shown = run_recover(clusters, topic)
    assert shown.returncode == 0
    assert [re.split(r"  +", line) for line in shown.stdout.splitlines()[2:4]] == [
        [
            str(partition),
            "no offset",
            "source offset 49 (50 of 50 records compared)",
            "source offset 49, epoch 0",
        ]
        for partition in range(PARTITIONS)
    ]
    assert read_commits(clusters.destination, topic) == {}
    said = json.loads(run_recover(clusters, topic, "--json").stdout)
    assert [
        (row["group"], row["data"]["source_offset"], row["write"]["f"])
        for row in said["partitions"]
    ] == [(None, 49, 49)] * PARTITIONS
    assert not said["applied"]
    newest = clusters.destination.end_offsets(f"{topic}-proxy")
    assert run_recover(clusters, topic, "--apply").returncode == 0
    found = read_commits(clusters.destination, topic)
    for partition, commit in found.items():
        frontier = decode(commit.metadata)
        known = clusters.destination.end_offsets(topic)[partition]
        assert (
            commit.offset,
            frontier.source_offset,
            frontier.gap,
            frontier.sent,
        ) == (newest[partition], 49, None, 0)
        assert known - 2 <= frontier.destination_known < known
        assert frontier.is_known_written
        assert frontier.destination_topic_id == clusters.destination.topic_id(topic)[1]
    again = run_recover(clusters, topic, "--apply")
    assert (again.returncode, read_commits(clusters.destination, topic)) == (0, found)
    assert "nothing to recover" in again.stdout
    clusters.source.write(topic, records[FIRST_RECORDS:])
    service = start(topic, "--stop-at-end")
    assert service.wait_for_exit() == 0, service.read_log_tail()
    assert clusters.differences(topic) == []
