"""The copy in a store outside of Kafka as `reo verify` reads it (`deduplicator.own_destination`):
its records, as messages whose offset is the source's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import closing
from typing import cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from common.errors import SettingsInvalid, TopicMissing
from common.records import Consumed
from common.routes import TopicPartition
from common.settings import Settings
from deduplicator.own_destination import StoreClient


def open_reader(settings: Settings) -> Callable[[TopicPartition, int], Generator[Consumed]]:
    """Open the store; returns what reads the records of a partition from a source offset on."""
    store = _open(settings).store

    def read_records(tp: TopicPartition, begin: int) -> Generator[Consumed]:
        for record in store.read(tp, begin):
            yield cast(
                Consumed,
                Message(
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=record.source_offset,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    timestamp=(TIMESTAMP_NOT_AVAILABLE, record.timestamp_ms),
                ),
            )

    return read_records


def count_partitions(
    settings: Settings, names: Collection[str]
) -> tuple[dict[str, int], dict[str, TopicMissing]]:
    """The number of partitions of each topic in the store, the highest one that has a record, and
    1; and the error of each topic that the store does not have.
    """
    client = _open(settings)
    counts, missing = {}, {}
    with closing(client):
        for name in names:
            try:
                counts[name] = client.store.count_partitions(name)
            except TopicMissing as error:
                missing[name] = error
    return counts, missing


def _open(settings: Settings) -> StoreClient:
    """SettingsInvalid when its records cannot be read."""
    client = StoreClient(settings, "verify", patience_s=settings.connect_timeout_s, read_only=True)
    if not (client.has("read") and client.has("count_partitions")):
        raise SettingsInvalid(
            f"`reo verify` cannot be used with destination.class {client.name}: it has no `read`"
            " and `count_partitions`"
        )
    return client
