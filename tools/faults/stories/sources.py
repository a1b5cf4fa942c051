"""The source is truncated or recreated, while the copy runs and while it is stopped; and it grows
by partitions.
"""

from __future__ import annotations

import time
from functools import partial

from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

from common.errors import SourceRecreated, SourceTruncated, TopicMissing
from tests.harness.copy_judge import Partitions
from tests.harness.kafka import make_records, until
from tests.harness.service import Service
from tools.faults.run import HEAL_S, PARTITIONS, Run, Story

NOTICED_S = 60


def pause_load(run: Run) -> Partitions:
    """Pause the load; return all records of the source."""
    run.load.pause()
    return run.read_source()


def delete_all_records(run: Run) -> None:
    """Delete every record of the source, as retention does with old records."""
    ends = run.clusters.source.end_offsets(run.topic)
    delete_before = [TopicPartition(run.topic, partition, end) for partition, end in ends.items()]
    for future in run.clusters.source.admin.delete_records(delete_before).values():
        future.result()
    run.record_fault("source truncated past the frontier")


def recreate_source(run: Run, share: float) -> None:
    """Recreate the topic, with `share` times as many records."""
    records = int(sum(run.clusters.source.end_offsets(run.topic).values()) * share) + PARTITIONS
    run.clusters.source.delete(run.topic)
    run.clusters.source.create(run.topic, PARTITIONS)
    run.clusters.source.write(run.topic, make_records(range(10**6, 10**6 + records), PARTITIONS))
    run.record_fault(f"source recreated, {'shorter' if share < 1 else 'longer'}")


def truncate_while_stopped(run: Run) -> None:
    """Records are deleted before they are copied: the next start reports how many, and writes
    nothing.
    """
    service = run.start()
    run.wait_for_progress()
    run.stop(service)
    before = pause_load(run)
    delete_all_records(run)
    run.expect_final_stop(run.start(), SourceTruncated, before)


def truncate_while_running(run: Run) -> None:
    """Records are deleted while the JVM of stage one is stopped; then the JVM continues."""
    service, before = _freeze_behind_source(run)
    delete_all_records(run)
    _wake_jvm(service)
    run.expect_final_stop(service, SourceTruncated, before)


def truncate_at_offset_0(run: Run) -> None:
    """Real-Time Mode waits at offset 0 when that offset is deleted: it would retry for ever without
    a message, and no later record shows it.
    """
    service = run.start()
    until(
        lambda: service.metric("reo_ready", stage="replicator") == 1, "the query waits at offset 0"
    )
    service.signal("jvm", "SIGSTOP")
    run.load.resume()
    until(lambda: run.load.produced > 3000, "the source has records")
    before = pause_load(run)
    delete_all_records(run)
    _wake_jvm(service)
    noticed_by = time.monotonic() + NOTICED_S
    run.expect_final_stop(service, SourceTruncated, before)
    assert time.monotonic() < noticed_by, f"not noticed in {NOTICED_S} s"


def _freeze_behind_source(run: Run) -> tuple[Service, Partitions]:
    """A running service whose JVM is stopped while the source has more records."""
    service = run.start()
    run.wait_for_progress()
    service.signal("jvm", "SIGSTOP")
    produced_before = run.load.produced
    until(
        lambda: run.load.produced > produced_before + 8000,
        "the source has records that were not read",
    )
    return service, pause_load(run)


def _wake_jvm(service: Service) -> None:
    service.signal("jvm", "SIGCONT")


def recreate_while_stopped(run: Run, share: float) -> None:
    """The source topic is recreated before the start."""
    service = run.start()
    run.wait_for_progress()
    run.stop(service)
    before = pause_load(run)
    recreate_source(run, share)
    run.expect_final_stop(run.start(), SourceRecreated, before)


def recreate_while_running(run: Run, share: float) -> None:
    """The topic is deleted and recreated under a running query.

    A service that checks in between finds no topic; its next start finds a recreated source topic.
    """
    service = run.start()
    run.wait_for_progress()
    before = pause_load(run)
    recreate_source(run, share)
    if service.wait_for_exit(HEAL_S) == TopicMissing.exit_code:
        run.expect_stop(service, TopicMissing)
        run.record_fault("looked for while it was away")
        service = run.start()
    run.expect_final_stop(service, SourceRecreated, before)


def add_partitions(run: Run) -> None:
    """Partitions are added and written to at once: they are copied from their first record on."""
    run.start()
    run.wait_for_progress()
    added = PARTITIONS + run.rng.randint(1, 3)
    run.clusters.source.admin.create_partitions([NewPartitions(run.topic, added)])[
        run.topic
    ].result()
    until(
        lambda: run.clusters.source.partitions(run.topic) == added,
        "the source has the new partitions",
    )
    run.load.partitions = added
    run.record_fault("partitions added", added - PARTITIONS)
    until(
        lambda: run.clusters.destination.partitions(run.topic) == added,
        "the destination has the new partitions",
        NOTICED_S,
    )
    run.wait_for_progress()


STORIES = (
    Story("source truncated, stopped", truncate_while_stopped),
    Story("source truncated, running", truncate_while_running),
    Story("source truncated at offset 0", truncate_at_offset_0, starts_paused=True),
    *(
        Story(f"source recreated {word}, stopped", partial(recreate_while_stopped, share=share))
        for word, share in (("shorter", 0.3), ("longer", 1.5))
    ),
    *(
        Story(f"source recreated {word}, running", partial(recreate_while_running, share=share))
        for word, share in (("shorter", 0.3), ("longer", 1.5))
    ),
    Story("partitions added", add_partitions),
)
