"""What is said when Ctrl-C ends a command: the main thread says it, or the thread that ends the
process, and that one does not end it before it is said.
"""

from __future__ import annotations

import threading

import pytest

from reo import interrupt


def test_the_process_does_not_end_before_it_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One thread is in the middle of it when the other one comes to say the same."""
    is_saying, may_end = threading.Event(), threading.Event()

    def describe() -> str:
        is_saying.set()
        assert may_end.wait(60)
        return "last words"

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
