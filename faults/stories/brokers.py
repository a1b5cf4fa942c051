"""Brokers die, restart and freeze: each cluster, the destination with one node and with three."""

from __future__ import annotations

import signal
import time
from functools import partial

from faults.run import Run, Story
from faults.stand import Three
from reo.demo.broker import Broker
from tests.kafka import Clusters

FREEZE_S = (5, 20)


def one_of(clusters: Clusters, side: str, run: Run) -> Broker:
    """A broker of this side, any of three."""
    found = clusters.source.broker if side == "source" else clusters.destination.broker
    return run.chance.choice(found.brokers) if isinstance(found, Three) else found


def killed(broker: Broker, run: Run) -> None:
    """SIGKILL, and a new process on what was on disk."""
    assert broker.running
    broker.kill()
    run.hit("SIGKILL of a broker")
    time.sleep(run.chance.uniform(0, 3))  # how long it is away is part of the harm
    broker.start().wait()


def restarted(broker: Broker, run: Run) -> None:
    """A clean stop and a start."""
    assert broker.running
    broker.stop(timeout_s=60)
    run.hit("clean restart of a broker")
    broker.start().wait()


def frozen(broker: Broker, run: Run) -> None:
    """SIGSTOP for some seconds: connections stay, nothing answers."""
    assert broker.process is not None
    broker.process.send_signal(signal.SIGSTOP)
    run.hit("SIGSTOP of a broker")
    time.sleep(run.chance.uniform(*FREEZE_S))
    broker.process.send_signal(signal.SIGCONT)


WAYS = {"SIGKILL": killed, "restart": restarted, "SIGSTOP": frozen}


def harmed(run: Run, side: str, way: str, times: int = 2) -> None:
    """The same harm again, with records flowing in between."""
    run.start()
    run.flows()
    for _ in range(times):
        WAYS[way](one_of(run.clusters, side, run), run)
        run.flows()


def mixed(run: Run, times: int = 5) -> None:
    """Any broker of three, in any way."""
    run.start()
    run.flows()
    for _ in range(times):
        WAYS[run.chance.choice(sorted(WAYS))](one_of(run.clusters, "destination", run), run)
        run.flows()


STORIES = (
    *(Story(f"broker {way}, {side}", partial(harmed, side=side, way=way), brokers="own") for way in WAYS for side in ("source", "destination")),
    *(Story(f"broker {way}, one of three", partial(harmed, side="destination", way=way), brokers="three") for way in WAYS),
    Story("brokers of three, mixed", mixed, brokers="three"),
)
