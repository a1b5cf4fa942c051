"""Brokers die, restart and freeze: each cluster, the destination with one node and with three."""

from __future__ import annotations

import signal
import time
from functools import partial

from tests.harness.kafka import Clusters
from tools.demo.broker import Broker
from tools.faults.run import Run, Story
from tools.faults.testbed import ThreeBrokers

FREEZE_S = (5, 20)


def choose_broker(clusters: Clusters, side: str, run: Run) -> Broker:
    """A broker of this side, a random one of three."""
    broker = clusters.source.broker if side == "source" else clusters.destination.broker
    return run.rng.choice(broker.brokers) if isinstance(broker, ThreeBrokers) else broker


def kill_broker(broker: Broker, run: Run) -> None:
    """SIGKILL a broker, and start a new process on its data."""
    assert broker.running
    broker.kill()
    run.record_fault("SIGKILL of a broker")
    time.sleep(run.rng.uniform(0, 3))  # the downtime is part of the fault
    broker.start().wait()


def restart_broker(broker: Broker, run: Run) -> None:
    """A clean stop and a start."""
    assert broker.running
    broker.stop(timeout_s=60)
    run.record_fault("clean restart of a broker")
    broker.start().wait()


def freeze_broker(broker: Broker, run: Run) -> None:
    """SIGSTOP for some seconds: connections stay open, nothing responds."""
    assert broker.process is not None
    broker.process.send_signal(signal.SIGSTOP)
    run.record_fault("SIGSTOP of a broker")
    time.sleep(run.rng.uniform(*FREEZE_S))
    broker.process.send_signal(signal.SIGCONT)


FAULTS = {"SIGKILL": kill_broker, "restart": restart_broker, "SIGSTOP": freeze_broker}


def fault_brokers(run: Run, side: str, way: str, times: int = 2) -> None:
    """The same fault several times, with copied records in between."""
    run.start()
    run.wait_for_progress()
    for _ in range(times):
        FAULTS[way](choose_broker(run.clusters, side, run), run)
        run.wait_for_progress()


def fault_any_broker(run: Run, times: int = 5) -> None:
    """Random faults of random brokers of three."""
    run.start()
    run.wait_for_progress()
    for _ in range(times):
        FAULTS[run.rng.choice(sorted(FAULTS))](choose_broker(run.clusters, "destination", run), run)
        run.wait_for_progress()


STORIES = (
    *(
        Story(f"broker {way}, {side}", partial(fault_brokers, side=side, way=way), brokers="own")
        for way in FAULTS
        for side in ("source", "destination")
    ),
    *(
        Story(
            f"broker {way}, one of three",
            partial(fault_brokers, side="destination", way=way),
            brokers="three",
        )
        for way in FAULTS
    ),
    Story("brokers of three, mixed", fault_any_broker, brokers="three"),
)
