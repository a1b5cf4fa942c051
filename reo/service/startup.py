"""What a start does before the stages, in a child process: runs the checks (`reo.check`), creates
topics, syncs configurations.

A request can abort its process: librdkafka (2.16) fails an assertion when the connection to a group
coordinator is lost at the wrong moment (librdkafka #4605). The service itself must not end, so a
new child follows one that died. And a service that is told to stop while a cluster does not answer
does not have to wait for it.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection

from common.errors import StageFailed
from common.kafka import topic_creation, topics
from common.parent_death_signal import set_parent_death_signal
from common.routes import Route
from common.settings import Settings
from common.stage_process import Stopping
from reo import check
from reo.migration import config_drift

log = logging.getLogger(__name__)
TRIES = 5
TICK_S = 0.05


def prepare_clusters(
    settings: Settings, stages: Sequence[str], stopping: Stopping
) -> dict[Route, topics.Topic] | None:
    """Prepare both clusters for these stages and return the routes, with their source topics; None
    when told to stop before. Raises the child's error.
    """
    fork = multiprocessing.get_context("fork")
    for _ in range(TRIES):
        receiver, sender = fork.Pipe(duplex=False)
        child = fork.Process(target=_run_child, args=(settings, stages, sender), daemon=True)
        child.start()
        sender.close()
        try:
            while not receiver.poll(TICK_S):
                if stopping():
                    return None
            answer = receiver.recv()
        except EOFError:
            child.join()
            log.warning(
                "the process that prepares the clusters ended with exit code %s and without an"
                " answer: a new one starts",
                child.exitcode,
            )
            continue
        finally:
            child.kill()
            child.join()
            receiver.close()
        if isinstance(answer, BaseException):
            raise answer
        copied: dict[Route, topics.Topic] = answer
        return copied
    raise StageFailed(
        f"the process that prepares the clusters before the start has died {TRIES} times: read its"
        " output above"
    )


def _run_child(settings: Settings, stages: Sequence[str], answers: Connection) -> None:
    set_parent_death_signal()
    try:
        answers.send(_prepare(settings, stages))
    except Exception as error:  # the parent raises it
        answers.send(error)


def _prepare(settings: Settings, stages: Sequence[str]) -> dict[Route, topics.Topic]:
    start = check.Start(settings, stages)
    check.raise_first_error(start, "start")
    if not start.topics.is_complete():
        logging.disable(logging.INFO)  # the checks try what the stages do at their start
        check.raise_first_error(start, "before creating")
        logging.disable(logging.NOTSET)
    copied = topic_creation.create_missing(start.topics)
    if "deduplicator" in stages and settings.topics.synced_configs:
        config_drift.sync_configs(start.answering)
    return copied
