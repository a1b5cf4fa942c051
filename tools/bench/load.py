"""The load: records of three kinds, written before the copy or at a steady rate during it."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import orjson
from confluent_kafka import Producer

VARIETY = 1000
"""Different values; all others repeat them."""


@dataclass(frozen=True)
class Kind:
    """A kind of record; `compression` is the producer's at the source."""

    name: str
    compression: str
    value: Callable[[random.Random], bytes]


def _json(rng: random.Random) -> bytes:
    """An order as services send it, 300 to 600 bytes."""
    items = [
        {
            "sku": f"SKU-{rng.randrange(10**6):06}",
            "quantity": rng.randrange(1, 9),
            "price": rng.randrange(100, 99_999) / 100,
        }
        for _ in range(rng.randrange(2, 7))
    ]
    address = {
        "street": f"Street {rng.randrange(999)}",
        "city": rng.choice(["Berlin", "Lyon", "Porto"]),
        "note": "x" * rng.randrange(90),
    }
    return orjson.dumps(
        {
            "order": f"{rng.getrandbits(64):016x}",
            "customer": f"customer-{rng.randrange(10**5)}",
            "status": rng.choice(["new", "paid", "sent"]),
            "created": f"2026-11-{rng.randrange(1, 29):02}T{rng.randrange(24):02}:17:03.512Z",
            "currency": "EUR",
            "items": items,
            "address": address,
        }
    )


KINDS = {
    "100 B": Kind("100 B", "none", lambda _: os.urandom(100)),
    "1 kB": Kind("1 kB", "none", lambda _: os.urandom(1000)),
    "JSON, lz4": Kind("JSON, lz4", "lz4", _json),
}


def fill(
    address: str, topic: str, kind: Kind, records: int, partitions: int, run: int = VARIETY
) -> None:
    """Write `records` spread evenly over the partitions, each partition in runs of so many, as busy
    producers do.
    """
    producer = Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "compression.type": kind.compression,
        }
    )
    values = [kind.value(random.Random(number)) for number in range(VARIETY)]
    for number in range(records):
        while True:
            try:
                producer.produce(
                    topic, values[number % VARIETY], partition=number // run % partitions
                )
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise RuntimeError(f"{topic} was not filled in time")


def write_steadily(
    address: str, topic: str, rate: int, partitions: int, over: threading.Event
) -> int:
    """Write `rate` records/s, each with the time when it was written as its value, until `over`;
    returns how many.
    """
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0 if rate < 5000 else 2})
    begun, number = time.monotonic(), 0
    while not over.is_set():
        due = int((time.monotonic() - begun) * rate)
        while number < due:
            producer.produce(topic, b"%.6f" % time.time(), partition=number % partitions)
            number += 1
        producer.poll(0)
        time.sleep(
            max(0.0, begun + (number + 1) / rate - time.monotonic()) if rate < 5000 else 0.002
        )
    producer.flush(30)
    return number
