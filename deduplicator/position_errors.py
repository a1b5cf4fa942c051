"""Positions that are no longer in an intermediate topic: records were deleted or lost before they
were read.

The worker ends its round and starts the partition anew (`deduplicator.frontiers.start`).
"""

from __future__ import annotations

from confluent_kafka import KafkaError

from common.errors import AccessRefused, Fenced, StageFailed
from common.kafka.client_errors import translate
from common.routes import TopicPartition


class PositionGone(Exception):
    """A partition's position is no longer in its intermediate topic, or it cannot be told whether
    it is: its frontier is read again.
    """


class RecordsMissing(PositionGone):
    """Records from the position of a partition on are, or may be, missing: its copy goes on at the
    end of the partition, in a new run of stage one.
    """

    def __init__(self, tp: TopicPartition, text: str) -> None:
        super().__init__(text)
        self.tp = tp


def translate_error(error: KafkaError) -> Exception:
    """The error to raise for one that consuming an intermediate topic has returned."""
    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        return PositionGone(error.str())
    translated = translate(error, "consuming an intermediate topic")
    return (
        translated
        if isinstance(translated, Fenced | AccessRefused)
        else StageFailed(str(translated))
    )
