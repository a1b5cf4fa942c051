"""What moves in the tests of `reo cutover`: a producer and a consumer, each a process of its own,
as an application has them.

`python -m tests.harness.moving produce ADDRESS TOPIC` writes transactions until SIGTERM, and aborts
some of them. `count ADDRESS TOPIC FILE` is an idempotent producer that counts on from the number in
the file. `consume ADDRESS TOPIC GROUP FILE RESET` appends what it reads to a file, one line for a
record, commits, and leaves the group at SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from subprocess import DEVNULL, Popen

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from common.parent_death_signal import set_parent_death_signal
from tests.harness.copy_judge import to_record
from tests.harness.kafka import ROOT, Clusters, until
from tests.harness.recovery import wait_for_next_epoch
from tests.harness.stage_one import wrap_records, write_intermediate
from tools.demo import fair_share

PAUSE_S = 0.02
_stop = threading.Event()


def produce(address: str, topic: str, partitions: int = 2) -> None:
    """Transactions of three records in each partition; every fourth one is aborted."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "transactional.id": f"{topic}-producer",
            "transaction.timeout.ms": 600_000,  # it may stand still with the machine
        }
    )
    producer.init_transactions(30)
    for number in count():
        producer.begin_transaction()
        for record in range(3 * partitions):
            producer.produce(
                topic, f"{time.time_ns()}-{number}-{record}", partition=record % partitions
            )
        (producer.abort_transaction if number % 4 == 3 else producer.commit_transaction)(30)
        if _stop.wait(PAUSE_S):
            return


def count_on(address: str, topic: str, file: str, partitions: int = 2) -> None:
    """Write one number after the other, each to the partition of its remainder."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    number = int(Path(file).read_text())
    while not _stop.wait(PAUSE_S / 10):
        producer.produce(topic, str(number), partition=number % partitions)
        producer.poll(0)
        number += 1
    assert producer.flush(30) == 0
    Path(file).write_text(str(number))


def consume(address: str, topic: str, group: str, file: str, reset: str) -> None:
    """Process each record once: its line is written, then it is committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
        }
    )
    consumer.subscribe([topic])
    with Path(file).open("a") as lines:
        while not _stop.is_set():
            for message in consumer.consume(10, 0.1):
                assert message.error() is None, message.error()
                lines.write(f"{message.partition()} {message.value().decode()}\n")
                lines.flush()
                consumer.commit(message=message, asynchronous=False)
    consumer.close()


def start(*words: str) -> Popen[bytes]:
    """One of the two, as a process."""
    return Popen(
        [sys.executable, "-m", "tests.harness.moving", *words],
        cwd=ROOT,
        stdin=DEVNULL,
        preexec_fn=set_parent_death_signal,
    )


def end(process: Popen[bytes]) -> None:
    """SIGTERM; it has to end well."""
    process.terminate()
    assert fair_share.wait(process, 30) == 0


def lines_by_partition(file: Path) -> dict[int, list[str]]:
    """What a consumer has processed, in order."""
    found: dict[int, list[str]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        partition, _, value = line.partition(" ")
        found.setdefault(int(partition), []).append(value)
    return found


@contextmanager
def relay_records(shared: Clusters, topic: str) -> Iterator[None]:
    """A stage one of one line that goes on: what the source shows is written to the intermediate
    topic in envelopes, until the end of the block.

    Waits for the frontiers, since its epoch is above theirs.
    """
    epoch = wait_for_next_epoch(shared.destination, topic)
    clusters = Clusters(shared.source.for_another_thread(), shared.destination.for_another_thread())
    stopping = threading.Event()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            _relay(clusters, topic, epoch, stopping)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        until(lambda: not thread.is_alive(), "the relay has ended", 30)
        assert errors == []


def _relay(clusters: Clusters, topic: str, epoch: int, stopping: threading.Event) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": clusters.source.address,
            "group.id": "relay",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    partitions = clusters.source.partitions(topic)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    through = dict.fromkeys(range(partitions), -1)
    while not stopping.is_set():
        records = []
        for message in consumer.consume(1000, 0.1):
            assert message.error() is None or message.error().code() == KafkaError._PARTITION_EOF, (
                message.error()
            )
            records.append((message.partition(), message.offset(), to_record(message)))
        if records:
            write_intermediate(
                clusters,
                topic,
                topic,
                wrap_records(clusters, topic, records, epoch, after=through),
            )
            through |= {partition: offset for partition, offset, _ in records}
    consumer.close()


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _stop.set())
    {"produce": produce, "count": count_on, "consume": consume}[sys.argv[1]](*sys.argv[2:])
