"""`reo heartbeat`: is the path alive, also while nobody writes? Each second it writes a record, a
heartbeat, to a topic of its own at the source, which the service copies as any other, and it reads
the copy. How old the newest heartbeat is that has arrived says whether both clusters and both
stages work, as MirrorMaker 2's heartbeats do.

A heartbeat has the time of this process's monotonic clock: no two clocks are compared. Heartbeats
of others on the same topic are passed over.
"""

from __future__ import annotations

from typing import Any

import orjson
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry, Gauge, make_wsgi_app

from common import clock, source_pool
from common.errors import SettingsInvalid, TopicMissing
from common.kafka import topics
from common.kafka.client_errors import translate
from common.kafka.clients import create_admin_clients, create_idempotent_producer, create_reader
from common.kafka.topics import Topic
from common.routes import Route
from common.settings import Settings, destination_kind
from common.settings.clusters import Cluster
from reo import interrupt
from reo.report import print_json
from reo.service import health

AGE = Gauge(
    "reo_heartbeat_record_age_seconds",
    "By `reo heartbeat`: the age of the newest heartbeat at the destination; until the first one,"
    " the time since the start.",
    ("topic",),
    registry=None,
)
DELIVERY_TIMEOUT_MS = 30_000
"""A heartbeat that the source has not taken for so long is given up: newer ones follow it."""


class Path:
    """From the source to the destination, by one topic: writes its heartbeats, reads their
    copies.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        self.route = find_route(settings, topic)
        source_admin, destination_admin = create_admin_clients(settings)
        look_up_topic(settings, settings.source_cluster, source_admin, topic)
        copy = look_up_topic(
            settings,
            settings.destination_cluster,
            destination_admin,
            self.route.destination_topic,
        )
        self.producer = create_idempotent_producer(
            settings.source_cluster,
            settings,
            "heartbeat",
            **{"message.timeout.ms": DELIVERY_TIMEOUT_MS},
        )
        # retention may take what this reader has not seen: newer ones are as good
        latest = {"auto.offset.reset": "latest"}
        self.reader = create_reader(settings.destination_cluster, settings, **latest)
        self.reader.assign(
            [ClientTopicPartition(copy.name, p, OFFSET_END) for p in range(copy.partitions)]
        )
        self.sender = f"{clock.get_random_bits(64):016x}"
        self.newest_s = clock.monotonic()
        """When the newest heartbeat that has arrived was written."""
        self.took_s: float | None = None
        """How long it took."""
        self.refused: KafkaError | None = None

    @property
    def age_s(self) -> float:
        """How old the newest heartbeat is that has arrived."""
        return clock.monotonic() - self.newest_s

    def write(self) -> None:
        """One heartbeat, without waiting for it. Raises what the source has refused before."""
        name = self.route.source_topic
        value = orjson.dumps({"sender": self.sender, "written_s": clock.monotonic()})
        try:
            if self.refused and self.refused.code() != KafkaError._MSG_TIMED_OUT:
                raise KafkaException(self.refused)
            self.producer.produce(name, value, partition=0, on_delivery=self._on_delivery)
        except KafkaException as failed:
            doing = f"writing topic {name} of the source cluster"
            raise translate(failed.args[0], doing) from None
        self.producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        self.refused = error

    def read_until(self, end_s: float) -> None:
        """Read the copies until this time on the monotonic clock."""
        while (left_s := end_s - clock.monotonic()) > 0:
            record = self.reader.poll(left_s)
            error = record and record.error()
            if record is None or (error and error.code() == KafkaError._PARTITION_EOF):
                continue
            if error:
                name = self.route.destination_topic
                raise translate(error, f"reading topic {name} of the destination cluster")
            self._note(record.value())

    def _note(self, value: Any) -> None:
        try:
            heartbeat = orjson.loads(value or b"")
        except orjson.JSONDecodeError:
            return
        if isinstance(heartbeat, dict) and heartbeat.get("sender") == self.sender:
            self.newest_s = heartbeat["written_s"]
            self.took_s = clock.monotonic() - self.newest_s


def look_up_topic(settings: Settings, cluster: Cluster, client: AdminClient, name: str) -> Topic:
    """One topic; TopicMissing when it is not there."""
    found = topics.look_up(cluster, client, [name], settings.connect_timeout_s)
    if name not in found:
        raise TopicMissing(
            f"topic {name} does not exist at the {cluster.name} cluster",
            "Create it at the source, with one partition; the service creates the copy",
        )
    return found[name]


def find_route(settings: Settings, topic: str) -> Route:
    """The route that copies the topic; SettingsInvalid when none does."""
    for route in settings.build_routes([topic]):
        if route.source_topic == topic:
            return route
    raise SettingsInvalid(
        f"`reo heartbeat` writes to the source topic {topic}, which no rule copies: add it to the"
        " topics of the service (setting topics, or --topic), and create it at the source"
    )


def serve_age(port: int, address: str) -> None:
    """On this port; SettingsInvalid when it cannot be opened."""
    registry = CollectorRegistry()
    registry.register(AGE)
    try:
        health.serve(health.open_port(address, port, make_wsgi_app(registry)))
    except OSError as error:
        where, remedy = f" of {address}" if address else "", health.find_remedy(error, "--port")
        raise SettingsInvalid(
            f"--port {port}{where} cannot be opened ({error.strerror}): {remedy}"
        ) from None


def run_command(
    settings: Settings, heartbeats: str, every_s: float, port: int | None, as_json: bool
) -> int:
    """The command: a line each interval, until it is interrupted."""
    destination_kind.refuse_command(settings, "reo heartbeat", "there is no destination topic")
    path = Path(source_pool.select_answering(settings), heartbeats)
    age = AGE.labels(heartbeats)
    age.set_function(lambda: path.age_s)
    if port is not None:
        serve_age(port, settings.metrics.address)
    next_s = clock.monotonic()
    interrupt.set_normal_end()
    while True:
        path.write()
        next_s = max(next_s + every_s, clock.monotonic())
        path.read_until(next_s)
        _print_line(path, as_json)


def _print_line(path: Path, as_json: bool) -> None:
    topic, age_s, took_s = path.route.source_topic, path.age_s, path.took_s
    if as_json:
        took = None if took_s is None else round(took_s, 3)
        print_json({"topic": topic, "age_s": round(age_s, 3), "took_s": took})
    elif took_s is None:
        print(f"{topic}: no heartbeat has arrived for {age_s:.1f} s", flush=True)
    else:
        print(f"{topic}: the newest is {age_s:.1f} s old, it took {took_s:.3f} s", flush=True)
