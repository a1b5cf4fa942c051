"""A topic at the destination refuses a record for its size: the intermediate topic, or the
destination topic. The stories are in `intermediates`.
"""

from __future__ import annotations

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from common.errors import RecordRefused
from tests.harness.copy_judge import Record
from tests.harness.kafka import make_record, until
from tools.faults.run import Run

SMALL_BYTES, LARGE_BYTES = 200_000, 300_000
"""Above the size of a full envelope, and of a record that is alone in its own."""
LIMIT = "max.message.bytes"
TIMES = 3


def set_config(run: Run, topic: str, name: str, value: str) -> None:
    """Set a configuration of a topic at the destination."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    run.clusters.destination.admin.incremental_alter_configs([resource])[resource].result()
    until(
        lambda: run.clusters.destination.config(topic)[name] == value,
        f"{name} of {topic} is {value}",
    )


def write_large_record(run: Run) -> None:
    """One in the middle of many small ones, in a partition."""
    numbers = [next(run.load.numbers) for _ in range(4001)]
    small = [make_record(number) for number in numbers]
    large = Record(b"large", b"x" * LARGE_BYTES, (), 1_700_000_000_000)
    run.clusters.source.write(
        run.topic, [(0, record) for record in (*small[:2000], large, *small[2000:])]
    )


def refuse_large_envelope(run: Run) -> None:
    """The intermediate topic refuses the envelope of one record in the middle of many, while those
    after it may be on their way: a named stop; with the limit raised, exact.
    """
    service = run.start()
    for _ in range(TIMES):
        run.wait_for_progress()
        set_config(run, f"{run.topic}-proxy", LIMIT, str(SMALL_BYTES))
        write_large_record(run)
        run.record_fault("record refused by the intermediate topic")
        run.expect_stop(service, RecordRefused)
        set_config(run, f"{run.topic}-proxy", LIMIT, "1100000")
        service = run.start()
    run.wait_for_progress()


def refuse_large_record(run: Run) -> None:
    """The destination refuses a record: a named stop with its place; with the limit raised,
    exact.
    """
    service = run.start()
    run.wait_for_progress()
    set_config(run, run.topic, LIMIT, str(SMALL_BYTES))
    write_large_record(run)
    run.record_fault("record refused by the destination")
    run.expect_stop(service, RecordRefused)
    set_config(run, run.topic, LIMIT, "1048588")
    run.start()
    run.wait_for_progress()
