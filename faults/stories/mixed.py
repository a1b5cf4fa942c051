"""Everything at random: processes die or freeze, connections are cut, go silent or lose a request, a broker restarts."""

from __future__ import annotations

import os
import signal
import time

from faults.run import Run, Story
from faults.stories.kills import all_processes
from faults.stories.network import REQUESTS, get_proxy
from tests.kafka import until
from tests.service import Service, send_signal

TIMES = 7


def kill_processes(run: Run, service: Service) -> None:
    """One or two processes."""
    for stage in run.chance.choice((("replicator",), ("jvm",), ("deduplicator",), ("deduplicator", "jvm"))):
        run.kill_stage(service, stage)


def freeze_process(run: Run, service: Service) -> None:
    """A process for some seconds."""
    stage = run.chance.choice(("jvm", "deduplicator"))
    pid = until(lambda: service.find_pid(stage), f"{stage} lives")
    send_signal(pid, signal.SIGSTOP)
    run.hit("SIGSTOP")
    time.sleep(run.chance.uniform(1, 12))  # how long it lasts is the harm
    os.kill(pid, signal.SIGCONT)
    run.stage_two_deaths += 1


def cut_connections(run: Run, _: Service) -> None:
    """Of one side."""
    run.hit("connections cut", get_proxy(run, run.chance.choice(("source", "destination"))).cut_all())


def make_half_open(run: Run, _: Service) -> None:
    """One side, for some seconds."""
    proxy = get_proxy(run, run.chance.choice(("source", "destination")))
    proxy.half_open = True
    run.hit("half-open")
    time.sleep(run.chance.uniform(1, 12))  # how long it lasts is the harm
    proxy.half_open = False


def lose_request(run: Run, _: Service) -> None:
    """One that comes by at the destination; if none of its kind does, none is lost."""
    rule = get_proxy(run, "destination").rule(run.chance.choice(("drop", "swallow_answer", "cut")), run.chance.choice(REQUESTS),
                                             nth=run.chance.randint(1, 5))
    if rule.hit.wait(10):
        run.hit("request lost")


def restart_broker(run: Run, _: Service) -> None:
    """Cleanly; what a killed single node does to transactions is a story of its own."""
    broker = run.chance.choice((run.clusters.source, run.clusters.destination)).broker
    broker.stop(timeout_s=60)
    run.hit("broker restarted")
    broker.start().wait()


FAULTS = (kill_processes, kill_processes, freeze_process, cut_connections, make_half_open, lose_request, restart_broker)


def inject_any_fault(run: Run, times: int = TIMES) -> None:
    """One after the other, sometimes with a pause in between, sometimes on top of what is still being repaired."""
    service = run.start()
    run.flows()
    for _ in range(times):
        run.chance.choice(FAULTS)(run, service)
        if run.chance.random() < 0.7:
            run.flows(300, 2000)
    if run.chance.random() < 0.3:
        all_processes(service)
        run.done(service)
        run.hit("SIGKILL of everything")
        run.counters_lost = True
        run.start()
    run.flows()


STORIES = (Story("everything mixed", inject_any_fault, brokers="proxied", timeline=True),)
