"""ListOffsets for one partition, as brokers answer it."""

from __future__ import annotations

from typing import NamedTuple

from tools.simulator.kafka.cluster import Cluster
from tools.simulator.kafka.errors import BrokerError

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
NONE = -1


class ListOffsetsAnswer(NamedTuple):
    """The answer."""

    offset: int
    timestamp_ms: int = NONE
    leader_epoch: int = NONE
    code: int = 0


def answer_list_offsets(
    cluster: Cluster, topic: str, partition: int, spec: int, committed: bool
) -> ListOffsetsAnswer:
    """`spec` is a timestamp or one of the above."""
    try:
        log = cluster.log(topic, partition)
    except BrokerError as error:
        return ListOffsetsAnswer(NONE, code=error.code)
    end = log.last_stable_offset if committed else log.end
    if spec == LATEST:
        return ListOffsetsAnswer(end, NONE, log.leader_epoch)
    if spec == EARLIEST:
        return ListOffsetsAnswer(log.begin, NONE, log.epoch_at(log.begin))
    records = log.records[: log.index(end)]
    if spec == MAX_TIMESTAMP:
        newest = max(
            records, key=lambda record: (record.timestamp_ms, -record.offset), default=None
        )
    else:
        newest = next((record for record in records if record.timestamp_ms >= spec), None)
    return (
        ListOffsetsAnswer(newest.offset, newest.timestamp_ms, newest.leader_epoch)
        if newest
        else ListOffsetsAnswer(NONE)
    )
