"""The intermediate topic loses envelopes that stage two has not read, or all of itself: that costs
a repeated read of the source, and nothing else. No story here has a stop.

Stage two stands still while the harm is done, so that there are unread envelopes. Where the ends of
the partitions have to show the loss, stage one's JVM stands still, too.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.harness.kafka import until
from tests.harness.service import Service, send_signal
from tools.demo.broker import Broker
from tools.faults.run import HEAL_S, PARTITIONS, RUN_BEGINS, Run, Story
from tools.faults.stories.topic_limits import set_config
from tools.faults.testbed import ThreeBrokers

UNREAD = 20
"""So many envelopes at least are lost unread."""
START_CHECKPOINT = "log-start-offset-checkpoint"
"""A broker's file of the first offset of each partition: one line each, after its version and their
number.
"""


def get_intermediate(run: Run) -> str:
    """The name of the intermediate topic."""
    return f"{run.topic}-proxy"


@contextmanager
def freeze(run: Run, service: Service, stage: str) -> Iterator[None]:
    """SIGSTOP this process for the block."""
    pid = until(lambda: service.find_pid(stage), f"{stage} lives")
    send_signal(pid, signal.SIGSTOP)
    run.stage_two_deaths += stage == "deduplicator"
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def list_ends(run: Run) -> dict[int, int]:
    """The ends of the intermediate topic."""
    return run.clusters.destination.end_offsets(get_intermediate(run))


def wait_for_unread(run: Run) -> None:
    """Wait until stage one has written so many envelopes that a stage two that stands still has not
    read.
    """
    target = sum(list_ends(run).values()) + UNREAD
    until(lambda: sum(list_ends(run).values()) >= target, "there are unread envelopes", HEAL_S)


def delete_topic(run: Run) -> None:
    """Somebody deletes the intermediate topic; the group's commits on it go with it."""
    run.clusters.destination.admin.delete_topics([get_intermediate(run)])[
        get_intermediate(run)
    ].result()
    run.record_fault("intermediate topic deleted")


def recreate_topic(run: Run) -> None:
    """Somebody deletes the intermediate topic and creates it again, unless a producer of the
    service was faster: its requests for metadata create a missing topic.
    """
    delete_topic(run)
    try:
        run.clusters.destination.create(get_intermediate(run), PARTITIONS)
    except KafkaException as failed:
        if failed.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    else:
        run.record_fault("intermediate topic created again")


def purge_topic(run: Run) -> None:
    """Somebody deletes all envelopes, as retention would."""
    requests = [
        TopicPartition(get_intermediate(run), partition, end)
        for partition, end in list_ends(run).items()
    ]
    for answer in run.clusters.destination.admin.delete_records(requests).values():
        answer.result()
    run.record_fault("intermediate topic purged")


def lose_unread(run: Run, lose: Callable[[Run], None], times: int = 2) -> None:
    """Lose unread envelopes, several times, with copied records in between; a new run writes again
    what was in them.
    """
    service = run.start()
    run.wait_for_progress()
    for _ in range(times):
        runs_before = service.log.count(RUN_BEGINS)
        with freeze(run, service, "deduplicator"):
            wait_for_unread(run)
            lose(run)
        until(
            lambda runs_before=runs_before: service.log.count(RUN_BEGINS) > runs_before,  # type: ignore[misc]
            "a new run has begun",
            HEAL_S,
        )
        run.wait_for_progress()


def restore_older_log(run: Run) -> None:
    """The only broker of the destination comes back with older logs of the intermediate topic, as
    with a disk of yesterday. The first offsets, in a file of all partitions, are set back, too.

    Each time everything is copied before the broker ends: a transaction that is open then may stay
    open for ever (KAFKA-20734).
    """
    broker = run.clusters.destination.broker
    run.start()
    run.wait_for_progress()
    wait_until_idle(run)
    broker.stop(timeout_s=60)
    saved_folder = run.folder / "older"
    first_offsets = save_logs(broker, get_intermediate(run), saved_folder)
    broker.start().wait()
    run.load.resume()
    run.wait_for_progress()
    wait_until_idle(run)
    ends_before = list_ends(run)
    broker.stop(timeout_s=60)
    restore_logs(broker, get_intermediate(run), saved_folder, first_offsets)
    broker.start().wait()
    ends = list_ends(run)
    lost = sum(ends_before.values()) - sum(ends.values())
    assert lost > 0, f"nothing was lost: {ends_before}, then {ends}"
    run.record_fault("older logs of the intermediate topic")
    run.record_fault("lost intermediate records", lost)
    run.load.resume()
    run.wait_for_progress()


