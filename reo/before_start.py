"""What is asked of the clusters before the service starts anything, by a process of its own.

A question can be the end of the process that asks it: librdkafka (2.16) aborts by an assertion when the connection to a group's coordinator is lost at
the wrong moment (librdkafka #4605). A process of a stage is started again after that; the service itself must not end by it, so a child asks, and another
one when that was its end. And whoever is told to stop while a cluster is silent does not have to wait for it.
"""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection

from common import permissions, source_candidates, tables, topics
from common.children import die_with_parent
from common.errors import StageFailed
from common.process import Stopping
from common.routes import Place
from common.settings import Settings

log = logging.getLogger(__name__)
TRIES = 5
TICK_S = 0.05


def asked(settings: Settings, stages: Sequence[str], stopping: Stopping) -> list[Place] | None:
    """The intermediate partitions, when everything is there that these stages need; None when told to stop before. Raises what the child met."""
    fork = multiprocessing.get_context("fork")
    for _ in range(TRIES):
        ours, theirs = fork.Pipe(duplex=False)
        child = fork.Process(target=_ask, args=(settings, stages, theirs), daemon=True)
        child.start()
        theirs.close()
        try:
            while not ours.poll(TICK_S):
                if stopping():
                    return None
            answer = ours.recv()
        except EOFError:
            child.join()
            log.warning("the process that asks the clusters ended with exit code %s before it had an answer: another one asks", child.exitcode)
            continue
        finally:
            child.kill()
            child.join()
            ours.close()
        if isinstance(answer, BaseException):
            raise answer
        places: list[Place] = answer
        return places
    raise StageFailed(f"the process that asks the clusters before the start has died {TRIES} times: look at what it said, above")


def _ask(settings: Settings, stages: Sequence[str], answers: Connection) -> None:
    die_with_parent()
    try:
        answers.send(_places(settings, stages))
    except Exception as error:  # it is the parent's to raise
        answers.send(error)


def _places(settings: Settings, stages: Sequence[str]) -> list[Place]:
    on = source_candidates.select_answering(settings)
    permissions.check_permissions(on, *(permissions.OF_STAGE[stage] for stage in stages))
    if "deduplicator" in stages and tables.named(on):
        from common import postgresql

        postgresql.check(on)
    return topics.intermediates(topics.prepare(on))
