"""SIGSTOP longer than the session, a successor, SIGCONT: a zombie that does not know that it was
replaced. Its writes must not take effect.
"""

from __future__ import annotations

import re
import signal
import time

from tests.harness.failpoint_marker import wait_for_failpoint
from tests.harness.kafka import until
from tests.harness.service import Service, read_command_line, send_signal
from tools.faults.run import RUN_BEGINS, SESSION_S, Run, Story


def count_assignments(service: Service) -> int:
    """How many times a worker was assigned partitions."""
    return len(re.findall(r"\[\S[^\]]*\] are assigned", service.log))


def wake_zombie(run: Run, service: Service, pid: int, assignments_before: int) -> None:
    """Wait for the successor, resume the zombie, and wait for more records."""
    until(lambda: count_assignments(service) > assignments_before, "a successor has the partitions")
    run.wait_for_progress(500, 1500)
    send_signal(pid, signal.SIGCONT)
    run.record_fault("zombie of stage two woken")
    run.stage_two_deaths += 1  # it may have committed records that it has not counted
    run.wait_for_progress()


def freeze_worker(run: Run) -> None:
    """One of two workers freezes at a random moment."""
    service = run.start(deduplicator_workers="2")
    until(
        lambda: (
            {"0", "1"}
            == set(re.findall(r" deduplicator-(\d): \[\S[^\]]*\] are assigned", service.log))
        ),
        "both workers have partitions",
    )
    run.wait_for_progress()
    before, pid = (
        count_assignments(service),
        until(lambda: service.find_pid("deduplicator", run.rng.randint(0, 1)), "the worker lives"),
    )
    send_signal(pid, signal.SIGSTOP)
    run.record_fault("SIGSTOP of a worker")
    wake_zombie(run, service, pid, before)


def freeze_before_commit(run: Run, point: str = "two: offsets sent") -> None:
    """A worker freezes with a transaction that lacks only its EndTxn; its successor must fence that
    EndTxn.
    """
    proof = run.folder / "frozen"
    service = run.start(
        deduplicator_workers="2", freeze_at=f"{point}:{run.rng.randint(5, 20)}:{proof}"
    )
    pid = wait_for_failpoint(proof, point)
    before = count_assignments(service)
    run.record_fault(f"frozen at {point!r}")
    wake_zombie(run, service, pid, before)


def freeze_jvm(run: Run) -> None:
    """The service is killed while the JVM is frozen, so that nobody kills that one; the JVM resumes
    during the run of another service and writes its remaining records.
    """
    service = run.start()
    run.wait_for_progress()
    zombie = until(lambda: service.find_pid("jvm"), "the JVM lives")
    send_signal(zombie, signal.SIGSTOP)
    run.record_fault("SIGSTOP of the JVM")
    send_signal(service.process.pid)
    until(lambda: service.list_processes() == [zombie], "only the JVM is left")
    run.mark_ended(service)
    run.counters_lost = True
    run.record_fault("SIGKILL of the first process")
    run.start().wait_for_log(RUN_BEGINS)
    run.wait_for_progress()
    assert "java" in read_command_line(zombie), "the zombie still runs"
    send_signal(zombie, signal.SIGCONT)
    run.record_fault("zombie of stage one woken")
    run.wait_for_progress()


def freeze_driver(run: Run) -> None:
    """All processes of stage one freeze, another service takes over, and the first resumes: two
    drivers, until the first is stopped.
    """
    two, one = run.start("deduplicator"), run.start("replicator")
    run.wait_for_progress()
    frozen = [pid for pid in one.list_processes() if pid != one.process.pid]
    for pid in frozen:
        send_signal(pid, signal.SIGSTOP)
    run.record_fault("SIGSTOP of stage one's driver and JVM")
    other = run.start("replicator", instance="other")
    other.wait_for_log(RUN_BEGINS)
    run.wait_for_progress()
    woken = [pid for pid in frozen if read_command_line(pid)]
    for pid in woken:
        send_signal(pid, signal.SIGCONT)
    if woken:
        run.record_fault("zombie of stage one woken")
        one.wait_for_log("superseded")
    else:  # the other needed a minute to start
        one.wait_for_log("gave no sign of life")
        run.record_fault("zombie of stage one killed by the watchdog")
    run.stop(one)
    assert two.process.poll() is None
    run.wait_for_progress()


def freeze_everything(run: Run) -> None:
    """Everything freezes for longer than sessions and transactions last, as a suspended machine
    does, and goes on.
    """
    service = run.start()
    run.wait_for_progress()
    service.signal_all("SIGSTOP")
    run.record_fault("SIGSTOP of everything")
    time.sleep(run.rng.uniform(2 * SESSION_S, 3 * SESSION_S))  # the duration is the fault
    service.signal_all("SIGCONT")
    run.stage_two_deaths += 1
    run.wait_for_progress()


STORIES = (
    Story("SIGSTOP of a worker", freeze_worker),
    Story("SIGSTOP between offsets and commit", freeze_before_commit),
    Story("SIGSTOP of a JVM whose service is killed", freeze_jvm),
    Story("SIGSTOP of a driver, another takes over", freeze_driver),
    Story("SIGSTOP of everything", freeze_everything),
)