def wait_until_idle(run: Run) -> None:
    """Pause the load, and wait until all of it is copied."""
    run.load.pause()
    run.clusters.wait_for_copy(run.topic, sum(map(len, run.read_source().values())), HEAL_S)
    assert run.clusters.destination.wait_until_no_transaction_is_open(run.topic)


def list_logs(broker: Broker, topic: str) -> list[Path]:
    """The folders of a topic's partitions."""
    return [broker.folder / "data" / f"{topic}-{partition}" for partition in range(PARTITIONS)]


def save_logs(broker: Broker, topic: str, to: Path) -> list[str]:
    """Copy a topic's logs of a broker that is stopped; returns the lines of its first offsets."""
    for log in list_logs(broker, topic):
        shutil.copytree(log, to / log.name)
    lines = (broker.folder / "data" / START_CHECKPOINT).read_text().splitlines()[2:]
    return [line for line in lines if line.startswith(f"{topic} ")]


def restore_logs(broker: Broker, topic: str, saved: Path, first_offsets: list[str]) -> None:
    """Put back what `save_logs` has copied."""
    for log in list_logs(broker, topic):
        shutil.rmtree(log)
        shutil.copytree(saved / log.name, log)
    checkpoint = broker.folder / "data" / START_CHECKPOINT
    version, _, *lines = checkpoint.read_text().splitlines()
    others = [line for line in lines if not line.startswith(f"{topic} ")]
    lines = [*others, *first_offsets]
    checkpoint.write_text("\n".join([version, str(len(lines)), *lines, ""]))


def elect_unclean_leader(run: Run) -> None:
    """Of two replicas one is down while the other takes envelopes; then that one is down, and the
    first leads with what it has.
    """
    brokers = run.clusters.destination.broker
    assert isinstance(brokers, ThreeBrokers)
    service = run.start()
    run.wait_for_progress()
    topic = get_intermediate(run)
    set_config(run, topic, "unclean.leader.election.enable", "true")
    leader, follower = find_replicas(run.clusters.destination.admin, topic)
    by_id = {int(broker.settings["node.id"]): broker for broker in brokers.brokers}
    by_id[follower].kill()
    run.record_fault("SIGKILL of a follower")
    until(
        lambda: find_in_sync(run.clusters.destination.admin, topic) == [leader],
        "the leader is alone in sync",
        HEAL_S,
    )
    run.wait_for_progress()
    with freeze(run, service, "jvm"):
        end_before = list_ends(run)[0]
        by_id[leader].kill()
        by_id[follower].start().wait()
        end = list_ends(run)[0]  # when each partition has a leader
    assert end < end_before, f"nothing was lost: the end was {end_before}, then {end}"
    run.record_fault("unclean leader of the intermediate topic")
    run.record_fault("lost intermediate records", end_before - end)
    run.wait_for_progress()
    by_id[leader].start().wait()
    run.wait_for_progress()


def find_replicas(admin: AdminClient, topic: str) -> tuple[int, int]:
    """The leader of a topic's first partition, and its only follower."""
    partition = admin.list_topics(topic, timeout=10).topics[topic].partitions[0]
    (follower,) = set(partition.replicas) - {partition.leader}
    return partition.leader, follower


def find_in_sync(admin: AdminClient, topic: str) -> list[int]:
    """The in-sync replicas of a topic's first partition."""
    return list(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].isrs)


STORIES = (
    *(
        Story(f"intermediate topic {name}", partial(lose_unread, lose=lose))
        for name, lose in (
            ("deleted", delete_topic),
            ("deleted and created again", recreate_topic),
            ("purged", purge_topic),
        )
    ),
    Story("intermediate topic set back to older logs", restore_older_log, brokers="own"),
    Story("intermediate topic with an unclean leader", elect_unclean_leader, brokers="three"),
)
