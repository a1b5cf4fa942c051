"""Everything: processes die or freeze, connections are cut, go silent or lose a request, a broker
restarts; at random, or one after the other.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from tests.harness.kafka import until
from tests.harness.service import Service, send_signal
from tools.faults.run import HEAL_S, Run, Story
from tools.faults.stories.brokers import restart_broker
from tools.faults.stories.kills import all_processes
from tools.faults.stories.network import REQUESTS, cut_once, get_proxy, hold_half_open

TIMES = 7
FAULT_S = 5
QUIET_S = 8


def kill_processes(run: Run, service: Service) -> None:
    """Kill one or two processes."""
    for stage in run.rng.choice(
        (("replicator",), ("jvm",), ("deduplicator",), ("deduplicator", "jvm"))
    ):
        run.kill_stage(service, stage)


def freeze_process(run: Run, service: Service) -> None:
    """Stop a process for some seconds."""
    freeze_stage(run, service, run.rng.choice(("jvm", "deduplicator")), run.rng.uniform(1, 12))


def freeze_stage(run: Run, service: Service, stage: str, seconds: float) -> None:
    """Stop this process for so long."""
    pid = until(lambda: service.find_pid(stage), f"{stage} lives")
    send_signal(pid, signal.SIGSTOP)
    run.record_fault(f"SIGSTOP for {seconds:.0f} s")
    time.sleep(seconds)  # how long it lasts is the harm
    os.kill(pid, signal.SIGCONT)
    run.stage_two_deaths += 1


def cut_connections(run: Run, _: Service) -> None:
    """Cut all connections to one cluster."""
    cut_once(run, run.rng.choice(("source", "destination")))


def make_half_open(run: Run, _: Service) -> None:
    """Make the connections to one cluster half-open for some seconds."""
    hold_half_open(run, run.rng.choice(("source", "destination")), run.rng.uniform(1, 12))


def lose_request(run: Run, _: Service) -> None:
    """Lose one request to the destination; if no request of the chosen API comes, none is lost."""
    rule = get_proxy(run, "destination").add_rule(
        run.rng.choice(("drop", "swallow_answer", "cut")),
        run.rng.choice(REQUESTS),
        nth=run.rng.randint(1, 5),
    )
    if rule.matched_event.wait(10):
        run.record_fault("request lost")


def restart_any_broker(run: Run, _: Service) -> None:
    """Restart a broker cleanly; another story has the effects of a killed single node on
    transactions.
    """
    restart_broker(run.rng.choice((run.clusters.source, run.clusters.destination)).broker, run)


FAULTS = (
    kill_processes,
    kill_processes,
    freeze_process,
    cut_connections,
    make_half_open,
    lose_request,
    restart_any_broker,
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


EACH_FAULT: tuple[Callable[[Run, Service], None], ...] = (
    lambda run, service: run.kill_stage(service, "deduplicator"),
    lambda run, service: freeze_stage(run, service, "deduplicator", FAULT_S),
    lambda run, service: run.kill_stage(service, "jvm"),
    lambda run, _: cut_once(run, "destination"),
    lambda run, _: hold_half_open(run, "source", FAULT_S),
    lambda run, _: restart_broker(run.clusters.source.broker, run),
)


def inject_each_fault(run: Run) -> None:
    """One fault after the other, each when the copy has caught up after the one before it."""
    service = run.start()
    for inject in EACH_FAULT:
        wait_until_caught_up(run, service)
        inject(run, service)
    wait_until_caught_up(run, service)


def wait_until_caught_up(run: Run, service: Service) -> None:
    """Wait until less than a second of the load waits, and some seconds more: the picture shows
    that this stays so.
    """
    run.wait_for_progress()
    until(
        lambda: (
            service.metric("reo_records_out_total", stage="deduplicator") > 0
            and service.metric("reo_lag_records") < run.load.records_per_s
        ),
        "the copy has caught up",
        HEAL_S,
    )
    time.sleep(QUIET_S)


STORIES = (
    Story("everything mixed", inject_any_fault, brokers="proxied"),
    Story("one fault after the other", inject_each_fault, brokers="proxied"),
)
