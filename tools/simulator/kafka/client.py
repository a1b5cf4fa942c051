"""What the three clients have in common: options, requests to their cluster, callbacks, and
metadata.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError
from confluent_kafka.admin import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata
from greenlet import GreenletExit

from tools.simulator.kafka.cluster import Cluster
from tools.simulator.kafka.errors import (
    BrokerError,
    ConnectionLost,
    RequestTimedOut,
    create_error,
    create_exception,
)
from tools.simulator.kafka.network import Network

Result = TypeVar("Result")
INFO = 6
"""The level INFO of syslog and of `log_level`."""


class Client:
    """A client of one cluster, in one process."""

    def __init__(self, network: Network, options: Mapping[str, Any]) -> None:
        self.network = network
        self.schedule = network.schedule
        self.options = dict(options)
        address = str(options["bootstrap.servers"])
        known_addresses = [
            known for known in (address, *address.split(",")) if known in network.clusters
        ]
        self.cluster = (
            network.clusters[known_addresses[0]]
            if known_addresses
            else self._create_unreachable_cluster(address)
        )
        self.process = self.schedule.process
        self.client_id = str(options.get("client.id", "rdkafka"))
        self.pending_callbacks: deque[Callable[[], object]] = deque()
        """Callbacks of the application that wait for its next poll."""
        self.backoff_s = 0.1
        self.defect: Exception | None = None
        self.coordinator_since: int | None = None
        """How often the cluster had come back when this client last asked a group's coordinator."""
        self.is_coordinator_lost = False
        """Whether it waits for a group's coordinator to which it does not connect any more."""
        self.outages_noticed = self.cluster.outages

    def has_lost_coordinator(self) -> bool:
        """Asked before each request to a group's coordinator. After an outage, half of the clients
        that had a coordinator before have lost it for good (librdkafka 2.16, issue 5511).
        """
        if self.coordinator_since not in (None, self.cluster.outages):
            self.is_coordinator_lost |= self.schedule.random.random() < 0.5
        self.coordinator_since = self.cluster.outages
        return self.is_coordinator_lost

    def _create_unreachable_cluster(self, address: str) -> Cluster:
        """A cluster that is always down, for an address where no broker listens."""
        cluster = Cluster(self.schedule, address)
        cluster.is_down = True
        return cluster

    def get_number(self, option: str, default: float) -> float:
        """An option that is a number."""
        return float(self.options.get(option, default))

    def get_seconds(self, option: str, default_ms: float) -> float:
        """An option in milliseconds."""
        return self.get_number(option, default_ms) / 1000

    def is_enabled(self, option: str) -> bool:
        """An option that is true or false."""
        return str(self.options.get(option, False)).lower() == "true"

    def request(
        self, api: str, execute: Callable[[], Result], timeout_s: float, is_retried: bool = True
    ) -> Result:
        """See `Network.request`."""
        return self.network.request(
            self.cluster, api, execute, timeout_s, is_retried, self.report_lost_connection
        )

    def report_lost_connection(self, api: str) -> None:
        """A connection or a response was lost: write it to the client's log, and call the
        application's `error_cb`.
        """
        logger, on_error = self.options.get("logger"), self.options.get("error_cb")
        if logger is not None and int(self.options.get("log_level", INFO)) >= INFO:
            self.pending_callbacks.append(
                lambda: logger.log(
                    20, "%s [%s] %s", "FAIL", f"{self.client_id}#", f"{api}: connection lost"
                )
            )
        if on_error is not None:
            code = KafkaError._ALL_BROKERS_DOWN if self.cluster.is_down else KafkaError._TRANSPORT
            self.pending_callbacks.append(lambda: on_error(create_error(code)))

    def notice_outage(self) -> None:
        """An idle connection is lost with its broker too, and its client logs that."""
        if self.outages_noticed != self.cluster.outages:
            self.outages_noticed = self.cluster.outages
            self.report_lost_connection("idle")

    def start(self, work: Callable[[], object], name: str) -> None:
        """Start a background task of the client. The next call of the application raises an
        unexpected exception of this task.
        """
        process = self.schedule.process
        if process is None:
            raise GreenletExit  # the schedule is closed

        def run_task() -> None:
            try:
                work()
            except Exception as failed:
                self.defect = failed
            task = self.schedule.task
            if task is not None:
                task.process.tasks.remove(task)
                self.schedule.all_tasks.remove(task)

        self.schedule.start(process, run_task, name)

    def run_callbacks(self) -> int:
        """Run the pending callbacks of the application. Returns how many there were."""
        if self.defect is not None:
            raise self.defect
        count = 0
        while self.pending_callbacks:
            self.pending_callbacks.popleft()()
            count += 1
        return count

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Metadata."""
        try:
            found: ClusterMetadata = self.request(
                "Metadata", lambda: describe_metadata(self.cluster, topic), timeout
            )
        except (RequestTimedOut, ConnectionLost):
            raise create_exception(
                KafkaError._TRANSPORT, "Failed to get metadata: Local: Broker transport failure"
            ) from None
        except BrokerError as error:
            raise create_exception(error.code, error.reason) from None
        return found

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True


def describe_metadata(cluster: Cluster, wanted_topic: str | None) -> ClusterMetadata:
    """The metadata of all topics, or of one."""
    answer: Any = ClusterMetadata()
    answer.cluster_id, answer.controller_id, answer.orig_broker_id, answer.orig_broker_name = (
        cluster.cluster_id,
        1,
        1,
        f"{cluster.address}/1",
    )
    broker: Any = BrokerMetadata()
    broker.id, broker.host, broker.port = 1, cluster.name, 9092
    answer.brokers[1] = broker
    for name in cluster.topics if wanted_topic is None else [wanted_topic]:
        answer.topics[name] = found = TopicMetadata()
        found.topic = name
        if name not in cluster.topics:
            found.error = create_error(KafkaError.UNKNOWN_TOPIC_OR_PART)
            continue
        for number in range(len(cluster.topics[name].logs)):
            found.partitions[number] = partition = PartitionMetadata()
            partition.id, partition.leader, partition.replicas, partition.isrs = number, 1, [1], [1]
    result: ClusterMetadata = answer
    return result
