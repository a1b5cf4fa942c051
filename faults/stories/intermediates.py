"""The topics at the destination refuse records, carry what is not ours, or may not be written;
readers wait for a dead worker's transaction.
"""

from __future__ import annotations

import signal
import time
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from common import origin
from common.errors import AccessRefused, ForeignRecord
from common.kafka import partition_offsets
from common.kafka.partition_offsets import GroupCommit
from common.routes import TopicPartition
from faults.run import DEFAULTS, PARTITIONS, Run, Story
from faults.stories.large_records import make_hole, refuse_large_record
from tests.harness.failpoint_marker import wait_for_failpoint
from tests.harness.judge import Record
from tests.harness.kafka import make_record, until
from tests.harness.service import send_signal
from tests.harness.stage_one import wrap_records, write_intermediate

PATIENCE_S = 120
LOOKS_EVERY_S = 10
"""How often a coordinator looks for expired transactions."""


def add_straggler(run: Run) -> None:
    """While the JVM stands still, a task attempt of an earlier batch repeats the last accepted
    record of each partition: what the run writes next does not follow it. All of that is behind a
    hole, in the middle of a Real-Time-Mode batch and under load, until the watch sees it and a new
    run begins.
    """
    service = run.start()
    run.wait_for_progress()
    jvm = until(lambda: service.find_pid("jvm"), "the JVM lives")
    send_signal(jvm, signal.SIGSTOP)
    until(lambda: is_drained(run), "stage two has read everything", PATIENCE_S)
    for tp, commit in read_commits(run).items():
        rule = commit.frontier.rule
        assert rule.link, f"nothing was accepted of {tp} yet"
        offset, batch, sequence = rule.link
        again = wrap_records(
            run.clusters,
            run.topic,
            [(tp.partition, offset, make_record(0))],
            rule.epoch,
            batch - 1,
            {tp.partition: sequence + 9},
        )
        write_intermediate(run.clusters, run.topic, run.topic, again)
        run.record_fault("link taken by a straggler")
    until(lambda: is_drained(run), "stage two has read that too", PATIENCE_S)
    send_signal(jvm, signal.SIGCONT)
    service.wait_for_log("ended: hole", PATIENCE_S)
    run.wait_for_progress()
    run.record_fault(
        "records behind holes", int(service.metric("reo_records_dropped_total", reason="hole"))
    )
    assert run.hits["records behind holes"], "there was no hole"


def read_commits(run: Run) -> dict[TopicPartition, GroupCommit]:
    """The group's commits."""
    consumer = Consumer(
        {
            "bootstrap.servers": run.clusters.destination.address,
            "group.id": f"reo-{run.topic}",
            "log_level": 0,
        }
    )
    try:
        return partition_offsets.read_commits(
            consumer,
            [TopicPartition(f"{run.topic}-proxy", partition) for partition in range(PARTITIONS)],
            PATIENCE_S,
        )
    finally:
        consumer.close()


def is_drained(run: Run) -> bool:
    """Whether the committed offsets are the ends of the intermediate topic."""
    ends = run.clusters.destination.end_offsets(f"{run.topic}-proxy")
    return {
        tp.partition: commit.intermediate_offset for tp, commit in read_commits(run).items()
    } == ends


def write_foreign_record(run: Run) -> None:
    """Somebody writes to the intermediate topic, while the service runs: a named stop, and nothing
    of it arrives; skipped as the error says, exact.
    """
    service = run.start()
    run.wait_for_progress()
    header = run.rng.choice(
        (
            None,
            b"",
            b"no origin",
            b"\x01",
            b"\x02" + bytes(53),
            origin.encode(origin.Origin(9, 1, 1, 0, 1, 1, 0, "1d" * 8)),
        )
    )
    run.load.pause()
    run.clusters.destination.write(
        f"{run.topic}-proxy", [(0, Record(b"whose", b"is this", ((origin.HEADER, header),)))]
    )
    run.record_fault("foreign record on the intermediate topic")
    run.expect_final_stop(service, ForeignRecord, run.read_source())


def deny_write(run: Run) -> None:
    """The right to write to the destination is taken away while it runs: a named stop; given back,
    exact.
    """
    service = run.start()
    run.wait_for_progress()
    admin = run.clusters.destination.admin
    rule = AclBinding(
        ResourceType.TOPIC,
        run.topic,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )
    for future in admin.create_acls([rule]).values():
        future.result()
    run.record_fault("write permission taken away")
    run.expect_stop(service, AccessRefused)
    anybody: Any = None
    given_back = AclBindingFilter(
        ResourceType.TOPIC,
        run.topic,
        ResourcePatternType.LITERAL,
        anybody,
        anybody,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    for future in admin.delete_acls([given_back]).values():
        future.result()
    run.start()
    run.wait_for_progress()


DEATHS_MAX = 10


def block_readers(run: Run) -> None:
    """A worker dies with an open transaction and nobody comes: readers of the destination wait no
    longer than documented.
    """
    cluster = run.clusters.destination
    # when it freezes, its client may not have sent a record yet: then nothing is blocked, and
    # another one dies
    for number in range(DEATHS_MAX):
        marker_file = run.folder / f"frozen-{number}"
        service = run.start(freeze_at=f"two: offsets sent:{run.rng.randint(3, 12)}:{marker_file}")
        wait_for_failpoint(marker_file, "two: offsets sent")
        service.kill_all()
        run.mark_ended(service)
        start_s = time.monotonic()
        if cluster.end_offsets(run.topic, stable=True) != cluster.end_offsets(run.topic):
            break
    else:
        raise AssertionError(f"nothing was blocked by {DEATHS_MAX} deaths")
    run.counters_lost = True
    bound_s = int(DEFAULTS["deduplicator_transaction_timeout_ms"]) / 1000 + LOOKS_EVERY_S
    until(lambda: cluster.has_no_open_transaction(run.topic), "readers go on", bound_s + 1)
    blocked_s = time.monotonic() - start_s
    run.record_fault(f"readers blocked for {blocked_s:.1f} s of at most {bound_s:.0f}")
    run.start()
    run.wait_for_progress()


STORIES = (
    Story("hole in the intermediate topic", make_hole),
    Story("straggler of an earlier batch", add_straggler),
    Story("record too large for the destination", refuse_large_record),
    Story("foreign record", write_foreign_record),
    Story("permission taken away", deny_write, brokers="guarded"),
    Story("readers behind an open transaction", block_readers),
)
