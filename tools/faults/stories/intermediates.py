"""The topics at the destination refuse records, carry what is not ours, or may not be written;
readers wait for a dead worker's transaction.
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from common.envelope import Head
from common.errors import AccessRefused, ForeignRecord
from tests.harness.copy_judge import Record
from tests.harness.failpoint_marker import wait_for_failpoint
from tests.harness.kafka import until
from tools.envelope_encoder import encode
from tools.faults.run import DEFAULTS, Run, Story
from tools.faults.stories.topic_limits import refuse_large_envelope, refuse_large_record

LOOKS_EVERY_S = 10
"""How often a coordinator looks for expired transactions."""


def write_foreign_record(run: Run) -> None:
    """Somebody writes to the intermediate topic, while the service runs: a named stop, and nothing
    of it arrives; skipped as the error says, exact.
    """
    service = run.start()
    run.wait_for_progress()
    envelope = encode(Head("1d" * 8, 1, 0, -1, 9))
    foreign = run.rng.choice(
        (
            Record(b"whose", b"is this"),
            Record(None, None),
            Record(None, b"no envelope"),
            Record(None, b"\x03" + envelope[1:]),
            Record(None, envelope[:-1]),
            Record(None, envelope + b"more"),
            Record(None, envelope, (("a header", b""),)),
            Record(None, encode(Head("1d" * 8, 1, 9, -1, 9))),
        )
    )
    run.load.pause()
    run.clusters.destination.write(f"{run.topic}-proxy", [(0, foreign)])
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
    Story("record too large for the intermediate topic", refuse_large_envelope),
    Story("record too large for the destination", refuse_large_record),
    Story("foreign record", write_foreign_record),
    Story("permission taken away", deny_write, brokers="guarded"),
    Story("readers behind an open transaction", block_readers),
)
