"""The clients with which stage one looks at both clusters; records go through Spark's own."""

from __future__ import annotations

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from common.kafka_clients import admin, reader
from common.settings import Settings

NEWEST_ONLY = {"fetch.message.max.bytes": 65_536, "queued.max.messages.kbytes": 1024}
"""It reads one record of each partition, beside a stage that writes 100 MB/s there: what it fetches further is thrown away, and cost 200 MB."""


class Clients:
    """One of each kind and side; a reader holds one assignment at a time, so what reads different topics has its own."""

    def __init__(self, settings: Settings) -> None:
        self.source_admin: AdminClient = admin(settings.source, settings)
        self.destination_admin: AdminClient = admin(settings.destination, settings)
        self.source_reader: Consumer = reader(settings.source, settings)
        self.frontier_reader: Consumer = reader(settings.destination, settings, **NEWEST_ONLY)
