"""A JVM with the brokers' jars, for what only Java's clients have: their partitioner, with which a
mapping by key has to agree, the brokers' quotas, and a producer to which a header's name is text of
any characters. With other jars, for a class of theirs.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway

from common.parent_death_signal import set_parent_death_signal
from tests.harness.copy_judge import Record
from tests.harness.kafka import ROOT, until

Limit = Callable[[str, str, float], None]
"""Client id, the quota's name, bytes a second."""


@contextmanager
def jvm(class_path: str = "") -> Iterator[Any]:
    """Its packages."""
    py4j = Path(pyspark.__file__).parent / "jars"
    jars = class_path or ":".join(
        map(str, [*py4j.glob("py4j*.jar"), *(ROOT / "jars" / "broker").glob("*.jar")])
    )
    process = subprocess.Popen(
        ["java", "-cp", jars, "py4j.GatewayServer", "--die-on-broken-pipe", "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=set_parent_death_signal,
    )
    try:
        assert process.stdout
        parameters = GatewayParameters(
            port=int(process.stdout.readline()),
            auto_convert=True,
            # the JVM goes before our objects
            enable_memory_management=False,
        )
        gateway = JavaGateway(gateway_parameters=parameters)
        yield gateway.jvm
        gateway.close()
    finally:
        process.kill()
        process.wait()


def partitions_of(keys: Iterable[bytes], partitions: int) -> dict[bytes, int]:
    """Where the Java client puts each key: what the producer asks for a record with a key and no
    partition.
    """
    with jvm() as java:
        partitioner = java.org.apache.kafka.clients.producer.internals.BuiltInPartitioner
        return {key: partitioner.partitionForKey(key, partitions) for key in set(keys)}


def write(address: str, topic: str, records: Iterable[tuple[int, Record]]) -> None:
    """Write records in order, each to its partition, and wait until all are there."""
    with jvm() as java:
        kafka = java.org.apache.kafka
        as_it_is = kafka.common.serialization.ByteArraySerializer()
        producer = kafka.clients.producer.KafkaProducer(
            {"bootstrap.servers": address}, as_it_is, as_it_is
        )
        sent = [
            producer.send(
                kafka.clients.producer.ProducerRecord(
                    topic,
                    partition,
                    java.Long(record.timestamp_ms),
                    record.key,
                    record.value,
                    [
                        kafka.common.header.internals.RecordHeader(name, value)
                        for name, value in record.headers
                    ],
                )
            )
            for partition, record in records
        ]
        producer.close()
        for future in sent:
            future.get()


@contextmanager
def quotas(address: str) -> Iterator[Limit]:
    """Sets quotas of a cluster by client id (KIP-546); they are taken away at the end."""
    given = []
    with jvm() as java:
        admin = java.org.apache.kafka.clients.admin.AdminClient.create(
            {"bootstrap.servers": address}
        )

        def alter(client_id: str, name: str, value: float | None) -> None:
            entity = java.org.apache.kafka.common.quota.ClientQuotaEntity({"client-id": client_id})
            operation = java.org.apache.kafka.common.quota.ClientQuotaAlteration.Op(name, value)
            admin.alterClientQuotas(
                [java.org.apache.kafka.common.quota.ClientQuotaAlteration(entity, [operation])]
            ).all().get()
            component = java.org.apache.kafka.common.quota.ClientQuotaFilterComponent.ofEntity(
                "client-id", client_id
            )
            only = java.org.apache.kafka.common.quota.ClientQuotaFilter.containsOnly([component])

            def is_set() -> bool:
                found = admin.describeClientQuotas(only).entities().get().get(entity)
                return (found.get(name) if found else None) == value

            # it hears of what its controller has taken
            until(is_set, f"the broker has {name}={value} of {client_id}")

        def limit(client_id: str, name: str, value: float) -> None:
            given.append((client_id, name))
            alter(client_id, name, float(value))

        try:
            yield limit
        finally:
            for client_id, name in given:
                alter(client_id, name, None)
            admin.close()
