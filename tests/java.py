"""The Java client's own partitioner, called in a JVM: what a mapping by key has to agree with."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway

from common.children import die_with_parent
from tests.kafka import ROOT


@contextmanager
def partitioner() -> Iterator[Any]:
    """`BuiltInPartitioner` of the brokers' kafka-clients, which the producer asks for a record with a key and no partition."""
    py4j = Path(pyspark.__file__).parent / "jars"
    jars = ":".join(map(str, [*py4j.glob("py4j*.jar"), *(ROOT / "jars" / "broker").glob("*.jar")]))
    process = subprocess.Popen(["java", "-cp", jars, "py4j.GatewayServer", "--die-on-broken-pipe", "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)
    try:
        assert process.stdout
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=int(process.stdout.readline())))
        yield gateway.jvm.org.apache.kafka.clients.producer.internals.BuiltInPartitioner
        gateway.close()
    finally:
        process.kill()
        process.wait()


def partitions_of(keys: Iterable[bytes], partitions: int) -> dict[bytes, int]:
    """Where the Java client puts each key."""
    with partitioner() as java:
        return {key: java.partitionForKey(key, partitions) for key in set(keys)}
