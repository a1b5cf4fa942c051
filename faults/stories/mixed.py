"""Everything at random: processes die or freeze, connections are cut, go silent or lose a request,
a broker restarts.
"""

from __future__ import annotations

import os
import signal
import time

from faults.run import Run, Story
from faults.stories.kills import all_processes
from faults.stories.network import REQUESTS, get_proxy
from tests.harness.kafka import until
from tests.harness.service import Service, send_signal

TIMES = 7


def kill_processes(run: Run, service: Service) -> None:
    """Kill one or two processes."""
    for stage in run.rng.choice(
        (("replicator",), ("jvm",), ("deduplicator",), ("deduplicator", "jvm"))
    ):
        run.kill_stage(service, stage)


def freeze_process(run: Run, service: Service) -> None:
    """Stop a process for some seconds."""
    stage = run.rng.choice(("jvm", "deduplicator"))
    pid = until(lambda: service.find_pid(stage), f"{stage} lives")
    send_signal(pid, signal.SIGSTOP)
    seconds = run.rng.uniform(1, 12)
    run.record_fault(f"SIGSTOP for {seconds:.0f} s")
    time.sleep(seconds)  # how long it lasts is the harm
    os.kill(pid, signal.SIGCONT)
    run.stage_two_deaths += 1


def cut_connections(run: Run, _: Service) -> None:
    """Cut all connections to one cluster."""
    run.record_fault(
        "connections cut", get_proxy(run, run.rng.choice(("source", "destination"))).cut_all()
    )


def make_half_open(run: Run, _: Service) -> None:
    """Make the connections to one cluster half-open for some seconds."""
    proxy = get_proxy(run, run.rng.choice(("source", "destination")))
    proxy.half_open = True
    seconds = run.rng.uniform(1, 12)
    run.record_fault(f"half-open for {seconds:.0f} s")
    time.sleep(seconds)  # how long it lasts is the harm
    proxy.half_open = False


def lose_request(run: Run, _: Service) -> None:
    """Lose one request to the destination; if no request of the chosen API comes, none is lost."""
    rule = get_proxy(run, "destination").add_rule(
        run.rng.choice(("drop", "swallow_answer", "cut")),
        run.rng.choice(REQUESTS),
        nth=run.rng.randint(1, 5),
    )
    if rule.matched_event.wait(10):
        run.record_fault("request lost")


def restart_broker(run: Run, _: Service) -> None:
    """Restart a broker cleanly; another story has the effects of a killed single node on
    transactions.
    """
    broker = run.rng.choice((run.clusters.source, run.clusters.destination)).broker
    broker.stop(timeout_s=60)
    run.record_fault("broker restarted")
    broker.start().wait()


FAULTS = (
    kill_processes,
    kill_processes,
    freeze_process,
    cut_connections,
    make_half_open,
    lose_request,
    restart_broker,
)


def inject_any_fault(run: Run, times: int = TIMES) -> None:
    """One fault after the other, sometimes with a pause, sometimes while the service still
    recovers.
    """
    service = run.start()
    run.wait_for_progress()
    for _ in range(times):
        run.rng.choice(FAULTS)(run, service)
        if run.rng.random() < 0.7:
            run.wait_for_progress(300, 2000)
    if run.rng.random() < 0.3:
        all_processes(service)
        run.mark_ended(service)
        run.record_fault("SIGKILL of everything")
        run.counters_lost = True
        run.start()
    run.wait_for_progress()


STORIES = (Story("everything mixed", inject_any_fault, brokers="proxied", timeline=True),)
