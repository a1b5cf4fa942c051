"""The clients with which stage one queries both clusters; Spark's own clients carry the records."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from common.kafka.clients import create_admin_client, create_reader
from common.kafka.consumer_group import create_commit_reader
from common.settings import Settings
from replicator.runs.empty_envelopes import EmptyEnvelopes

SINGLE_RECORD_FETCH = {"fetch.message.max.bytes": 65_536, "queued.max.messages.kbytes": 1024}
"""A reader here reads one record of each partition, often in the middle of millions. What it
fetches beyond that is discarded, and cost 200 MB.
"""


class Clients:
    """One client of each kind and side. A consumer has one assignment at a time, so each set of
    topics has a reader of its own.
    """

    def __init__(self, settings: Settings, beat: Callable[[], None] = lambda: None) -> None:
        self.settings = settings
        self.beat = beat
        """Called while a read lasts long."""
        self.destination_admin: AdminClient = create_admin_client(
            settings.destination_cluster, settings
        )
        self.frontier_reader: Consumer = create_commit_reader(
            settings.destination_cluster, settings, **SINGLE_RECORD_FETCH
        )
        self.empty_envelopes = EmptyEnvelopes(settings)
        self.source_admin: AdminClient
        self.source_reader: Consumer
        self.source = ""
        self.use_source(settings)

    @cached_property
    def destination_reader(self) -> Consumer:
        """Only a service that ends needs it."""
        return create_reader(self.settings.destination_cluster, self.settings)

    def use_source(self, settings: Settings) -> None:
        """Query this source from now on."""
        if self.source != settings.source_cluster.bootstrap_servers:
            self.source = settings.source_cluster.bootstrap_servers
            self.source_admin, self.source_reader = (
                create_admin_client(settings.source_cluster, settings),
                create_reader(settings.source_cluster, settings, **SINGLE_RECORD_FETCH),
            )
