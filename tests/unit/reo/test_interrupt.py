"""What is said when a signal ends a command: the main thread says it, or the thread that ends the
process, and that one does not end it before it is said. And that a command says its last words
whatever ends it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest

from reo import interrupt
from tests.harness.kafka import ROOT
from tests.unit.common.settings.test_settings import GOOD
from tools.demo import fair_share

COMMAND = """
import sys, time
from common import errors
from reo import cli, interrupt

def run(settings, **options):
    interrupt.set_last_words(lambda: "last words")
    print("runs", flush=True)
    {}

cli.load_function = lambda command: run
sys.exit(cli.main(["lag"]))
"""


def end_command(
    work: str, signals: Sequence[signal.Signals] = (), ignored: Sequence[signal.Signals] = ()
) -> tuple[int, list[str]]:
    """The exit code of a command that does this work, and what it says on standard error."""

    def ignore() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND.format(work)],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **GOOD},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=ignore,
    )
    assert process.stdout
    assert process.stdout.readline() == "runs\n"
    for number in signals:
        process.send_signal(number)
    _, said = fair_share.communicate(process, 30)
    return process.returncode, said.splitlines()


def test_the_process_does_not_end_before_it_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One thread is in the middle of it when the other one comes to say the same."""
    is_saying, may_end = threading.Event(), threading.Event()

    def describe() -> str:
        is_saying.set()
        assert may_end.wait(60)
        return "last words"

    monkeypatch.setattr(interrupt, "_end_logging", lambda: None)  # of the tests
    monkeypatch.setattr(interrupt, "_is_reported", threading.Event())
    monkeypatch.setattr(interrupt, "_last_words", [describe])
    first = threading.Thread(target=interrupt.report_interrupt, args=("lag",))
    second = threading.Thread(target=interrupt.report_interrupt, args=("lag",))
    first.start()
    assert is_saying.wait(60)
    second.start()
    second.join(0.1)
    assert second.is_alive()
    may_end.set()
    first.join()
    second.join()
    assert capsys.readouterr().err == "reo lag: interrupted\nlast words\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_command_with_its_last_words(number: signal.Signals) -> None:
    """`timeout` sends SIGTERM, a terminal that is closed SIGHUP. One that comes meanwhile, as after
    the end of a session, cuts nothing off.
    """
    end = 128 + number, ["reo lag: interrupted", "last words"]
    assert end_command("time.sleep(600)", [number]) == end
    assert end_command("time.sleep(600)", [number, signal.SIGINT])[1] == end[1]


def test_nothing_is_logged_behind_the_last_words() -> None:
    """Another thread of the command goes on: `reo check` asks both clusters at once."""
    code, said = end_command(
        "import itertools, logging, signal, threading;"
        " log = lambda: [(logging.warning('waiting'), begun.set()) for _ in itertools.repeat(0)];"
        " begun = threading.Event();"
        " threading.Thread(target=log, daemon=True).start();"
        " begun.wait();"
        " signal.raise_signal(signal.SIGINT);"
        " time.sleep(600)"
    )
    assert (code, said[-2:]) == (130, ["reo lag: interrupted", "last words"])
    assert len(said) > 2


def test_a_command_ends_whose_words_nobody_reads() -> None:
    """The pipe is full, and its reader stands still: a print lasts for ever."""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from reo import interrupt; interrupt.REPORT_S = 0.1;"
            + COMMAND.format("sys.stderr.write('x' * 10**6); sys.stderr.flush()"),
        ],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **GOOD},
        stdout=subprocess.PIPE,
        stderr=writing,
    )
    assert process.stdout
    assert process.stdout.readline() == b"runs\n"
    process.send_signal(signal.SIGTERM)
    assert fair_share.wait(process, 30) == 143
    os.close(reading)
    os.close(writing)


def test_nohup_is_obeyed() -> None:
    """SIGHUP does nothing then."""
    code, said = end_command(
        "time.sleep(600)", [signal.SIGHUP, signal.SIGTERM], ignored=[signal.SIGHUP]
    )
    assert (code, said[-1]) == (143, "last words")


def test_an_error_ends_a_command_with_its_last_words() -> None:
    """One of reo's, and one that nobody expects, behind its traceback."""
    assert end_command('raise errors.GroupBusy("busy")') == (
        33,
        ["reo lag: busy", "last words"],
    )
    code, said = end_command('raise OSError("unexpected")')
    assert (code, said[-2:]) == (1, ["OSError: unexpected", "last words"])
